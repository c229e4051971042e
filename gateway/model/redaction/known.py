"""Secrets whose value we know, in every form that they may turn up in. Owns the forms; must never print a value.

Forms: as it is; JSON-escaped (once and twice, ASCII-only too); URL-encoded (both cases of hex, ``+`` for a space); hex;
Base64 and its URL alphabet at all three alignments, cut to the characters that the secret alone decides; and each line
of a value of several lines.
"""

import base64
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, quote_plus

SHORTEST: Final = 8
"""Characters below which a value is not taken for a secret (bridge 11)."""

_SHORTEST_LINE: Final = 16
_SHORTEST_BASE64: Final = 10
_FIRST: Final = 16  # bytes of a form that a stream looks for before it compares the rest
_NOT_IN_LABEL = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class KnownSecret:
    """A secret by its value. ``label``: what is written in its place; it must not tell the value."""

    value: str = field(repr=False)
    label: str


def _aligned(raw: bytes) -> Iterable[str]:
    """The parts of ``raw``'s Base64 that do not depend on what stands before or after it."""
    for before in range(3):
        text = base64.b64encode(b"\0" * before + raw).decode()
        start = (0, 2, 3)[before]
        stop = len(text) - (0, 3, 2)[(before + len(raw)) % 3]
        if stop - start >= _SHORTEST_BASE64:
            yield text[start:stop]
            yield text[start:stop].translate(str.maketrans("+/", "-_"))


def _escaped(value: str) -> Iterable[str]:
    for ascii_only in (False, True):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield json.dumps(once, ensure_ascii=ascii_only)[1:-1]
        yield once.replace("/", "\\/")


def _url_encoded(value: str) -> Iterable[str]:
    raw = value.encode("utf-8", "surrogatepass")
    for text in (quote(raw, safe=""), quote(raw, safe="/"), quote_plus(raw), quote(raw, safe="!*'()-._~")):
        yield text
        yield re.sub("%[0-9A-F]{2}", lambda found: found.group().lower(), text)


def forms(value: str) -> frozenset[bytes]:
    """Every form of one value, as UTF-8."""
    raw = value.encode("utf-8", "surrogatepass")
    texts = {value, *_escaped(value), *_url_encoded(value), *_aligned(raw), raw.hex(), raw.hex().upper()}
    return frozenset(text.encode("utf-8", "surrogatepass") for text in texts)


class KnownForms:
    """All forms of all known secrets, longest first, with the label of each. Immutable."""

    def __init__(self, known: Sequence[KnownSecret]) -> None:
        self.kinds: dict[bytes, str] = {}
        for secret in known:
            kind = _NOT_IN_LABEL.sub("-", secret.label) or "known-secret"
            value = secret.value.strip()
            lines = [line.strip() for line in value.splitlines()]
            for text in (value, *(line for line in lines if len(line) >= _SHORTEST_LINE and "-----" not in line)):
                if len(text) >= SHORTEST:
                    for form in forms(text):
                        self.kinds.setdefault(form, kind)
        self.ordered: tuple[bytes, ...] = tuple(sorted(self.kinds, key=lambda form: (-len(form), form)))
        self.longest = len(self.ordered[0]) if self.ordered else 0
        self._by_first: dict[bytes, list[bytes]] = {}
        for form in self.ordered:
            self._by_first.setdefault(form[:_FIRST], []).append(form)
        self._firsts = (
            re.compile(b"|".join(map(re.escape, sorted(self._by_first, reverse=True)))) if self.ordered else None
        )
        self._beginnings = frozenset(first[:n] for first in self._by_first for n in range(1, len(first)))

    def live_from(self, text: bytes, start: int) -> int:
        """Where the first form begins that ``text`` may be in the middle of at its end; ``len(text)`` when none is."""
        if self._firsts is None:
            return len(text)
        size = len(text)
        at = max(start, size - self.longest)
        while found := self._firsts.search(text, at):
            begin = found.start()
            rest = text[begin:]
            if any(form.startswith(rest) for first in self._matching(rest) for form in self._by_first[first]):
                return begin
            at = begin + 1
        for begin in range(max(start, size - _FIRST + 1), size):
            if text[begin:] in self._beginnings:
                return begin
        return size

    def _matching(self, rest: bytes) -> Iterable[bytes]:
        return (rest[:n] for n in range(1, _FIRST + 1) if rest[:n] in self._by_first)
