"""Where secrets are in a text. Owns the compiled rules and the spans that they find; must never write a text itself.

What is found does not depend on how the text was searched: a byte is removed if and only if some rule's head matches
somewhere so that the byte lies in its value or tail. That makes a stream's output independent of its splits.
"""

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from gateway.model.redaction import language
from gateway.model.redaction.known import KnownForms
from gateway.model.redaction.names import NAMED, NAMED_KEY, strength
from gateway.model.redaction.pattern import LARGE, Found, Pattern, Which, literal, which
from gateway.model.redaction.places import Places
from gateway.model.redaction.rule import EDGE, HEAD_BYTES, Rule, Tail
from gateway.model.redaction.rules import RULES
from gateway.model.redaction.shapes_general import NAME

_TAILS: Final = {
    tail: re.compile(tail.value.encode() + b"*") for tail in Tail if tail not in (Tail.NONE, Tail.PEM)
}  # one class, starred: linear in ``re`` too, and quicker to enter
_PEM_STOP = re.compile(rb"-{4,5} ?END[ A-Z0-9]{0,60}-{4,5}|[^A-Za-z0-9+/=\s\\:,.()\-]")
_PEM_BACK: Final = 80  # longer than an END line

_NAME_GROUP: Final = "(?P<name>"

_NAME_END: Final = r"[A-Za-z0-9_\-]{0,32}"

_NAME_BACK: Final = 48  # bytes of a name before its stem
_NAME_BYTES: Final = f"{string.ascii_letters}{string.digits}_-".encode()
_NAME_FROM_STEM = re.compile(f"{NAMED}{_NAME_END}".encode())

_TOO_MANY: Final = "too many known secrets to look for at once, or too long ones"

_KEY: Final = rf'{NAMED_KEY}[^"]*"\s*:'


@dataclass(slots=True)
class Span:
    """What one rule removes: ``start`` to ``end``. ``open``: the text ended before its tail did. Of spans that
    begin at one place, the one of least ``rank`` names the kind."""

    start: int
    end: int
    kind: str
    rank: int
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


def by_place(span: Span) -> tuple[int, int]:
    """The order of spans."""
    return span.start, span.rank


def _name(text: bytes, found: Found, group: int = 1) -> str:
    return text[slice(*found[group])].decode("latin-1")


def _places_of(pattern: Pattern, places: Places) -> Iterator[int]:
    """Where a pattern matches; at most one place in a string, which is enough to look through all of it."""
    at = 0
    while found := pattern.search(places.text, at):
        begin = found[0][0]
        yield begin
        at = places.next_quote(begin + 1)


class _Finder:
    """One rule, compiled."""

    __slots__ = ("_kind", "_rank", "_tail", "_unless", "_value", "named", "pattern")

    def __init__(self, rank: int, rule: Rule) -> None:
        self._rank = rank
        self._kind = rule.name
        self.pattern = Pattern(rule.head)
        self.named = _NAME_GROUP in rule.lead
        self._value = 2 if self.named else 1
        self._tail = rule.tail
        self._unless: Pattern | None = Pattern(f"(?s:{rule.unless})") if rule.unless else None

    def spans(self, text: bytes, at: int, limit: int) -> Iterator[Span]:
        reached, reached_open = 0, False
        while found := self.pattern.search(text, at):
            begin, stop = found[0]
            if begin >= limit:
                return
            at = begin + 1
            if self.named and not strength(_name(text, found)):
                continue
            start, end = found[self._value]
            if self._unless and self._unless.fullmatch(text[start:stop]):
                continue
            span = Span(start, end, self._kind, self._rank, self._tail, end, False)
            if self._tail is not Tail.NONE:
                if start < end <= reached:  # inside what this rule's last tail ran over: it ends where that one ended
                    span.end, span.open = reached, reached_open
                else:
                    span.grow(text)
                    reached, reached_open = span.end, span.open
            yield span


@cache
def _finders() -> tuple[_Finder, ...]:
    return tuple(_Finder(rank, rule) for rank, rule in enumerate(RULES))


@cache
def _unnamed() -> Pattern:
    """The gates of all rules without a name at once: one pass where many kinds are in one text."""
    return Pattern(
        "|".join(gate for gate, rule in zip(_gates(), RULES, strict=True) if _NAME_GROUP not in rule.lead), LARGE
    )


@cache
def _named() -> Pattern:
    """All heads with a name at once, from the stem of the name on."""
    parts = [f"{NAMED}{_NAME_END}{behind}" for rule in RULES if (behind := _behind_name(rule))]
    return Pattern("|".join(language.written(language.gist(language.parse(part))) for part in parts), LARGE)


def _behind_name(rule: Rule) -> str:
    """What stands behind a rule's name, with the value; empty for a rule without a name."""
    _, name, behind = rule.lead.partition(NAME)
    return f"{behind}(?:{rule.value})" if name else ""


def _named_places(places: Places) -> Iterator[int]:
    pattern, text, at = _named(), places.text, 0
    while found := pattern.search(text, at):
        start = found[0][0]
        name = _NAME_FROM_STEM.match(text, start)
        at = name.end() if name else start + 1
        before = text[max(0, start - _NAME_BACK) : start]
        if strength(text[start - len(before) + len(before.rstrip(_NAME_BYTES)) : at].decode("latin-1")):
            yield start
            at = places.next_quote(start + 1)


@cache
def _gates() -> tuple[str, ...]:
    heads = (
        f"{NAMED}{_NAME_END}{behind}" if (behind := _behind_name(rule)) else f"{rule.lead}(?:{rule.value})"
        for rule in RULES
    )
    return tuple(language.written(language.gist(language.parse(head))) for head in heads)


@cache
def _unnamed_gate() -> tuple[Which, tuple[int, ...]]:
    """The gates of all rules without a name, and the index of each. Apart from the others: all in one automaton would
    be one pass and, on text that it has not met, five times as slow."""
    group = [at for at, rule in enumerate(RULES) if _NAME_GROUP not in rule.lead]
    return which([_gates()[at] for at in group]), tuple(at + 1 for at in group)


@cache
def _live_unnamed() -> Pattern:
    """What a text ends with while a rule without a name may still match there, with white space in between."""
    trees = [language.parse(rule.head) for rule in RULES if _NAME_GROUP not in rule.lead]
    parts = [language.live(language.relaxed(tree)) for tree in trees if language.crosses(tree)]
    return Pattern(f"(?:{'|'.join(part for part in parts if part)})\\z", LARGE)


@cache
def _live_named() -> tuple[Pattern, int]:
    """The same for rules with a name, and how many groups there are. Any name counts here; ``strength`` decides."""
    parts: list[str] = []
    for rule in RULES:
        before, group, behind = rule.lead.partition(NAME)
        if group:
            edge = EDGE if rule.edge else ""
            rest = language.live(language.relaxed(language.parse(f"{behind}(?:{rule.value}){rule.follow}")))
            parts.append(f"{edge}{before}([A-Za-z0-9_\\-]{{1,128}})(?:{rest})")
    return Pattern(f"(?:{'|'.join(parts)})\\z", LARGE), len(parts)


def _last_word(text: bytes, start: int) -> int:
    """Where the last run without white space begins."""
    return max(start, *(text.rfind(space, start) + 1 for space in (b" ", b"\n", b"\t", b"\r", b"\f", b"\v")))


def _rules_live_from(text: bytes, start: int) -> int:
    """Where a head begins that the end of ``text`` may be in the middle of.

    A head without white space lies in the last word; of those with white space the prefixes are looked for.
    """
    live = _last_word(text, start)
    found = _live_unnamed().search(text, start)
    if found:
        live = min(live, found[0][0])
    pattern, names = _live_named()
    at = start
    while (found := pattern.search(text, at)) and found[0][0] < live:
        begin = found[0][0]
        if any(strength(_name(text, found, group)) for group in range(1, names + 1) if found[group][0] >= 0):
            return begin
        at = begin + 1
    return live


class Scanner:
    """All rules and all known secrets. Immutable; one for all sessions of a process."""

    def __init__(self, forms: KnownForms) -> None:
        self._forms = forms
        known = "|".join(map(literal, forms.ordered))
        try:
            self._known = Pattern(known) if known else None
        except ValueError:
            raise ValueError(_TOO_MANY) from None
        self._keys = Pattern(_KEY)
        named = [at for at, rule in enumerate(RULES) if _NAME_GROUP in rule.lead]
        first = which([known or r"\x00\x00\z", *(_gates()[at] for at in named)])
        self._gates = ((first, (0, *(at + 1 for at in named))), _unnamed_gate())
        if not self.gate(b"password=a"):  # the binding does not say when patterns do not fit into its memory
            raise ValueError(_TOO_MANY)
        for compiled in (_finders, _unnamed, _named):  # now, not when the first peer waits for it
            compiled()

    def gate(self, text: bytes) -> list[int]:
        """What may be in ``text``: 0 a known secret, 1... a rule. Never too little."""
        fired: list[int] = []
        for gate, indexes in self._gates:
            if found := gate.Match(text):
                fired += [indexes[at] for at in found]
        return fired

    def marks(self, places: Places) -> list[int]:
        """Places inside of whatever any rule or known secret may match, in order; at least one for each string in which
        something has to go, and more."""
        found = [*_places_of(_unnamed(), places), *_named_places(places)]
        if self._known:
            found += [span.start for span in self._known_spans(places.text, 0, len(places.text))]
        return sorted(found)

    def keys(self, places: Places) -> list[tuple[int, int]]:
        """Keys with a credential-like word in them, in order: a place inside, and the one behind the colon."""
        keys: list[tuple[int, int]] = []
        at = 0
        while found := self._keys.search(places.marked, at):
            keys.append(found[0])
            at = found[0][1]
        return keys

    def spans(self, text: bytes, fired: Sequence[int], at: int, limit: int) -> list[Span]:
        """The spans of all matches whose heads begin in ``at``..``limit`` (exclusive), in order."""
        found: list[Span] = []
        for index in fired:
            if index > 0:
                found.extend(_finders()[index - 1].spans(text, at, limit))
            else:
                found.extend(self._known_spans(text, at, limit))
        found.sort(key=by_place)
        return found

    def live_from(self, text: bytes, start: int) -> int:
        """Where the first match begins that may reach the end of ``text`` or go on behind it."""
        at = max(start, len(text) - HEAD_BYTES)
        return min(_rules_live_from(text, at), self._forms.live_from(text, start))

    def _known_spans(self, text: bytes, at: int, limit: int) -> Iterator[Span]:
        while self._known and (found := self._known.search(text, at)):
            begin, end = found[0]
            if begin >= limit:
                return
            at = begin + 1
            yield Span(begin, end, self._forms.kinds[text[begin:end]], -1, Tail.NONE, end, False)
