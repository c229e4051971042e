"""Live pieces of messages, on their way to readers. Owns batching and numbering; nothing of it is logged.

Pieces are redacted as a stream, so what leaves is what the whole text would show; they may be lost (bridge 8). Where
some are, the next one may begin inside of a secret that nobody can tell by its rest. So what was held back is dropped,
and readers get no more of that message until a blank line: no token, assignment or key block goes on behind one.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Final

import msgspec

from gateway.model.clean import LogText
from gateway.model.redaction import DeltaRedactor, Redactor, joined

BATCH_S: Final = 0.02

_BLANK_LINE: Final = re.compile(r"\n\r?\n")
_BEFORE: Final = 2  # characters of a blank line that an earlier piece may end with

_encode: Final = msgspec.json.Encoder().encode


class _Piece(msgspec.Struct):
    message_id: str
    part: int
    text: LogText


class Deltas:
    """The pieces of one run. ``publish`` gets one encoded delta and returns at once."""

    def __init__(self, redactor: Redactor, publish: Callable[[bytes], None]) -> None:
        self._redactor = redactor
        self._publish = publish
        self._streams: dict[str, DeltaRedactor] = {}
        self._next: dict[str, int] = {}
        self._lost: dict[str, str] = {}  # by message: the end of what came since pieces were lost
        self._texts: dict[str, list[LogText]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, message_id: str, text: str, *, follows: bool) -> None:
        """One piece; ``follows`` is False where some before it are missing: readers see a number left out."""
        if not follows:
            self.flush()
            self._next[message_id] = self._next.get(message_id, 0) + 1
            self._streams[message_id] = self._redactor.deltas()
            self._lost[message_id] = ""
        if message_id in self._lost:
            text = self._after_blank_line(message_id, text)
        stream = self._streams.get(message_id)
        if stream is None:
            stream = self._streams[message_id] = self._redactor.deltas()
        self._gather(message_id, stream.feed(text))

    def _after_blank_line(self, message_id: str, text: str) -> str:
        text = self._lost[message_id] + text
        found = _BLANK_LINE.search(text)
        if found is None:
            self._lost[message_id] = text[-_BEFORE:]
            return ""
        del self._lost[message_id]
        return text[found.end() :]

    def _gather(self, message_id: str, text: LogText) -> None:
        if not text:
            return
        self._texts.setdefault(message_id, []).append(text)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BATCH_S, self.flush)

    def close(self, message_id: str) -> None:
        """The message is complete: what was held back goes out before it."""
        stream = self._streams.pop(message_id, None)
        self._lost.pop(message_id, None)
        if stream is not None:
            self._gather(message_id, stream.flush())
            self.flush()
            self._next.pop(message_id, None)

    def flush(self) -> None:
        """Sends what was gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        texts, self._texts = self._texts, {}
        for message_id, pieces in texts.items():
            part = self._next.get(message_id, 0)
            self._next[message_id] = part + 1
            self._publish(_encode(_Piece(message_id, part, joined(pieces))))
