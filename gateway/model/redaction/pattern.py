"""The typed face of google-re2. Owns how patterns are compiled; must never let a pattern of Python's ``re`` that can
backtrack near a peer's text.

Everything works on UTF-8 bytes with RE2's Latin-1 mode: a byte is a byte, whatever a peer sent, and offsets need no
translation. Time is linear in the text. Matches come from the binding itself: the package's match objects cost three
times the search.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

import re2

_MEMORY: Final = 16 * 1024 * 1024  # a ceiling for one pattern's program and states, which are built as texts need them
LARGE: Final = 64 * 1024 * 1024  # the same for many patterns in one; when it is full, states are built anew
_RE2: Final = cast(Any, re2)
_ANYWHERE: Final = _RE2._Anchor.UNANCHORED
_WHOLE: Final = _RE2._Anchor.ANCHOR_BOTH
_NOWHERE: Final = -1

Found = list[tuple[int, int]]
"""One match: the spans of the whole and of its groups; -1, -1 for a group that took no part."""


class Which(Protocol):
    """Many patterns in one pass: the indexes of those that occur in the text."""

    def Match(self, text: bytes) -> list[int] | None: ...  # noqa: N802 - RE2's name


def _options(memory: int) -> Any:
    options = _RE2.Options()
    options.encoding = _RE2.Options.Encoding.LATIN1
    options.max_mem = memory
    options.log_errors = False
    return options


class Pattern:
    """One compiled pattern over bytes. Raises ValueError for what RE2 refuses."""

    __slots__ = ("_match",)

    def __init__(self, pattern: str, memory: int = _MEMORY) -> None:
        expression = _RE2._re2.RE2(pattern.encode("latin-1"), _options(memory))
        if not expression.ok():
            raise ValueError(f"pattern refused by RE2: {expression.error()}")
        self._match = expression.Match

    def search(self, text: bytes, pos: int = 0) -> Found | None:
        """The leftmost match at or after ``pos``; what lies before ``pos`` stays visible to ``\\b``."""
        spans = cast(Found, self._match(_ANYWHERE, text, pos, len(text)))
        return None if spans[0][0] == _NOWHERE else spans

    def fullmatch(self, text: bytes) -> bool:
        """Whether the whole text matches."""
        return bool(self._match(_WHOLE, text, 0, len(text))[0][0] != _NOWHERE)


def which(patterns: Sequence[str]) -> Which:
    """One pass that says which of ``patterns`` occur."""
    many = _RE2.Set.SearchSet(_options(LARGE))
    for pattern in patterns:
        many.Add(pattern.encode("latin-1"))
    many.Compile()
    return cast(Which, many)


def literal(raw: bytes) -> str:
    """A pattern that matches exactly these bytes."""
    return "".join(chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\x{byte:02x}" for byte in raw)
