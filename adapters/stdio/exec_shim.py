"""The few steps between fork and the agent: bounds, death with the parent, then exec. A program of its own, run by its
path (``python -I -S``); must never import anything but the standard library.

Why a program and no ``preexec_fn``: that one runs Python in a fork of a process with threads, may deadlock there, and
costs the copy of a large node's page tables on the event loop. This one is started by vfork and costs its own start
(some 15 ms), off the loop.

Arguments: the parent's pid, a descriptor to report on, JSON of ``{"limits": {NAME: [soft, hard]}, "drop": [names of
the environment]}``, then the command. On success the descriptor closes by exec; else it gets ``errno STEP``.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def _main() -> int:
    parent, report = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(report, False)
    step = "limits"
    try:
        orders = json.loads(sys.argv[3])
        for name, (soft, hard) in orders["limits"].items():
            number = getattr(resource, name)
            _, ceiling = resource.getrlimit(number)
            if ceiling != resource.RLIM_INFINITY:
                hard = ceiling if hard < 0 else min(hard, ceiling)  # noqa: PLW2901 -- no process may raise its own
                soft = hard if soft < 0 else min(soft, hard)  # noqa: PLW2901
            resource.setrlimit(number, (soft, hard))
        step = "pdeathsig"
        if sys.platform == "linux":
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "prctl")  # noqa: TRY301
            if os.getppid() != parent:  # it died before it could be heard
                return 1
        # What the interpreter has changed for itself.
        for name in orders["drop"]:
            os.environ.pop(name, None)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        step = "exec"
        os.execvp(sys.argv[4], sys.argv[4:])  # noqa: S606 -- an argument list, no shell
    except OSError as error:
        os.write(report, f"{error.errno} {step}".encode())
    return 127


if __name__ == "__main__":
    sys.exit(_main())
