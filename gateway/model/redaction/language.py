"""The small regular language that rules are written in. Owns its syntax tree and what is derived from it: the longest
match, and the pattern of every live prefix; must never meet a peer's text itself.

A rule's pattern uses literals, classes, groups, ``|``, ``?``, ``*``, ``+``, ``{m,n}``, ``\\b`` and ``(?i:...)``, all
with the meaning that RE2 gives them. From the tree comes the *live* pattern: what a text may end with while a match is
still possible. A stream holds that back.
"""

import math
import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Atom:
    """One byte out of a set: a literal or a class, as written."""

    text: str


@dataclass(frozen=True, slots=True)
class Edge:
    """Something of no width, such as ``\\b``."""

    text: str


@dataclass(frozen=True, slots=True)
class Series:
    """One after the other."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several."""

    options: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``node`` at least ``least`` and at most ``most`` times (None: without end)."""

    node: "Node"
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Group:
    """A group with its opening, such as ``(?:``, ``(?i:``, ``(`` or ``(?P<name>``."""

    opening: str
    node: "Node"


Node = Atom | Edge | Series | Choice | Repeat | Group

_EDGES = frozenset({"\\b", "\\B", "\\A", "\\z"})


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def choice(self) -> Node:
        options = [self.series()]
        while self.peek() == "|":
            self.at += 1
            options.append(self.series())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def series(self) -> Node:
        parts: list[Node] = []
        while self.peek() not in ("", "|", ")"):
            parts.append(self.repeated(self.single()))
        return parts[0] if len(parts) == 1 else Series(tuple(parts))

    def single(self) -> Node:
        char = self.peek()
        if char == "(":
            return self.group()
        if char == "[":
            return self.char_class()
        if char == "\\":
            length = 4 if self.text[self.at + 1] == "x" else 2
            text = self.text[self.at : self.at + length]
            self.at += length
            return Edge(text) if text in _EDGES else Atom(text)
        if char in "^$*+?{":
            raise ValueError(f"{char!r} is not part of the language of rules: {self.text}")
        self.at += 1
        return Atom(char)

    def group(self) -> Node:
        stop = self.at + 1
        if self.text.startswith("(?", self.at):
            closers = [i for i in (self.text.find(":", self.at), self.text.find(">", self.at)) if i >= 0]
            stop = min(closers) + 1
        opening = self.text[self.at : stop]
        self.at = stop
        node = self.choice()
        if self.peek() != ")":
            raise ValueError(f"a group is not closed: {self.text}")
        self.at += 1
        return Group(opening, node)

    def char_class(self) -> Node:
        stop = self.at + 1
        if self.text[stop] == "^":
            stop += 1
        if self.text[stop] == "]":
            stop += 1
        while self.text[stop] != "]":
            stop += 2 if self.text[stop] == "\\" else 1
        text = self.text[self.at : stop + 1]
        self.at = stop + 1
        return Atom(text)

    def repeated(self, node: Node) -> Node:
        least, most = 1, 1
        char = self.peek()
        if char and char in "?*+":
            least, most = {"?": (0, 1), "*": (0, None), "+": (1, None)}[char]
            self.at += 1
        elif char == "{":
            stop = self.text.index("}", self.at)
            low, comma, high = self.text[self.at + 1 : stop].partition(",")
            least = int(low)
            most = least if not comma else (int(high) if high else None)
            self.at = stop + 1
        else:
            return node
        return Repeat(node, least, most)


def parse(pattern: str) -> Node:
    """The tree of ``pattern``. Raises ValueError for what is not part of the language."""
    reader = _Reader(pattern)
    node = reader.choice()
    if reader.at != len(pattern):
        raise ValueError(f"not a pattern: {pattern}")
    return node


def longest(node: Node) -> float:
    """The most bytes that a match can have; ``math.inf`` without a bound."""
    match node:
        case Atom():
            return 1
        case Edge():
            return 0
        case Series(parts):
            return sum(longest(part) for part in parts)
        case Choice(options):
            return max(longest(option) for option in options)
        case Repeat(inner, _, most):
            return (math.inf if most is None else most) * longest(inner)
        case Group(_, inner):
            return longest(inner)


def written(node: Node) -> str:
    """The pattern again, with no capturing group."""
    match node:
        case Atom(text) | Edge(text):
            return text
        case Series(parts):
            return "".join(f"(?:{written(p)})" if isinstance(p, Choice) else written(p) for p in parts)
        case Choice(options):
            return "|".join(map(written, options))
        case Repeat(inner, least, most):
            bounds = f"{{{least},{'' if most is None else most}}}"
            return f"{written(inner) if isinstance(inner, Atom) else f'(?:{written(inner)})'}{bounds}"
        case Group(opening, inner):
            return f"{opening if opening.startswith('(?i') else '(?:'}{written(inner)})"


def live(node: Node) -> str | None:
    """A pattern of every text, not empty, that begins a match of ``node`` (whole matches too). None: there is none.

    Edges count as met, so the answer may be too wide and is never too narrow.
    """
    match node:
        case Atom(text):
            return text
        case Edge():
            return None
        case Choice(options):
            return "|".join(found for option in options if (found := live(option))) or None
        case Group(opening, inner):
            found = live(inner)
            return found and f"{opening if opening.startswith('(?i') else '(?:'}{found})"
        case Repeat(inner, _, most):
            return _live_repeat(inner, most)
        case Series(parts):
            found: str | None = None
            for part in reversed(parts):
                here = live(part)
                if here is None:
                    continue
                whole = f"(?:{written(part)})"
                found = f"(?:{here})" if found is None else f"(?:{here}|{whole}{found})"
            return found


def _live_repeat(inner: Node, most: int | None) -> str | None:
    if isinstance(inner, Atom):
        return f"{inner.text}{{1,{'' if most is None else most}}}"
    found = live(inner)
    before = "*" if most is None else f"{{0,{most - 1}}}"
    return found and f"(?:{written(inner)}){before}(?:{found})"


_TELLING: Final = 4  # fixed bytes from which on a pattern is rare by itself
_SOME: Final = 5  # counted bytes behind so many
_ENOUGH: Final = 10  # and behind fewer
_FEW: Final = 8  # members up to which a class counts as fixed


def _fixed(node: Node) -> int:
    """How many bytes of every match are one of a few."""
    match node:
        case Atom(text):
            few = len(text) == 1 or (text[0] == "\\" and text[1] not in "wWsSdD")
            return int(few or (text[0] == "[" and "-" not in text and len(text) <= _FEW + 2))
        case Edge():
            return 0
        case Group(_, inner):
            return _fixed(inner)
        case Choice(options):
            return min(map(_fixed, options))
        case Series(parts):
            return sum(map(_fixed, parts))
        case Repeat(inner, least, _):
            return least * _fixed(inner)


def gist(node: Node) -> Node:
    """A wider language with far fewer states: whatever holds a match of ``node`` holds one of its gist.

    Runs lose their counts. Only the last one keeps some, and where little of a match is fixed, so does one that a match
    begins with: many counts at once are what makes a joint automaton large, and slow on text that it has not met.
    """
    return _gist(node, _SOME if _fixed(node) >= _TELLING else _ENOUGH, first=True, last=True)


def relaxed(node: Node) -> Node:
    """The language without its counts: wider, for what is asked of every part of a stream."""
    return _gist(node, 1, first=False, last=False)


def _gist(node: Node, run: int, *, first: bool, last: bool) -> Node:
    match node:
        case Atom() | Edge():
            return node
        case Group(opening, inner):
            return Group(opening, _gist(inner, run, first=first, last=last))
        case Choice(options):
            return Choice(tuple(_gist(option, run, first=first, last=last) for option in options))
        case Series(parts):
            end = len(parts) - 1
            return Series(
                tuple(
                    _gist(part, run, first=first and at == 0, last=last and at == end) for at, part in enumerate(parts)
                )
            )
        case Repeat(inner, least, most):
            if (most is not None and most <= 2) or (isinstance(inner, Atom) and _fixed(inner)):
                return node
            fewer = min(least, run if last or (first and run == _ENOUGH) else 1)
            return Repeat(inner, fewer, fewer if isinstance(inner, Atom) and (first or last) else None)


def crosses(node: Node) -> bool:
    """Whether a match of ``node`` can have white space in it."""
    match node:
        case Atom(text):
            return re.match(f"{text}\\Z", " ") is not None or re.match(f"{text}\\Z", "\n") is not None
        case Edge():
            return False
        case Series(parts):
            return any(map(crosses, parts))
        case Choice(options):
            return any(map(crosses, options))
        case Repeat(inner) | Group(_, inner):
            return crosses(inner)
