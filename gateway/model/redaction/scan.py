"""Where secrets are in a text. Owns the compiled rules and the spans that they find; must never write a text itself.

What is found does not depend on how the text was searched: a byte is removed if and only if some rule's head matches
somewhere so that the byte lies in its value or tail. That makes a stream's output independent of its splits.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from gateway.model.redaction import language
from gateway.model.redaction.known import KnownForms
from gateway.model.redaction.names import NAMED, Strength, strength
from gateway.model.redaction.pattern import Pattern, compiled, literal, which
from gateway.model.redaction.rule import HEAD_BYTES, Rule, Tail
from gateway.model.redaction.rules import RULES

_TAILS: Final = {
    tail: re.compile(tail.value.encode() + b"*") for tail in Tail if tail not in (Tail.NONE, Tail.PEM)
}  # one class, starred: linear in ``re`` too, and quicker to enter
_PEM_STOP = re.compile(rb"-{4,5} ?END[ A-Z0-9]{0,60}-{4,5}|[^A-Za-z0-9+/=\s\\:,.()\-]")
_PEM_BACK: Final = 80  # longer than an END line

KEY_GATE: Final = rf'{NAMED}[^"\\]{{0,64}}"\s*:'


@dataclass(slots=True)
class Span:
    """What one rule removes: ``start`` to ``end``. ``open``: the text ended before its tail did."""

    start: int
    end: int
    kind: str
    tail: Tail
    body: int
    open: bool

    def grow(self, text: bytes) -> None:
        """Let an open tail go on in ``text``, which now is longer."""
        if self.tail is Tail.PEM:
            found = _PEM_STOP.search(text, max(self.body, self.end - _PEM_BACK))
            if found is None or (found.end() == len(text) and found.group()[:1] == b"-"):
                self.end, self.open = len(text), True
            else:
                self.end, self.open = found.end() if found.group()[:1] == b"-" else found.start(), False
            return
        found = _TAILS[self.tail].match(text, self.end)
        self.end = found.end() if found else self.end
        self.open = self.end == len(text)

    def moved(self, by: int) -> None:
        """Count from ``by`` bytes further on."""
        self.start -= by
        self.end -= by
        self.body -= by


class _Finder:
    """One rule, compiled."""

    __slots__ = ("_kind", "_name", "_pattern", "_tail", "_unless", "_value")

    def __init__(self, rule: Rule) -> None:
        self._kind = rule.name
        self._pattern = compiled(rule.head)
        self._name = 1 if "(?P<name>" in rule.head else 0
        self._value = self._name + 1
        self._tail = rule.tail
        self._unless: Pattern | None = compiled(f"(?s:{rule.unless})") if rule.unless else None

    def starts(self, text: bytes) -> Iterator[int]:
        at = 0
        while found := self._pattern.search(text, at):
            at = found.start() + 1
            yield found.start()

    def spans(self, text: bytes, at: int, limit: int) -> Iterator[Span]:
        reached, reached_open = 0, False
        while found := self._pattern.search(text, at):
            begin = found.start()
            if begin >= limit:
                return
            at = begin + 1
            if self._name and strength(found.group(1).decode("latin-1")) is Strength.NONE:
                continue
            start, end = found.start(self._value), found.end(self._value)
            if self._unless and self._unless.fullmatch(text[start : found.end()]):
                continue
            span = Span(start, end, self._kind, self._tail, end, False)
            if self._tail is not Tail.NONE:
                if start < end <= reached:  # inside what this rule's last tail ran over: it ends where that one ended
                    span.end, span.open = reached, reached_open
                else:
                    span.grow(text)
                    reached, reached_open = span.end, span.open
            yield span


@cache
def _finders() -> tuple[_Finder, ...]:
    return tuple(map(_Finder, RULES))


@cache
def _gates() -> tuple[str, ...]:
    return tuple(language.written(language.parse(f"{rule.lead}(?:{rule.value})")) for rule in RULES)


@cache
def live_pattern() -> Pattern:
    """What a text ends with while a rule may still match there."""
    parts = (language.live(language.relaxed(language.parse(rule.head))) for rule in RULES)
    return compiled(f"(?:{'|'.join(part for part in parts if part)})\\z")


class Scanner:
    """All rules and all known secrets. Immutable; one for all sessions of a process."""

    def __init__(self, forms: KnownForms) -> None:
        self._forms = forms
        known = "|".join(map(literal, forms.ordered))
        self._known = compiled(known) if known else None
        self._gate = which([known or r"\x00\x00\z", KEY_GATE, *_gates()])

    def gate(self, text: bytes) -> list[int]:
        """What may be in ``text``: 0 a known secret, 1 a credential-like JSON key, 2... a rule. Never too little."""
        return self._gate.Match(text)

    def starts(self, text: bytes, fired: Iterable[int]) -> list[int]:
        """Where a match of any of ``fired`` begins, in order; more than there are secrets."""
        begins: set[int] = set()
        for index in fired:
            if index >= 2:
                begins.update(_finders()[index - 2].starts(text))
            elif index == 0:
                begins.update(span.start for span in self._known_spans(text, 0, len(text)))
        return sorted(begins)

    def spans(self, text: bytes, fired: Sequence[int], at: int, limit: int) -> list[Span]:
        """The spans of all matches whose heads begin in ``at``..``limit`` (exclusive), in order."""
        found: list[Span] = []
        for index in fired:
            if index >= 2:
                found.extend(_finders()[index - 2].spans(text, at, limit))
            elif index == 0:
                found.extend(self._known_spans(text, at, limit))
        found.sort(key=_order)
        return found

    def live_from(self, text: bytes, start: int) -> int:
        """Where the first match begins that may reach the end of ``text`` or go on behind it."""
        found = live_pattern().search(text, max(start, len(text) - HEAD_BYTES))
        return min(found.start() if found else len(text), self._forms.live_from(text, start))

    def _known_spans(self, text: bytes, at: int, limit: int) -> Iterator[Span]:
        while self._known and (found := self._known.search(text, at)):
            begin, end = found.start(), found.end()
            if begin >= limit:
                return
            at = begin + 1
            yield Span(begin, end, self._forms.kinds[found.group()], Tail.NONE, end, False)


def _order(span: Span) -> int:
    return span.start
