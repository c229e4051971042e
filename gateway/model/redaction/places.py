"""Where a place of a JSON value's plain text lies in the value. Owns the plain text and the way back from it; must
never look for a secret.

Rules are looked for in the *plain* text: the encoded value with the escapes of its strings undone. What they find has
to be found again in the value, without a walk over all of its tokens: that took longer than everything else. So the
value is cut into blocks, of which is known where each begins in both texts and whether that is inside a string.
"""

import re
from bisect import bisect_right
from itertools import pairwise
from typing import Final

BLOCK: Final = 2_048
_ESCAPE_BYTES: Final = 6  # of the longest escape
_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"(\s*+:)?+', re.DOTALL)
_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_RARE: Final = ((b"\\/", b"/"), (b"\\t", b"\t"), (b"\\r", b"\r"), (b"\\b", b"\b"), (b"\\f", b"\f"))
_ESCAPED_UNIT = re.compile(rb"\\u([0-9a-fA-F]{4})")


def plain(raw: bytes) -> bytes:
    """``raw`` with the escapes of its strings undone, to look for what may be in it; no longer JSON."""
    if b"\\" not in raw:
        return raw
    text = raw.replace(b"\\\\", b"\x01").replace(b'\\"', b'"').replace(b"\\n", b"\n")
    if b"\\" in text:  # the other escapes are rare, and each is one more pass
        for escape, char in _RARE:
            text = text.replace(escape, char)
        if b"\\u" in text:
            text = _ESCAPED_UNIT.sub(_unit, text)
    return text.replace(b"\x01", b"\\")


def _unit(found: re.Match[bytes]) -> bytes:
    return chr(int(found.group(1), 16)).encode("utf-8", "surrogatepass")


def _quotes(raw: bytes) -> int:
    """How many quotes in ``raw`` begin or end a string."""
    if b"\\" not in raw:
        return raw.count(b'"')
    text = raw.replace(b"\\\\", b"")
    return text.count(b'"') - text.count(b'\\"')


class Places:
    """One encoded JSON value, its plain ``text``, and the strings in which places of that lie."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._starts: list[int] = []  # of the blocks, in the value
        self._plain_starts: list[int] = []  # and in the text
        self._quotes: list[int] = []  # before each
        self._block = -1  # in which a place was looked for last
        self._known = 0  # up to here in the value its escapes are counted,
        self._shorter = 0  # and the text is by so much shorter
        self.text = self._cut() if b"\\" in raw else raw

    def string_at(self, place: int) -> re.Match[bytes] | None:
        """The string around a place of the text: group 1 is its inside, group 2 the colon behind a key. None where
        the place is in none. Raises ValueError for a string that is not closed."""
        if not self._quotes:
            self._count()
        at = self._in_value(place)
        block = bisect_right(self._starts, at) - 1
        before = _quotes(self._raw[self._starts[block] : at])
        if (self._quotes[block] + before) % 2 == 0:
            return None
        found = _STRING.match(self._raw, self._quote_before(at, block, before))
        if found is None:
            raise ValueError("not JSON: a string is not closed")
        return found if at < found.end(1) else None

    def end_of(self, found: re.Match[bytes]) -> int:
        """Where the inside of a string ends in the text."""
        at = found.end(1)
        block = bisect_right(self._starts, at) - 1
        return self._plain_starts[block] + len(plain(self._raw[self._starts[block] : at]))

    def _cut(self) -> bytes:
        """Cut the value: its plain text."""
        raw, at, length, pieces = self._raw, 0, 0, list[bytes]()
        while at < len(raw):
            self._starts.append(at)
            self._plain_starts.append(length)
            block = raw[at : self._end(at)]
            pieces.append(plain(block))
            length += len(pieces[-1])
            at += len(block)
        return b"".join(pieces)

    def _count(self) -> None:
        """Whether each block begins inside of a string is asked only where something was found."""
        raw, count = self._raw, 0
        if not self._starts:
            self._starts = self._plain_starts = list(range(0, len(raw), BLOCK))
        for start, end in pairwise([*self._starts, len(raw)]):
            self._quotes.append(count)
            count += _quotes(raw[start:end])

    def _end(self, at: int) -> int:
        """Where the block that begins at ``at`` ends: not inside of an escape."""
        raw = self._raw
        end = min(at + BLOCK, len(raw))
        last = raw.rfind(b"\\", max(at, end - _ESCAPE_BYTES), end)
        if last < 0 or self._backslashes(at, last + 1) % 2 == 0:
            return end
        return min(max(end, last + (_ESCAPE_BYTES if raw[last + 1 : last + 2] == b"u" else 2)), len(raw))

    def _backslashes(self, start: int, end: int) -> int:
        """How many stand right before ``end``, from ``start`` on."""
        return end - start - len(self._raw[start:end].rstrip(b"\\"))

    def _in_value(self, place: int) -> int:
        """Where a place of the text is in the value; quick where it lies behind the last one that was asked for."""
        block = bisect_right(self._plain_starts, place) - 1
        if block != self._block or place < self._known - self._shorter:
            self._block, self._known = block, self._starts[block]
            self._shorter = self._known - self._plain_starts[block]
        end = self._starts[block + 1] if block + 1 < len(self._starts) else len(self._raw)
        for found in _ESCAPE.finditer(self._raw, self._known, end):
            begin, after = found.span()
            if place <= begin - self._shorter:
                break
            less = 1 if after - begin == 2 else _ESCAPE_BYTES - len(plain(found.group()))
            if place < after - self._shorter - less:
                return begin
            self._shorter += less
            self._known = after
        return place + self._shorter

    def _quote_before(self, at: int, block: int, before: int) -> int:
        """The last quote before ``at`` that is none of a string's own characters; it is there."""
        while before == 0:
            block -= 1
            at, before = self._starts[block + 1], self._quotes[block + 1] - self._quotes[block]
        at = self._raw.rfind(b'"', 0, at)
        while self._backslashes(self._starts[block], at) % 2:
            at = self._raw.rfind(b'"', 0, at)
        return at
