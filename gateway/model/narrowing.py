"""The child's copy of a client's schema (bridge 4). Owns the narrowing; it may loosen a schema and never tighten one.

The child takes a subset without references (stdio protocol, Bounds and schemas). What does not fit in is left out, and
every step keeps the one rule that matters: what is valid for the client's schema is valid for the copy. So each part
of a copy knows whether it accepts more than its original: a ``not`` over such a part goes, a ``oneOf`` becomes
``anyOf``, a ``contains`` loses its upper bound. Arguments are checked by the client's own schema in any case.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import msgspec

from gateway.model.clean import ModelJson
from gateway.model.limits import CHILD_SCHEMA_BYTES, CHILD_SCHEMA_DEPTH
from gateway.model.references import References
from gateway.model.schema_budget import fit_schema
from gateway.model.schema_words import ANNOTATIONS, Dialect, Schema, Steps, dialect_of, path_text

NODES: Final = 1_000
"""Object schemas in a copy, references followed; one that unfolds to more (8 KiB hold fewer) is not native."""
DEEPEST: Final = 150
"""Schemas inside one another in a copy, references followed; the child takes 16 containers. Copying recurses."""
_NOTES: Final = 12
_WORD_CHARS: Final = 64
_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_LOOSENING: Final = frozenset(
    {
        "$dynamicRef",
        "$recursiveRef",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""Keywords outside the subset that restrict something: a copy without one accepts more. Others only annotate."""
_SILENT: Final = frozenset({"$anchor", "$comment", "$defs", "$id", "$schema", "definitions", "id"})
"""What nobody misses in a copy: references are followed, and a comment is not for the model."""


class Narrowed(msgspec.Struct, frozen=True):
    """``schema`` is the copy, compact, or ``None`` when the tool cannot be native; ``notes`` say what was changed."""

    schema: ModelJson | None
    notes: tuple[str, ...] = ()


class _Copied(NamedTuple):
    schema: Schema
    loose: bool  # whether it accepts more than its original


class _UnfoldsError(Exception):
    """The schema has too many nodes with its references followed, or too many inside one another."""


@lru_cache(maxsize=2048)
def narrow(schema: ModelJson) -> Narrowed:
    """The child's copy of one tool's schema, an object that was checked by ``tools.parse_tools``.

    The copy is at most 8,192 bytes and 16 containers deep, has ``type: object`` at its root and no reference.
    """
    root = cast(Schema, msgspec.json.decode(schema))
    copier = _Copier(root)
    try:
        copy = copier.copy(root, (), _Scope(root, ())).schema
    except _UnfoldsError:
        limit = f"{NODES} subschemas, or {DEEPEST} inside one another,"
        return Narrowed(None, (f"not native: more than {limit} when its references are followed",))
    if copy is True:
        copy = {}
    if copy is False or not _takes_objects(copy):
        return Narrowed(None, (*copier.notes(), "not native: the schema accepts no object"))
    copy = {"type": "object", **{word: value for word, value in copy.items() if word != "type"}}
    fitted, dropped = fit_schema(copy)
    notes = copier.notes() + ((f"dropped to fit: {', '.join(dropped)}",) if dropped else ())
    if fitted is None:
        limit = f"{CHILD_SCHEMA_BYTES} bytes or {CHILD_SCHEMA_DEPTH} levels"
        return Narrowed(None, (*notes, f"not native: the schema has more than {limit}"))
    return Narrowed(cast(ModelJson, fitted), notes)


def loosened(root: Schema, refused: Callable[[str], bool]) -> Schema:
    """A copy without the regular expressions that ``refused`` says are not to be used, and without references.

    It has no bound on bytes; one that unfolds to more than ``NODES`` subschemas, or deeper than ``DEEPEST``, becomes
    one that accepts any object.
    """
    try:
        return _Copier(root, refused).copy(root, (), _Scope(root, ())).schema
    except _UnfoldsError:
        return {"type": "object"}


class _Part(NamedTuple):
    """What a keyword holds in the copy: one schema, a list or names of them; ``None`` when the keyword goes."""

    schema: Any
    loose: bool


class _Scope(NamedTuple):
    """Where references point from: the nearest schema with an ``$id`` (or the root), and the targets being copied."""

    base: Schema
    targets: tuple[int, ...]


class _Copier:
    """One pass over one schema; it remembers what it changed."""

    def __init__(self, root: Schema, refused: Callable[[str], bool] | None = None) -> None:
        self._dialect = dialect_of(root) or Dialect.DRAFT2020
        self._refused = refused
        self._nodes = 0
        self._deep = 0
        self._dropped: dict[str, None] = {}
        self._changes: dict[str, None] = {}
        self._references = References(root, self._dialect)

    def notes(self) -> tuple[str, ...]:
        notes = [*self._changes]
        if self._dropped:
            notes.insert(0, f"dropped: {', '.join(sorted(self._dropped))}")
        if len(notes) > _NOTES:
            notes[_NOTES - 1 :] = [f"and {len(notes) - _NOTES + 1} changes more"]
        return tuple(notes)

    def copy(self, schema: Schema, at: Steps, scope: _Scope) -> _Copied:
        if isinstance(schema, bool):
            return _Copied(schema, loose=False)
        self._nodes += 1
        if self._nodes > NODES or self._deep >= DEEPEST:
            raise _UnfoldsError
        self._deep += 1
        copied = self._copy(schema, at, scope)
        self._deep -= 1
        return copied

    def _copy(self, schema: dict[str, Any], at: Steps, scope: _Scope) -> _Copied:
        if schema is not scope.base and self._references.opens_scope(schema):
            scope = scope._replace(base=schema)
        target = schema.get("$ref")
        if not isinstance(target, str):
            return self._members(schema, at, scope)
        followed = self._follow(target, at, scope)
        if self._dialect.ref_stands_alone:
            return followed
        beside = self._members({word: value for word, value in schema.items() if word != "$ref"}, at, scope)
        return _both(followed, beside)

    def _follow(self, reference: str, at: Steps, scope: _Scope) -> _Copied:
        found = self._references.resolve(reference, scope.base)
        if found is None:
            self._change("a reference was left open at", at)
            return _Copied({}, loose=True)
        target, base = found
        if id(target) in scope.targets:
            self._change("recursion was cut at", at)
            return _Copied({}, loose=True)
        return self.copy(target, at, _Scope(base, (*scope.targets, id(target))))

    def _change(self, what: str, at: Steps) -> None:
        self._changes[f"{what} {path_text('', at) or 'the root'}"] = None

    def _members(self, schema: dict[str, Any], at: Steps, scope: _Scope) -> _Copied:
        copy: dict[str, Any] = {}
        loose: set[str] = set()
        for word, value in schema.items():
            if word in self._dialect.ignored or word in _SILENT:
                continue
            if word in _LOOSENING:
                self._dropped[word] = None
                loose.add(word)
            elif word in _PARTS:
                part = _PARTS[word](self, word, value, (*at, word), scope)
                if part.loose:
                    loose.add(word)
                if part.schema is not None:
                    copy[word] = part.schema
            elif word in _VALUES:
                self._value(word, value, copy, loose)
            elif word != "additionalItems":
                self._dropped[word if word.isidentifier() and len(word) <= _WORD_CHARS else "unknown keywords"] = None
        if isinstance(schema.get("items"), list) and "prefixItems" not in copy:
            self._old_arrays(schema, copy, loose, at, scope)
        self._settle(schema, copy, loose, at)
        return _Copied(copy, bool(loose))

    def _value(self, word: str, value: Any, copy: dict[str, Any], loose: set[str]) -> None:
        kept = _VALUES[word](value)
        if self._refused and word == "pattern" and isinstance(value, str) and self._refused(value):
            kept = _GONE
        if kept is _GONE:
            self._dropped[word] = None
            if word not in ANNOTATIONS:
                loose.add(word)
        else:
            copy[word] = kept
            if word == "type" and kept != value and isinstance(value, list):
                loose.add(word)

    def _settle(self, schema: dict[str, Any], copy: dict[str, Any], loose: set[str], at: Steps) -> None:
        """What follows for a schema's other keywords where one of them accepts more than it did."""
        if "not" in loose and copy.pop("not", None) is not None:
            self._change("not was dropped at", at)
        if "contains" in loose:  # more items may match now, so only a lower bound still holds
            copy.pop("maxContains", None)
        if "oneOf" in loose and "oneOf" in copy:  # two branches may match now where one did
            self._change("oneOf became anyOf at", at)
            branches = copy.pop("oneOf")
            if "anyOf" in copy:
                copy["allOf"] = [*copy.get("allOf", []), {"anyOf": branches}]
            else:
                copy["anyOf"] = branches
        if self._refused and len(copy.get("patternProperties", {})) != len(schema.get("patternProperties", {})):
            # A property that a dropped expression took must not become an additional one.
            copy.pop("additionalProperties", None)
        if self._dialect is Dialect.DRAFT4 and "integer" in copy.get("type", ()):
            loose.add("type")  # 1.0 is no integer there

    def _old_arrays(
        self, schema: dict[str, Any], copy: dict[str, Any], loose: set[str], at: Steps, scope: _Scope
    ) -> None:
        """``items`` as a list, with ``additionalItems`` (before 2020-12), in the words of 2020-12."""
        first = self.many("items", schema["items"], (*at, "items"), scope)
        if first.schema:
            copy["prefixItems"] = first.schema
        rest = schema.get("additionalItems", True)
        if isinstance(rest, (dict, bool)) and rest is not True:
            copied = self.copy(cast(Schema, rest), (*at, "additionalItems"), scope)
            copy["items"] = copied.schema
            first = first._replace(loose=first.loose or copied.loose)
        if first.loose:
            loose.add("items")

    def one(self, word: str, value: Any, at: Steps, scope: _Scope) -> _Part:
        if isinstance(value, (dict, bool)):
            return _Part(*self.copy(cast(Schema, value), at, scope))
        # A list in ``items`` is said anew by _old_arrays; anything else is no schema.
        return _Part(None, loose=not (word == "items" and isinstance(value, list)))

    def many(self, word: str, value: Any, at: Steps, scope: _Scope) -> _Part:
        if not isinstance(value, list) or not value:
            return _Part(None, loose=word != "items")
        copies = [self.copy(inner, (*at, index), scope) for index, inner in enumerate(cast(list[Schema], value))]
        return _Part([inner.schema for inner in copies], any(inner.loose for inner in copies))

    def named(self, word: str, value: Any, at: Steps, scope: _Scope) -> _Part:
        if not isinstance(value, dict):
            return _Part(None, loose=True)
        named = cast(dict[str, Schema], value)
        gone = {name for name in named if word == "patternProperties" and self._refused and self._refused(name)}
        copies = {name: self.copy(inner, (*at, name), scope) for name, inner in named.items() if name not in gone}
        loose = bool(gone) or any(inner.loose for inner in copies.values())
        return _Part({name: inner.schema for name, inner in copies.items()}, loose)


_PARTS: Final[dict[str, Callable[[_Copier, str, Any, Steps, _Scope], _Part]]] = {
    **dict.fromkeys(("additionalProperties", "contains", "items", "not", "propertyNames"), _Copier.one),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _Copier.many),
    **dict.fromkeys(("patternProperties", "properties"), _Copier.named),
}


def _both(followed: _Copied, beside: _Copied) -> _Copied:
    """A reference's target and what stands beside the reference, as one schema."""
    loose = followed.loose or beside.loose
    if beside.schema is True or beside.schema == {}:
        return followed._replace(loose=loose)
    if followed.schema is True or followed.schema == {}:
        return beside._replace(loose=loose)
    more = beside.schema if isinstance(beside.schema, dict) else {"allOf": [beside.schema]}
    if isinstance(followed.schema, dict) and ANNOTATIONS.issuperset(more):
        return _Copied({**followed.schema, **more}, loose)
    return _Copied({**more, "allOf": [followed.schema, *more.get("allOf", [])]}, loose)


def _takes_objects(copy: dict[str, Any]) -> bool:
    types: object = copy.get("type", "object")
    return types == "object" or (isinstance(types, list) and "object" in types)


class _Gone:
    """A value that cannot be made legal."""


_GONE: Final = _Gone()


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else _GONE


def _truth(value: Any) -> Any:
    return value if isinstance(value, bool) else _GONE


def _number(value: Any) -> Any:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else _GONE


def _positive(value: Any) -> Any:
    return value if _number(value) is not _GONE and value > 0 else _GONE


def _size(value: Any) -> Any:
    """``1.0`` is an integer to JSON Schema and none to the child; nothing it knows is above 2**64."""
    if _number(value) is _GONE or not 0 <= value < 2**64 or value != int(value):
        return _GONE
    return int(value)


def _list(value: Any) -> Any:
    return cast(Any, value) if isinstance(value, list) else _GONE


def _choices(value: Any) -> Any:
    return cast(Any, value) if isinstance(value, list) and value else _GONE


def _names(value: Any) -> Any:
    if not isinstance(value, list):
        return _GONE
    return list(dict.fromkeys(name for name in cast(list[Any], value) if isinstance(name, str)))


def _types(value: Any) -> Any:
    """An unknown type accepts nothing, so it can go from a list of others; alone, the whole keyword has to."""
    if isinstance(value, str):
        return value if value in _TYPES else _GONE
    return [name for name in _names(value) if name in _TYPES] or _GONE if isinstance(value, list) else _GONE


def _anything(value: Any) -> Any:
    return value


_VALUES: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("description", "format", "pattern", "title"), _text),
    **dict.fromkeys(("deprecated", "readOnly", "uniqueItems", "writeOnly"), _truth),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"), _number),
    **dict.fromkeys(("maxContains", "maxItems", "maxLength", "maxProperties"), _size),
    **dict.fromkeys(("minContains", "minItems", "minLength", "minProperties"), _size),
    "const": _anything,
    "default": _anything,
    "enum": _choices,
    "examples": _list,
    "multipleOf": _positive,
    "required": _names,
    "type": _types,
}
