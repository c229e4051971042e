"""The typed face of google-re2. Owns how patterns are compiled; must never let a pattern of Python's ``re`` that can
backtrack near a peer's text.

Everything works on UTF-8 bytes with RE2's Latin-1 mode: a byte is a byte, whatever a peer sent, and offsets need no
translation. Time is linear in the text.
"""

from collections.abc import Sequence
from typing import Any, Protocol, cast

import re2

_MEMORY = 192 * 1024 * 1024  # a ceiling for the lazily built states, not what is used; below it RE2 never falls back


class Found(Protocol):
    """One match: byte offsets of the whole (group 0) and of its groups."""

    def start(self, group: int = 0) -> int: ...
    def end(self, group: int = 0) -> int: ...
    def group(self, group: int = 0) -> bytes: ...


class Pattern(Protocol):
    """A compiled pattern over bytes. ``pos``: where to begin; what lies before it stays visible to ``\\b``."""

    def search(self, text: bytes, pos: int = 0) -> Found | None: ...
    def fullmatch(self, text: bytes) -> Found | None: ...


class Which(Protocol):
    """Many patterns in one pass: the indexes of those that occur in the text."""

    def Match(self, text: bytes) -> list[int]: ...  # noqa: N802 - RE2's name


def _options() -> Any:
    module = cast(Any, re2)
    options = module.Options()
    options.encoding = module.Options.Encoding.LATIN1
    options.max_mem = _MEMORY
    options.log_errors = False
    return options


def compiled(pattern: str) -> Pattern:
    """Compile ``pattern`` (ASCII text of RE2's syntax, over bytes). Raises ValueError where RE2 refuses it."""
    module = cast(Any, re2)
    try:
        return cast(Pattern, module.compile(pattern.encode("latin-1"), _options()))
    except module.error as error:
        raise ValueError(f"pattern refused by RE2: {error}") from None


def which(patterns: Sequence[str]) -> Which:
    """One pass that says which of ``patterns`` occur."""
    module = cast(Any, re2)
    many = module.Set.SearchSet(_options())
    for pattern in patterns:
        many.Add(pattern.encode("latin-1"))
    many.Compile()
    return cast(Which, many)


def literal(raw: bytes) -> str:
    """A pattern that matches exactly these bytes."""
    return "".join(chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\x{byte:02x}" for byte in raw)
