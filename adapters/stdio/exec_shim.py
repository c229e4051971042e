"""The few steps between fork and the agent: bounds, death with the parent, then exec. A program of its own, run by its
path (``python -I -S``); must never import anything but the standard library.

Why a program and no ``preexec_fn``: that one runs Python in a fork of a process with threads, may deadlock there, and
costs the copy of a large node's page tables on the event loop. This one is started by vfork and costs its own start
(some 15 ms), off the loop.

Arguments: the parent's pid; a descriptor to report on; bounds as ``RLIMIT_NAME=N`` with commas between; names to take
out of the environment, with commas between; then the command. On success the descriptor closes by exec, else it gets
``ERRNO STEP``.
"""

# ``json``, ``signal`` and ``typing``, with what they import, would more than double the time that a start takes.
import ctypes
import os
import resource
import sys

PR_SET_PDEATHSIG = 1
SIG_DFL = 0
SIGKILL = 9
SIGNALS = range(1, 65)


def _bound(name: str, value: int) -> None:
    number = getattr(resource, name)
    _, ceiling = resource.getrlimit(number)
    if ceiling != resource.RLIM_INFINITY:
        value = min(value, ceiling)  # no process may raise its own
    resource.setrlimit(number, (value, value))


def _main() -> int:
    parent, report, bounds, drop, *command = sys.argv[1:]
    os.set_inheritable(int(report), False)
    step = "limits"
    try:
        for name, _, value in (bound.partition("=") for bound in bounds.split(",") if bound):
            _bound(name, int(value))
        libc = ctypes.CDLL(None)
        if sys.platform == "linux":
            libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
            if os.getppid() != int(parent):  # it died before it could be heard
                return 1
        # Ignored signals outlive exec: the interpreter's own, and what a shell or nohup had the gateway ignore.
        for number in SIGNALS:
            libc.signal(number, SIG_DFL)  # the few that nobody can set stay as they are
        for name in drop.split(","):
            os.environ.pop(name, None)
        step = "exec"
        os.execvp(command[0], command)  # noqa: S606 -- an argument list, no shell
    except OSError as error:
        os.write(int(report), f"{error.errno} {step}".encode())
    return 127


if __name__ == "__main__":
    sys.exit(_main())
