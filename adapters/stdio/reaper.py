"""The node's end of the reaper. Owns its process and its list of children; must never wait for it.

Source: bridge 9 (no orphan when the node is gone, by SIGKILL too). One reaper per node, started with the first child,
in a session of its own so that a terminal's signals do not end it first. If it dies, the next change starts another
and tells it the whole list.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from adapters.stdio.reaper_process import start_time

_PROGRAM: Final = Path(__file__).with_name("reaper_process.py")


class Reaper:
    """Kills the sessions of registered children when this process ends. Not for several threads."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: dict[int, int] = {}
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """The reaper's process id; None while none runs."""
        return None if self._process is None else self._process.pid

    @property
    def sessions(self) -> frozenset[int]:
        """The children that are registered."""
        return frozenset(self._sessions)

    def register(self, pid: int) -> int:
        """``pid`` leads a session that must not outlive this process. Returns its start time. Raises OSError when no
        reaper can be started."""
        start = start_time(pid)
        self._sessions[pid] = start
        self._tell(f"+ {pid} {start}\n")
        return start

    def unregister(self, pid: int) -> None:
        """``pid`` has been reaped, and its session is empty."""
        if self._sessions.pop(pid, None) is not None and self._process is not None:
            with contextlib.suppress(OSError):  # no reaper can be started now; the next one is told the list of then
                self._tell(f"- {pid}\n")

    def close(self) -> None:
        """Let the reaper end; whatever is still registered is killed by it."""
        process, self._process = self._process, None
        self._sessions.clear()
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(OSError):  # a full or broken pipe: it is not doing its work
                if self._write(self._process, line):
                    return
        if self._process is not None:
            process, self._process = self._process, None
            self._abandon(process)
        self._process = self._start()
        if not self._write(self._process, "".join(f"+ {pid} {start}\n" for pid, start in self._sessions.items())):
            raise OSError("the reaper takes no list")

    @staticmethod
    def _write(process: subprocess.Popen[bytes], text: str) -> bool:
        assert process.stdin is not None
        data = text.encode()
        return os.write(process.stdin.fileno(), data) == len(data)

    def _start(self) -> subprocess.Popen[bytes]:
        # DEVNULL: a reaper that holds the node's stdout would keep its reader waiting.
        process = subprocess.Popen(  # noqa: S603 -- our own program
            [sys.executable, "-I", "-S", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            bufsize=0,
            start_new_session=True,
        )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        return process

    def _abandon(self, process: subprocess.Popen[bytes]) -> None:
        """A reaper that is dead or stuck: it must not see the end of its stdin and kill living children."""
        self.restarts += 1
        process.kill()
        process.wait()
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
