"""The ``toolrelay`` command: its parser, and how a mistake ends. Each command is a module of its own.

Imports stay light: what a command needs is imported when it runs. Exit codes: 0 fine, 1 failed, 2 usage.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from gateway import __version__
from gateway.cli import agents, calls, config, demo, doctor, serve, sessions, token, version
from gateway.cli.output import Failure, Usage, say

COMMANDS = (serve, demo, doctor, config, agents, sessions, calls, token, version)


def parser() -> argparse.ArgumentParser:
    """The whole command line; only what works is in it."""
    top = argparse.ArgumentParser(
        prog="toolrelay",
        description="A gateway that lets browsers, extensions and workers answer the tool calls of local agents.",
        epilog="doctor, agents, sessions, calls and token ask the gateway at TOOLRELAY_URL (http://127.0.0.1:8080), "
        "with the key in TOOLRELAY_API_KEY. Exit codes: 0 fine, 1 failed, 2 usage.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"toolrelay {__version__}", help="print the version")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.register(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    try:
        arguments = parser().parse_args(argv)
    except SystemExit as stop:  # argparse has said what it had to say
        return stop.code if isinstance(stop.code, int) else 2
    try:
        return int(arguments.run(arguments))
    except Usage as mistake:
        for line in mistake.lines:
            say(line)
        return 2
    except Failure as failure:
        say(str(failure))
        return 1
    except BrokenPipeError:  # the reader of our output (head, less) has gone; python would complain at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
