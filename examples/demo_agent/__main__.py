"""A rule-based agent that speaks the child's side of the stdio protocol: ``python examples/demo_agent serve --stdio``.

It has no model and needs no key. ``README.md`` beside this file says what it understands.
"""

import os
import stat
import sys

from faults import VARIABLE, Settings
from loop import Loop

USAGE = "usage: python examples/demo_agent serve --stdio\n"


def main(arguments: list[str]) -> int:
    """The exit code: 0 after a clean end, 1 when the transport failed, 2 for a wrong launch."""
    if arguments != ["serve", "--stdio"]:
        sys.stderr.write(USAGE)
        return 2
    try:
        faults = Settings.read(os.environ.get(VARIABLE))
    except (ValueError, TypeError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if not all(stat.S_ISFIFO(os.fstat(descriptor).st_mode) for descriptor in (0, 1)):
        return 1  # the protocol wants pipes; nothing may be said on what is none
    return Loop(os.environ, faults).run()


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # runs are threads that may still wait for something
