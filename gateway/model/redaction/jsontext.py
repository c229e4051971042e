"""Redaction inside encoded JSON. Owns the walk over the tokens; must never change a byte of what is not removed.

Numbers, key order, duplicate keys and escapes stay as they came: only the tokens of strings that lose something are
written anew.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from gateway.model.redaction.names import Strength, strength

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_KEY = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*+:', re.DOTALL)
_ESCAPED_UNIT = re.compile(rb"\\u([0-9a-fA-F]{4})")
_KEPT: Final = frozenset({b"true", b"false", b"null"})
_SCHEMA_TYPES: Final = frozenset(
    {b'"string"', b'"number"', b'"integer"', b'"boolean"', b'"object"', b'"array"', b'"null"'}
)
_SCHEMA_WORDS: Final = frozenset({b'"$ref"', b'"anyOf"', b'"oneOf"', b'"allOf"'})
_SCHEMA_VALUES: Final = frozenset({b'"default"', b'"const"', b'"enum"', b'"example"', b'"examples"'})
_LOOK_AHEAD: Final = 256  # tokens of an object that are looked at to tell a schema from a value


class RedactionCollision(Exception):
    """Two keys of one object would become one. Says nothing about the keys."""

    def __init__(self) -> None:
        super().__init__("two keys of one object are the same after redaction")


def plain(raw: bytes) -> bytes:
    """``raw`` with the escapes of its strings undone, to look for what may be in it; no longer JSON."""
    if b"\\" not in raw:
        return raw
    text = raw.replace(b"\\\\", b"\x01")
    for escape, char in ((b'\\"', b'"'), (b"\\/", b"/"), (b"\\n", b"\n"), (b"\\t", b"\t"), (b"\\r", b"\r")):
        text = text.replace(escape, char)
    text = text.replace(b"\\b", b"\b").replace(b"\\f", b"\f")
    if b"\\u" in text:
        text = _ESCAPED_UNIT.sub(_unit, text)
    return text.replace(b"\x01", b"\\")


def _unit(found: re.Match[bytes]) -> bytes:
    return chr(int(found.group(1), 16)).encode("utf-8", "surrogatepass")


def has_credential_key(raw: bytes) -> bool:
    """Whether any key of ``raw`` is credential-like."""
    return any(_strength(found.group(1)) for found in _KEY.finditer(raw))


def _strength(key: bytes) -> Strength:
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
    """One pass over one JSON value.

    ``text``: redacts a decoded string. ``starts``: where in the raw bytes a match may begin, in order. ``by_name``:
    whether values under credential-like keys go too. ``named``: what is written in their place.
    """

    def __init__(
        self,
        raw: bytes,
        *,
        text: Callable[[str], str],
        starts: Sequence[int],
        by_name: bool,
        named: Callable[[], bytes],
    ) -> None:
        self._raw = raw
        self._text = text
        self._starts = starts
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
                word = raw[start:end]
                value = raw[slice(*tokens[at + 2])]
                if word in _SCHEMA_WORDS or (word == b'"type"' and (value in _SCHEMA_TYPES or value == b"[")):
                    return True
        return False

    def _key(self, frame: _Frame, token: bytes, start: int) -> bytes:
        new = self._redacted(token, start)
        frame.keys.append((token, new))
        frame.changed = frame.changed or new is not token
        if self._by_name:
            frame.reach = _strength(token[1:-1])
            if frame.schema and token in _SCHEMA_VALUES:
                frame.reach = Strength.ALL
        return new

    def _value(self, frame: _Frame, token: bytes, start: int) -> bytes:
        if frame.removed or frame.reach:
            if token in _KEPT or token == b'""' or token.startswith(b'"[redacted:'):
                return token
            return self._named()
        return self._redacted(token, start)

    def _redacted(self, token: bytes, start: int) -> bytes:
        if b"\\" in token:
            old = str(json.loads(token))
        else:
            at = bisect_left(self._starts, start)
            if at == len(self._starts) or self._starts[at] >= start + len(token):
                return token
            old = token.decode("utf-8", "surrogatepass").strip('"')
        new = self._text(old)
        return token if new == old else _encoded(new)


def _check(frame: _Frame) -> None:
    if not frame.changed:
        return
    before = {json.loads(old) for old, _ in frame.keys}
    after = {json.loads(new) for _, new in frame.keys}
    if len(before) != len(after):
        raise RedactionCollision
