"""Values under credential-like keys. Owns what goes because of its name; must never look into a value for a secret.

Only what stands behind such a key is walked over, once, and only where it is an object or an array.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from gateway.model.redaction.jsontext import Changes
from gateway.model.redaction.names import Strength, strength
from gateway.model.redaction.places import Places

# Over ``Places.marked``, where a string's own quotes are none. A lone quote is a token too: without that, a string that
# is never closed would be tried again and again.
_TOKEN = re.compile(rb'"[^"]*+"|[{}\[\],:]|[^\s{}\[\],:"]++|"')
_OPEN: Final = (b"{", b"[")
_CLOSE: Final = (b"}", b"]")
_KEPT = re.compile(rb'true|false|null|""|"\[redacted:[A-Za-z0-9_.\-]++\]"')
_SCHEMA_TYPES: Final = frozenset(
    {b'"string"', b'"number"', b'"integer"', b'"boolean"', b'"object"', b'"array"', b'"null"'}
)
_SCHEMA_LISTS: Final = frozenset({b'"anyOf"', b'"oneOf"', b'"allOf"'})
_SCHEMA_VALUES: Final = frozenset({b'"default"', b'"const"', b'"enum"', b'"example"', b'"examples"'})
_LOOK_AHEAD: Final = 256  # of an object's tokens that are looked at to tell a schema from a value


class _Frame:
    """An open container: whether all under it goes, and whether it is a schema. ``reach``: of its last key."""

    __slots__ = ("is_object", "reach", "removed", "schema")

    def __init__(self, is_object: bool, *, removed: bool, schema: bool) -> None:
        self.is_object = is_object
        self.removed = removed
        self.schema = schema
        self.reach = Strength.NONE


class NamedValues:
    """What goes in one JSON value. ``placeholder``: gives what is written in a value's place, once for each."""

    def __init__(self, places: Places, placeholder: Callable[[], bytes], changes: Changes) -> None:
        self._places = places
        self._marked = places.marked
        self._placeholder = placeholder
        self._changes = changes

    def remove(self, keys: Iterable[tuple[int, int]]) -> None:
        """``keys``: for each that may be credential-like a place inside of it and the one behind its colon, in order.
        Raises ValueError where a container is not closed."""
        reached = 0
        for inside, behind in keys:
            if inside >= reached and (reach := self._strength(inside, behind)):
                value = _TOKEN.search(self._marked, behind)
                if value is None:
                    raise ValueError("not JSON: a key has no value")
                reached = value.end()
                if value.group() not in _OPEN:
                    self._value(value)
                elif reach is Strength.ALL:
                    reached = self._container(value.start())

    def _strength(self, inside: int, behind: int) -> Strength:
        start = self._marked.rfind(b'"', 0, inside) + 1
        return strength(self._places.decoded(start, self._marked.rfind(b'"', start, behind)))

    def _container(self, start: int) -> int:
        """Go through all under a credential-like key; where it ends."""
        stack = [self._opened(start)]
        at_key = stack[-1].is_object
        for found in _TOKEN.finditer(self._marked, start + 1):
            token, frame = found.group(), stack[-1]
            if token in _OPEN:
                all_of_it = frame.reach is Strength.ALL and not frame.removed
                stack.append(
                    self._opened(found.start())
                    if all_of_it
                    else _Frame(token == b"{", removed=frame.removed, schema=False)
                )
                at_key = stack[-1].is_object
            elif token in _CLOSE:
                stack.pop()
                if not stack:
                    return found.end()
                at_key = False
            elif token == b",":
                at_key = frame.is_object
                frame.reach = Strength.NONE
            elif token == b":":
                at_key = False
            elif at_key:
                frame.reach = self._reach(frame, found)
            elif frame.removed or frame.reach:
                self._value(found)
        raise ValueError("not JSON: a container is not closed")

    def _reach(self, frame: _Frame, key: re.Match[bytes]) -> Strength:
        if frame.schema and key.group() in _SCHEMA_VALUES:
            return Strength.ALL
        return strength(self._places.decoded(key.start() + 1, key.end() - 1))

    def _value(self, found: re.Match[bytes]) -> None:
        if not _KEPT.fullmatch(found.group()):
            self._changes.new[found.start()] = found.end(), self._placeholder()

    def _opened(self, start: int) -> _Frame:
        """The container right under a name: a property that is called ``password`` has a schema, not a value."""
        is_object = self._marked.startswith(b"{", start)
        schema = is_object and self._is_schema(start)
        return _Frame(is_object, removed=not schema, schema=schema)

    def _is_schema(self, start: int) -> bool:
        depth = 0
        tokens = [found.group() for found in islice(self._tokens_of(start), _LOOK_AHEAD)]
        for at, token in enumerate(tokens):
            depth += (token in _OPEN) - (token in _CLOSE)
            is_key = depth == 1 and tokens[at + 1 : at + 2] == [b":"]
            if is_key and _of_schema(token, tokens[at + 2 : at + 4]):
                return True
        return False

    def _tokens_of(self, start: int) -> Iterator[re.Match[bytes]]:
        """The tokens of one container, with its brackets."""
        depth = 0
        for found in _TOKEN.finditer(self._marked, start):
            yield found
            depth += (found.group() in _OPEN) - (found.group() in _CLOSE)
            if depth == 0:
                return


def _of_schema(word: bytes, values: list[bytes]) -> bool:
    """Whether a key with what follows it, at most two tokens, can only be a schema's: a name alone proves nothing."""
    first, second = [*values, b"", b""][:2]
    if word == b'"type"':
        return (second if first == b"[" else first) in _SCHEMA_TYPES
    return first == b"[" if word in _SCHEMA_LISTS else word == b'"$ref"' and first.startswith(b'"#')
