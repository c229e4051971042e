"""The reaper: a small program that outlives its node by a moment and ends what the node has left behind.

Owns the ending of whole sessions of processes, and the program around it; must never import anything but the standard
library (it is run by its path, alone, ``python -I -S``), and never end a process whose session was not registered.

The node writes lines to its stdin: ``+ PID START`` (a child, leader of its own session, and when the kernel says it
was started), ``- PID`` (ended and reaped). When stdin ends, the node is gone, however it went: every session that is
left is killed and the program exits.

A child puts its jobs into process groups of their own, but they stay in its session; so the session is what is ended,
not the group (bridge 9; seen with the real child).
"""

import contextlib
import os
import signal
import sys
import time
from typing import Final

SWEEPS: Final = 200  # of 10 ms: what forks while it is being killed is caught by the next one
_LINE_BYTES: Final = 64


def start_time(pid: int) -> int:
    """When the kernel started ``pid``, in ticks since boot; 0 when there is no such process or no way to know."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def _stat(pid: int) -> list[bytes]:
    """The fields of a process from its state on (``proc_pid_stat(5)``, field 3); empty when it is not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The name before them may hold spaces and brackets.
            return file.read(1024).rpartition(b")")[2].split()
    except OSError:
        return []


def session_members(sid: int) -> list[int]:
    """The living processes of a session, its leader too. Zombies are dead: their parent reaps them."""
    members: list[int] = []
    try:
        entries = os.listdir("/proc")
    except OSError:
        return members
    for entry in entries:
        if entry.isdigit():
            fields = _stat(int(entry))
            if len(fields) > 3 and fields[3] == b"%d" % sid and fields[0] not in (b"Z", b"X"):
                members.append(int(entry))
    return members


def kill_session(sid: int, start: int = 0) -> int:
    """Kill the group and the session that ``sid`` leads or has led; how many processes are left (0: none).

    ``start`` guards against a number that the kernel has given to another: a living leader with another start is let
    be. While a member lives, the number cannot be given away.
    """
    if sid <= 1 or (start and start_time(sid) not in (0, start)):
        return 0
    left: list[int] = []
    for _ in range(SWEEPS):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(sid, signal.SIGKILL)
        left = session_members(sid)
        if not left:
            return 0
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return len(left)


def _main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    sessions: dict[int, int] = {}
    rest = b""
    while data := os.read(0, 4096):
        *lines, rest = (rest + data).split(b"\n")
        rest = rest[:_LINE_BYTES]
        for line in lines:
            match line.split():
                case [b"+", pid, start]:
                    sessions[int(pid)] = int(start)
                case [b"-", pid]:
                    sessions.pop(int(pid), None)
                case _:
                    return 2
    for pid, start in sessions.items():
        kill_session(pid, start)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
