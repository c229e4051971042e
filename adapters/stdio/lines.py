"""Lines out of a child's stdout. Owns the cut at LF and the bound on a line; must never know what a line means.

Source: stdio protocol, Framing. A line ends at the byte 0x0A and nowhere else: U+2028, U+0085, VT and FF are text, a CR
belongs to its line. The bound is part of the read: what is beyond it is counted and dropped as it comes, so an endless
line costs no more memory than the longest good one.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OverlongLine:
    """A line beyond the bound, of which only its size is left: ``size`` in bytes without the LF. ``marked`` says that
    it held the splitter's marker and began like an object, so it was meant as a frame and is no banner."""

    size: int
    marked: bool


class LineSplitter:
    """Cuts a stream of bytes into lines of at most ``limit`` bytes, LF not counted.

    ``marker`` is looked for in lines that are too long to keep. What comes out depends on the bytes alone, never on
    how they were split into reads.
    """

    __slots__ = ("_brace", "_limit", "_marked", "_marker", "_pending", "_size", "_tail")

    def __init__(self, limit: int, marker: bytes) -> None:
        self._limit = limit
        self._marker = marker
        self._pending = bytearray()
        self._size = 0  # of a line that is being skipped; 0: none is
        self._tail = b""
        self._marked = False
        self._brace = False

    def feed(self, data: bytes) -> list[bytes | OverlongLine]:
        """The lines that ``data`` completes, in order, without their LF."""
        lines: list[bytes | OverlongLine] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            if self._pending or self._size or end - start > self._limit:
                self._take(data[start:end])
                lines.append(self._cut())
            else:
                lines.append(data[start:end])
            start = end + 1
        if start < len(data):
            self._take(data[start:])
        return lines

    def finish(self) -> bytes | OverlongLine | None:
        """What is left without an LF when the stream has ended; None when it ended with one."""
        if not self._pending and not self._size:
            return None
        return self._cut()

    def _take(self, piece: bytes) -> None:
        if not self._size:
            if len(self._pending) + len(piece) <= self._limit:
                self._pending += piece
                return
            piece = bytes(self._pending) + piece
            self._pending.clear()
            self._brace = piece.lstrip(b" \t\r")[:1] == b"{"
        self._size += len(piece)
        if not self._marked:
            window = self._tail + piece
            self._marked = self._marker in window
            self._tail = window[-(len(self._marker) - 1) :]

    def _cut(self) -> bytes | OverlongLine:
        if not self._size:
            line = bytes(self._pending)
            self._pending.clear()
            return line
        overlong = OverlongLine(self._size, self._marked and self._brace)
        self._size, self._tail, self._marked, self._brace = 0, b"", False, False
        return overlong
