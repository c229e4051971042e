"""Text frames as a server writes them (RFC 6455, 5.2): not masked, so one frame serves every reader of an event.

Owns the bytes around a text. Must never look into it, and knows neither sockets nor sessions' rules.
"""

import struct
from typing import Final

from adapters.websocket import protocol
from gateway.bus.log import Entry
from gateway.services.pushes import Delta

PIECE_BYTES: Final = 64 * 1024
"""Frames are joined up to here: a piece is one write, and a peer that is slow is noticed between two."""

_TEXT: Final = 0x81  # a whole message in one frame
_MIDDLE: Final = struct.Struct("!BBH").pack
_LONG: Final = struct.Struct("!BBQ").pack

Piece = tuple[int, bytes]
"""The seq of its last event, and the frames."""


def framed(text: bytes) -> bytes:
    """A message of UTF-8 in one frame."""
    size = len(text)
    if size < 126:
        return bytes((_TEXT, size)) + text
    return (_MIDDLE(_TEXT, 126, size) if size < 65_536 else _LONG(_TEXT, 127, size)) + text


class Framer:
    """Frames of what a feed gives its readers.

    Readers of a session are given the same objects, one reader behind the other, so the last ones are what the next
    reader asks for: a thousand readers cost one frame.
    """

    def __init__(self) -> None:
        self._entries: list[Entry] | None = None
        self._pieces: list[Piece] = []
        self._delta: Delta | None = None
        self._delta_frame = b""

    def pieces(self, head: bytes, entries: list[Entry]) -> list[Piece]:
        """Events of one session, whose pushes begin with ``head``, in pieces of some 64 KiB."""
        if entries is not self._entries:
            self._pieces = _pieces(head, entries)
            self._entries = entries
        return self._pieces

    def delta(self, head: bytes, delta: Delta) -> bytes:
        """A delta of one session."""
        if delta is not self._delta:
            self._delta_frame = framed(protocol.delta(head, delta.body))
            self._delta = delta
        return self._delta_frame


def _pieces(head: bytes, entries: list[Entry]) -> list[Piece]:
    made: list[Piece] = []
    frames: list[bytes] = []
    size = last = 0
    for entry in entries:
        frame = framed(protocol.event(head, entry.event))
        if frames and size + len(frame) > PIECE_BYTES:
            made.append((last, b"".join(frames)))
            frames, size = [], 0
        frames.append(frame)
        size += len(frame)
        last = entry.seq
    made.append((last, b"".join(frames)))
    return made
