"""The two pipes of a child that are no protocol: its stdin, written within a bound, and its stderr, always drained.

Owns how far the gateway goes for a child that does not read or says too much; must never wait. Sources: bridge 9;
faults 15, 18.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.model.clean import DiagnosticText

STDIN_BUFFER_BYTES: Final = 2 * 1024 * 1024  # 16 answers of a whole frame, and as much again
STALL_S: Final = 2.0  # the child gives its own reader as long
TAIL_BYTES: Final = 4 * 1024
_TAIL_KEPT_BYTES: Final = 3 * TAIL_BYTES  # so that a secret cut in two at the front is not what is shown
_READ_BYTES: Final = 64 * 1024
_LAST_READS: Final = 16  # a pipe may have been made larger by the child


class PipeClosedError(Exception):
    """Nothing more can be written."""


class PipeStalledError(Exception):
    """The child does not read: a write took longer than its bound, or more waits than the buffer may hold."""


class InputPipe:
    """A child's stdin. What the pipe does not take at once waits here, within a bound of bytes and of time.

    ``on_stalled`` is called once, when no byte went for ``stall_s`` while some waited; ``on_broken`` once, when the
    child has closed its end; ``on_drained`` whenever all that waited has gone.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        on_stalled: Callable[[], None],
        on_broken: Callable[[], None],
        on_drained: Callable[[], None] = lambda: None,
        stall_s: float = STALL_S,
        max_bytes: int = STDIN_BUFFER_BYTES,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._on_stalled = on_stalled
        self._on_broken = on_broken
        self._on_drained = on_drained
        self._stall_s = stall_s
        self._max_bytes = max_bytes
        self._waiting = bytearray()
        self._moved = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._stalled = False

    @property
    def waiting(self) -> int:
        """Bytes that the pipe has not taken yet."""
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        """Whether nothing more can be written."""
        return self._descriptor < 0 or self._closing

    @property
    def stalled(self) -> bool:
        """Whether the child has not read for its bound."""
        return self._stalled

    def write(self, data: bytes) -> None:
        """Write, or keep for as soon as the child reads; whole or not at all. Raises PipeClosedError,
        PipeStalledError."""
        if self.closed:
            raise PipeClosedError
        if self._stalled or len(self._waiting) + len(data) > self._max_bytes:
            raise PipeStalledError
        if self._waiting:
            self._waiting += data
            return
        taken = self._put(data)
        if self.closed:
            raise PipeClosedError
        if taken < len(data):
            self._waiting += memoryview(data)[taken:]
            self._moved = self._loop.time()
            self._loop.add_writer(self._descriptor, self._flush)
            self._timer = self._loop.call_later(self._stall_s, self._check)

    def close(self) -> None:
        """Close once what waits has gone."""
        self._closing = True
        if not self._waiting:
            self.abort()

    def abort(self) -> None:
        """Close now; what waits is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._descriptor < 0:
            return
        if self._waiting:
            self._loop.remove_writer(self._descriptor)
            self._waiting.clear()
        with suppress(OSError):
            os.close(self._descriptor)
        self._descriptor = -1

    def _put(self, data: bytes | bytearray) -> int:
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0
        except OSError:
            self.abort()
            self._on_broken()
            return 0

    def _flush(self) -> None:
        taken = self._put(self._waiting)
        if self._descriptor < 0 or not taken:
            return
        del self._waiting[:taken]
        self._moved = self._loop.time()
        if not self._waiting:
            self._loop.remove_writer(self._descriptor)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._closing:
                self.abort()
            else:
                self._on_drained()

    def _check(self) -> None:
        rest = self._moved + self._stall_s - self._loop.time()
        if rest > 0.001:
            self._timer = self._loop.call_later(rest, self._check)
            return
        self._timer = None
        self._stalled = True
        self._on_stalled()


class ErrorPipe:
    """A child's stderr: always read, of which the end is kept, raw, and given out only through redaction."""

    def __init__(self, descriptor: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._kept = bytearray()
        self._size = 0
        self._loop.add_reader(descriptor, self._read)

    @property
    def size(self) -> int:
        """Bytes that have come."""
        return self._size

    def tail(self, clean: Callable[[str], DiagnosticText]) -> DiagnosticText:
        """The last 4 KiB, redacted by ``clean`` before they are cut; what is no UTF-8 is replaced."""
        kept = bytes(self._kept)
        if self._size > len(kept):
            # The front may be the second half of a secret: up to a line's end it goes.
            end = kept.find(b"\n", 0, TAIL_BYTES)
            kept = kept[end + 1 if end >= 0 else TAIL_BYTES :]
        text = clean(kept.decode("utf-8", "replace"))
        # Cut after the redaction, so that no cut goes through a secret; and cleaned again, which changes nothing.
        return clean(text.encode("utf-8", "replace")[-TAIL_BYTES:].decode("utf-8", "ignore"))

    def close(self) -> None:
        """Read what a pipe can hold, and close."""
        for _ in range(_LAST_READS):
            if self._descriptor < 0 or not self._read():
                break
        if self._descriptor >= 0:
            self._end()

    def _read(self) -> bool:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._end()
            return False
        self._size += len(data)
        self._kept += data
        del self._kept[:-_TAIL_KEPT_BYTES]
        return True

    def _end(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
