"""Canaries: secrets of every kind, fresh for each place that they are put in, and the search for what is left of them.

A canary is one of a rule's examples with new random parts. What must not be left of it is a long random part; which
place and kind that belongs to is known, so a leak names its way in.
"""

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final
from urllib.parse import quote

from gateway.model.redaction import RULES, Rule
from gateway.model.redaction.places import plain
from gateway.model.redaction.samples import made

LEAST: Final = 10  # characters of a part from which on it is nobody else's by chance
_CHUNK = re.compile(rb"\r\n[0-9a-fA-F]{1,6}\r\n")
_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True)
class Canary:
    """``where`` it was put, what it is, the whole text, and what must not be left of it."""

    where: str
    kind: str
    text: str
    parts: tuple[str, ...]


class Canaries:
    """All that were made. ``known``: secrets by value, by their labels; they are the same at every place."""

    def __init__(self, known: Mapping[str, str], seed: int = 1) -> None:
        self._rng = Random(seed)
        self._known = dict(known)
        self._planted: dict[bytes, list[tuple[bytes, Canary]]] = {}  # by their first bytes
        for label, value in known.items():
            self._keep(Canary("anywhere", f"known: {label}", value, (value,)))

    def _keep(self, canary: Canary) -> Canary:
        for part in canary.parts:
            encoded = base64.b64encode(part.encode()).decode().rstrip("=")[:-2]
            for form in {part.encode(), quote(part, safe="").encode(), encoded.encode()}:
                self._planted.setdefault(form[:LEAST], []).append((form, canary))
        return canary

    def of(self, rule: Rule, where: str) -> Canary:
        """A new canary of one kind."""
        text, parts = made(rule.example, self._rng)
        return self._keep(Canary(where, rule.name, text, tuple(part for part in parts if len(part) >= LEAST)))

    def each(self, where: str, *, known: bool = True) -> list[Canary]:
        """A new canary of every kind, and the known secrets."""
        found = [self.of(rule, where) for rule in RULES]
        return (
            found
            if not known
            else found + [Canary(where, label, value, (value,)) for label, value in self._known.items()]
        )

    def text(self, where: str) -> str:
        """One of every kind, each on a line of its own, between two plain lines."""
        return "\n".join([f"begin of {where}", *(canary.text for canary in self.each(where)), f"end of {where}"])

    def lines(self, where: str, most: int, *, known: bool = True) -> list[str]:
        """One of every kind, in texts of at most ``most`` characters and one line each; longer ones are left out."""
        texts = [""]
        for canary in self.each(where, known=known):
            line = " ".join(canary.text.split("\n"))
            if len(texts[-1]) + len(line) >= most:
                texts.append("")
            if len(line) < most:
                texts[-1] += f"{line} "
        return [text.strip() for text in texts if text.strip()]

    def value(self, where: str) -> str:
        """A value that has no form of its own: a secret only because of the name that it stands under."""
        value = "".join(self._rng.choice("bcdfghjklmnpqrstvwxz") for _ in range(16))
        self._keep(Canary(where, "named value", value, (value,)))
        return value

    def found_in(self, output: bytes) -> list[str]:
        """What of them is in an output, in whatever encoding: ``kind, put in at place``; empty is as it should be."""
        seen: set[str] = set()
        for text in _readings(output):
            for at in range(len(text) - LEAST + 1):
                if (begin := text[at : at + LEAST]) in self._planted:
                    seen |= {
                        f"{canary.kind}, put in at {canary.where}"
                        for form, canary in self._planted[begin]
                        if text.startswith(form, at)
                    }
        return sorted(seen)


def _readings(output: bytes) -> Iterable[bytes]:
    """An output without the marks of chunks, and with its escapes undone once and twice; what has none stays."""
    whole = _CHUNK.sub(b"", output)
    once = plain(_ESCAPED.sub(lambda found: bytes([int(found.group(1), 16)]), whole))
    return {once, plain(once)}
