"""Redaction inside encoded JSON. Owns the walk over the tokens; must never change a byte of what is not removed.

Numbers, key order, duplicate keys and escapes stay as they came: only the tokens of strings that lose something are
written anew.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from gateway.model.redaction.names import Strength, strength
from gateway.model.redaction.places import Places

# It finds a lone quote too: without it, a string that is never closed would be tried from each of its quotes.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]+|"', re.DOTALL)
_SCALAR = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|([^\s{}\[\],:"]{8,})|"', re.DOTALL)
_KEPT: Final = frozenset({b"true", b"false", b"null"})
_SCHEMA_TYPES: Final = frozenset(
    {b'"string"', b'"number"', b'"integer"', b'"boolean"', b'"object"', b'"array"', b'"null"'}
)
_SCHEMA_LISTS: Final = frozenset({b'"anyOf"', b'"oneOf"', b'"allOf"'})
_SCHEMA_VALUES: Final = frozenset({b'"default"', b'"const"', b'"enum"', b'"example"', b'"examples"'})
_LOOK_AHEAD: Final = 256  # tokens of an object that are looked at to tell a schema from a value


class RedactionCollision(Exception):
    """Two keys of one object would become one. Says nothing about the keys."""

    def __init__(self) -> None:
        super().__init__("two keys of one object are the same after redaction")


@dataclass(slots=True)
class Look:
    """What the strings of one JSON value need: ``new`` tokens by where the old ones begin, whether a key is among them,
    and whether any key is credential-like."""

    new: dict[int, bytes]
    key_changed: bool = False
    named: bool = False


def look(places: Places, text: Callable[[str], str], marks: Iterable[int]) -> Look:
    """Look for the strings that need work. ``marks``: where in the plain text a match or a credential-like key may
    begin; only strings with one of them inside are decoded. Raises ValueError for a string that is not closed."""
    seen = Look({})
    reached = 0  # in the plain text: up to here all is done
    for mark in sorted(marks):
        if mark >= reached and (found := places.string_at(mark)):
            _renew(seen, found, text)
            reached = places.end_of(found)
    return seen


def _renew(seen: Look, found: re.Match[bytes], text: Callable[[str], str]) -> None:
    inside = found.group(1)
    is_key = found.end(2) >= 0
    seen.named = seen.named or (is_key and strength_of(inside) is not Strength.NONE)
    old = str(json.loads(b'"' + inside + b'"')) if b"\\" in inside else inside.decode("utf-8", "surrogatepass")
    new = text(old)
    if new != old:
        seen.new[found.start()] = _encoded(new)
        seen.key_changed = seen.key_changed or is_key


def look_at_scalars(raw: bytes, text: Callable[[str], str], seen: Look) -> None:
    """A known secret may stand as a number: it becomes a string."""
    for found in _SCALAR.finditer(raw):
        if found.start(1) >= 0:
            old = found.group(1).decode("utf-8", "surrogatepass")
            new = text(old)
            if new != old:
                seen.new[found.start(1)] = _encoded(new)


def spliced(raw: bytes, new: dict[int, bytes]) -> bytes:
    """``raw`` with new tokens in the places of old ones."""
    pieces: list[bytes] = []
    copied = 0
    for start in sorted(new):
        found = _TOKEN.match(raw, start)
        pieces += (raw[copied:start], new[start])
        copied = found.end() if found else start
    return b"".join((*pieces, raw[copied:]))


def strength_of(key: bytes) -> Strength:
    """The strength of an encoded key, without its quotes."""
    if b"\\" in key:
        return strength(str(json.loads(b'"' + key + b'"')))
    return strength(key.decode("utf-8", "surrogatepass"))


def _encoded(text: str) -> bytes:
    try:
        return json.dumps(text, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate can only be written as an escape
        return json.dumps(text).encode()


class _Frame:
    """An open container: whether all under it is removed, whether it is a schema, and its keys."""

    __slots__ = ("changed", "is_object", "keys", "reach", "removed", "schema")

    def __init__(self, is_object: bool, *, removed: bool, schema: bool) -> None:
        self.is_object = is_object
        self.removed = removed
        self.schema = schema
        self.reach = Strength.NONE
        self.keys: list[tuple[bytes, bytes]] = []
        self.changed = False


class Walk:
    """One pass over the tokens of one JSON value, for what needs its structure.

    ``new``: new tokens by where the old ones begin. ``by_name``: whether values under credential-like keys go too.
    ``named``: what is written in their place.
    """

    def __init__(self, raw: bytes, *, new: dict[int, bytes], by_name: bool, named: Callable[[], bytes]) -> None:
        self._raw = raw
        self._new = new
        self._by_name = by_name
        self._named = named

    def run(self) -> bytes:
        """The redacted value; the very same bytes where nothing goes. Raises ``RedactionCollision``, and ValueError
        for what is not JSON."""
        raw = self._raw
        tokens = self._tokens()
        stack: list[_Frame] = [_Frame(False, removed=False, schema=False)]
        pieces: list[bytes] = []
        copied = 0
        at_key = False
        for index, (start, end) in enumerate(tokens):
            first = raw[start]
            frame = stack[-1]
            if first in b"{[":
                stack.append(self._entered(frame, first == 123, tokens, index))
                at_key = first == 123
            elif first in b"}]":
                if len(stack) == 1:
                    raise ValueError("not JSON: a bracket too many")
                _check(stack.pop())
                at_key = False
            elif first == 44:
                at_key = frame.is_object
                frame.reach = Strength.NONE
            elif first == 58:
                at_key = False
            else:
                token = raw[start:end]
                new = self._key(frame, token, start) if at_key else self._value(frame, token, start)
                if new is not token:
                    pieces += (raw[copied:start], new)
                    copied = end
        if len(stack) != 1:
            raise ValueError("not JSON: a container is not closed")
        return b"".join((*pieces, raw[copied:])) if pieces else raw

    def _tokens(self) -> list[tuple[int, int]]:
        raw, spans, reached = self._raw, list[tuple[int, int]](), 0
        for found in _TOKEN.finditer(raw):
            span = found.span()
            if found.group() == b'"':
                break
            if span[0] != reached and raw[reached : span[0]].strip(b" \t\r\n"):
                break
            spans.append(span)
            reached = span[1]
        if raw[reached:].strip(b" \t\r\n"):
            raise ValueError("not JSON: a string is not closed")
        return spans

    def _entered(self, frame: _Frame, is_object: bool, tokens: list[tuple[int, int]], index: int) -> _Frame:
        removed = frame.removed or frame.reach is Strength.ALL
        if is_object and frame.reach is Strength.ALL and not frame.removed and self._is_schema(tokens, index):
            return _Frame(True, removed=False, schema=True)
        return _Frame(is_object, removed=removed, schema=False)

    def _is_schema(self, tokens: list[tuple[int, int]], index: int) -> bool:
        """A property that is called ``password`` has a schema, not a value."""
        raw, depth = self._raw, 0
        for at in range(index, min(index + _LOOK_AHEAD, len(tokens) - 2)):
            start, end = tokens[at]
            first = raw[start]
            if first in b"{[":
                depth += 1
            elif first in b"}]":
                depth -= 1
                if depth == 0:
                    return False
            elif depth == 1 and raw[tokens[at + 1][0]] == 58:
                values = [raw[slice(*token)] for token in tokens[at + 2 : at + 4]]
                if _of_schema(raw[start:end], values):
                    return True
        return False

    def _key(self, frame: _Frame, token: bytes, start: int) -> bytes:
        new = self._new.get(start, token)
        frame.keys.append((token, new))
        frame.changed = frame.changed or new is not token
        if self._by_name:
            frame.reach = strength_of(token[1:-1])
            if frame.schema and token in _SCHEMA_VALUES:
                frame.reach = Strength.ALL
        return new

    def _value(self, frame: _Frame, token: bytes, start: int) -> bytes:
        if frame.removed or frame.reach:
            if token in _KEPT or token == b'""' or token.startswith(b'"[redacted:'):
                return token
            return self._named()
        return self._new.get(start, token)


def _of_schema(word: bytes, values: list[bytes]) -> bool:
    """Whether a key with what follows it, at most two tokens, can only be a schema's: a name alone proves nothing."""
    first, second = [*values, b"", b""][:2]
    if word == b'"type"':
        return (second if first == b"[" else first) in _SCHEMA_TYPES
    return first == b"[" if word in _SCHEMA_LISTS else word == b'"$ref"' and first.startswith(b'"#')


def _check(frame: _Frame) -> None:
    if not frame.changed:
        return
    before = {json.loads(old) for old, _ in frame.keys}
    after = {json.loads(new) for _, new in frame.keys}
    if len(before) != len(after):
        raise RedactionCollision
