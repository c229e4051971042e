"""The plain text of an encoded JSON value, and the way back from a place in it. Owns both; must never look for secrets.

Rules are looked for in the *plain* text: the encoded value with the escapes of its strings undone. What they find has
to be found again in the value without a walk over its tokens, which takes longer than everything else. So the escapes
are undone in a *wide* text that is as long as the value: every escape becomes its character and filler. Without the
filler it is the plain text; and it keeps the quotes that end strings apart from those inside of them.
"""

import re
from typing import Final

# Bytes that no UTF-8 has, so that they cannot be the value's own.
_BACKSLASH: Final = b"\xff"
_QUOTE: Final = b"\xfe"  # one inside of a string
_FILLER: Final = b"\xfd"
_PLAIN: Final = bytes.maketrans(_BACKSLASH + _QUOTE, b'\\"')
_TEXT: Final = bytes.maketrans(_BACKSLASH + _QUOTE + b'"', b'\\"\0')

_OFTEN: Final = ((b"\\\\", _BACKSLASH + _FILLER), (b'\\"', _QUOTE + _FILLER), (b"\\n", b"\n" + _FILLER))
_RARE: Final = tuple(
    (escape, char + _FILLER)
    for escape, char in ((b"\\t", b"\t"), (b"\\/", b"/"), (b"\\r", b"\r"), (b"\\b", b"\b"), (b"\\f", b"\f"))
)
# It begins with what is fixed: that is looked for many times as quickly.
_UNITS = re.compile(rb"\\u[0-9a-fA-F]{4}(?:\\u[0-9a-fA-F]{4})*+")

_COLON = re.compile(rb"\s*+:")
_SCALAR = re.compile(rb'[^\s{}\[\],:"]+')


def plain(raw: bytes) -> bytes:
    """``raw`` with the escapes of its strings undone, to look for what may be in it; no longer JSON."""
    return _wide(raw).translate(_PLAIN, _FILLER)


def _wide(raw: bytes) -> bytes:
    wide = _undone(raw, _OFTEN)
    if b"\\" not in wide:
        return wide
    words: dict[bytes, bytes] = {}  # for a text's words come again

    def units(found: re.Match[bytes]) -> bytes:
        escapes = found.group()
        word = words.get(escapes)
        if word is None:
            word = words[escapes] = _units(escapes)
        return word

    return _undone(_UNITS.sub(units, wide), _RARE)


def _undone(raw: bytes, escapes: tuple[tuple[bytes, bytes], ...]) -> bytes:
    for escape, char in escapes:
        if b"\\" not in raw:
            break
        raw = raw.replace(escape, char)
    return raw


def _units(escapes: bytes) -> bytes:
    units = bytes.fromhex(escapes.replace(b"\\u", b"").decode())
    text = units.decode("utf-16-be", "surrogatepass").encode("utf-8", "surrogatepass")
    return text.replace(b"\\", _BACKSLASH).replace(b'"', _QUOTE).ljust(len(escapes), _FILLER)


class Places:
    """One encoded JSON value, its plain ``text``, and what stands where in it.

    In ``text`` a zero byte stands for each quote around a string, so that nothing is found that begins in one string
    and ends in another. ``marked`` is the same, byte by byte, but in it only those quotes are quotes. Each method is
    asked for places in their order, so that all of them together take one pass. What is said of a value that is no
    UTF-8 may be wrong.
    """

    def __init__(self, raw: bytes) -> None:
        self._wide = _wide(raw)
        self.marked = self._wide.replace(_FILLER, b"")
        self.text = self.marked.translate(_TEXT)
        self._counted = 0  # up to here in the text
        self._quotes = 0  # so many have been seen
        self._known = 0  # this place of the text
        self._known_in_wide = 0  # is here

    def string_at(self, place: int) -> tuple[int, int] | None:
        """Where the string around a place begins and ends, without its quotes; None where the place is in none.
        Raises ValueError for a string that is not closed."""
        self._quotes += self.marked.count(b'"', self._counted, place)
        self._counted = place
        if self._quotes % 2 == 0 or self.marked[place] == ord('"'):
            return None
        end = self.marked.find(b'"', place)
        if end < 0:
            raise ValueError("not JSON: a string is not closed")
        return self.marked.rfind(b'"', 0, place) + 1, end

    def scalar_at(self, place: int, start: int) -> tuple[int, int] | None:
        """Where the number or word around a place outside of strings begins and ends; it begins at ``start`` or later,
        and so do its like in one run."""
        start = max(start, self.marked.rfind(b'"', start, place) + 1)
        for found in _SCALAR.finditer(self.marked, start):
            if found.end() > place:
                return found.span() if found.start() <= place else None
        return None

    def next_quote(self, place: int) -> int:
        """Where a string begins or ends at ``place`` or later; the text's end if none does."""
        at = self.marked.find(b'"', place)
        return len(self.marked) if at < 0 else at

    def is_key(self, end: int) -> bool:
        """Whether the string that ends there is a key."""
        return _COLON.match(self.marked, end + 1) is not None

    def decoded(self, start: int, end: int) -> str:
        """A piece of the text. Raises ValueError where it is no UTF-8."""
        return self.text[start:end].decode("utf-8", "surrogatepass")

    def in_value(self, place: int) -> int:
        """Where a place at or outside of a string's quotes is in the value."""
        at, missing = self._known_in_wide, place - self._known
        while missing:
            before, at = at, at + missing
            missing = self._wide.count(_FILLER, before, at)
        while self._wide.startswith(_FILLER, at):
            at += 1
        self._known, self._known_in_wide = place, at
        return at
