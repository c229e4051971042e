"""The child's one loop: it reads stdin, writes stdout and decides when the child ends, and with which exit code.

It must never wait for anything but ``poll``: reading goes on while a run waits, and while nobody reads our output.
"""

import os
import select
import time
import uuid
from collections.abc import Mapping
from typing import Final

from faults import Settings
from frames import FRAME_BYTES
from output import Output, Overflow
from service import Service

BATCH: Final = 4_096  # bytes read at once
CLOSING_S: Final = 2.0  # for what is left to say after the end of input


class Loop:
    """One life of a child on two pipes."""

    def __init__(self, environment: Mapping[str, str], faults: Settings, stdin: int = 0, stdout: int = 1) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.faults = faults
        self._wake, wake = os.pipe()
        for descriptor in (stdin, stdout, self._wake, wake):
            os.set_blocking(descriptor, False)
        self.output = Output(str(uuid.uuid4()), wake, stdout)
        self.service = Service(self.output, self, environment, faults)
        self._partial = bytearray()
        self._open = True  # whether input may still come
        self._deaf_until = self._dumb_until = 0.0

    def stall(self, *, input_s: float, output_s: float) -> None:
        """Neither read nor write for so long (a fault)."""
        now = time.monotonic()
        self._deaf_until, self._dumb_until = now + input_s, now + output_s

    def rest(self, seconds: float) -> None:
        """Hold up everything (a fault of the start)."""
        if seconds > 0:
            time.sleep(seconds)

    def run(self) -> int:
        """Until the end; the exit code."""
        self.faults.begin(self.output)
        closing: float | None = None
        try:
            while True:
                now = time.monotonic()
                if self.service.closing and closing is None:
                    self._open = False
                    closing = now + CLOSING_S
                late = self.output.deadline()
                if late is None and closing is not None and self.service.run is None:
                    return 0
                if late is not None:  # a stalled writer (a fault) stalls its deadline too
                    late = max(late, self._dumb_until + self.output.deadline_s)
                ends = [moment for moment in (late, closing) if moment is not None]
                if ends and now >= min(ends):
                    return 1
                self._turn(now, min(ends, default=None))
        except (Overflow, OSError):
            return 1

    def _turn(self, now: float, end: float | None) -> None:
        """Wait for something to do, at most until ``end``, and do it."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._open and now >= self._deaf_until:
            poll.register(self.stdin, select.POLLIN)
        if self.output.deadline() is not None and now >= self._dumb_until:
            poll.register(self.stdout, select.POLLOUT)
        moments = [moment for moment in (end, self._deaf_until, self._dumb_until) if moment and moment > now]
        timeout = None if not moments else (min(moments) - now) * 1000 + 1
        ready = dict(poll.poll(timeout))
        if self._wake in ready:
            os.read(self._wake, BATCH)
        if self.stdin in ready:
            self._read()
            self.service.work()
        if time.monotonic() >= self._dumb_until:
            self.output.write()

    def _read(self) -> None:
        try:
            data = os.read(self.stdin, BATCH)
        except BlockingIOError:
            return
        if not data:
            self._end_of_input()
            return
        self._partial += data
        while self._open and not self.service.closing:
            line, found, rest = self._partial.partition(b"\n")
            if len(line) > FRAME_BYTES:
                self.output.respond(None, error="frame_too_large")
                self.service.close()
            if not found or self.service.closing:
                return
            self._partial = rest
            self.service.line(bytes(line))
            if self.faults.deaf_after_requests is not None and len(self.service.ids) >= self.faults.deaf_after_requests:
                self._open = False

    def _end_of_input(self) -> None:
        self._open = False
        if self._partial:
            self.output.respond(None, error="incomplete_frame")
        if not self.faults.ignore_end:
            self.service.close()
