"""Checks of a call's arguments by the client's own schema (bridge 4). Owns the compiled schemas; fetches nothing.

Validation is the library's (``jsonschema-rs``), offline and with the regular expressions of a linear engine. A schema
may hold expressions that this engine refuses (look-arounds, back-references, a size beyond its bound): they are not
enforced here, and the copy that is enforced then accepts more, never less. The same holds for deep arguments where a
schema's references multiply: checking them could take for ever (``schema_cost``).
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import jsonschema_rs
import msgspec

from gateway.model.limits import CHILD_JSON_DEPTH
from gateway.model.narrowing import loosened
from gateway.model.references import References
from gateway.model.schema_cost import Depths, cheap_depths, unfolds
from gateway.model.schema_words import (
    REFERENCES,
    UNEVALUATED,
    Dialect,
    Schema,
    Steps,
    dialect_of,
    objects,
    path_text,
    subschemas,
    walk,
)
from gateway.model.strictjson import json_depth

_REGEX_BYTES: Final = 256 * 1024
_OPTIONS: Final = jsonschema_rs.RegexOptions(size_limit=_REGEX_BYTES, dfa_size_limit=_REGEX_BYTES)
_VALIDATORS: Final = {
    Dialect.DRAFT4: jsonschema_rs.Draft4Validator,
    Dialect.DRAFT6: jsonschema_rs.Draft6Validator,
    Dialect.DRAFT7: jsonschema_rs.Draft7Validator,
    Dialect.DRAFT2019: jsonschema_rs.Draft201909Validator,
    Dialect.DRAFT2020: jsonschema_rs.Draft202012Validator,
}
_MASK: Final = "the value"
_REASON_CHARS: Final = 300
_NAMES_VALUES: Final = ("additionalProperties", "propertyNames", *UNEVALUATED)
EXPRESSIONS: Final = 256
"""Regular expressions in one registration: each may cost 3 ms to compile, however small it is."""
_INTENT: Final = "intent"
_IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")


class BadSchemaError(Exception):
    """A schema that no client may register: where in it, and why. ``reason`` quotes nothing."""

    def __init__(self, steps: Steps, reason: str) -> None:
        super().__init__(reason)
        self.steps = steps
        self.reason = reason


class Mismatch(NamedTuple):
    """Why arguments do not fit: ``path`` is ``arguments.rows[2].id``, ``reason`` quotes no value."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"


class Enforced(msgspec.Struct, frozen=True):
    """A compiled schema.

    ``exact`` is the client's own; it judges values down to ``depths.verdict`` levels and names errors down to
    ``depths.naming``. ``partial`` accepts more and costs little: it takes over beyond, and where there is no ``exact``.
    ``notes`` say what is not enforced; ``expressions`` counts the regular ones.
    """

    exact: jsonschema_rs.Validator | None
    partial: jsonschema_rs.Validator | None
    depths: Depths
    notes: tuple[str, ...]
    expressions: int
    declares_intent: bool


def check_schema(parameters: bytes) -> Enforced:
    """Compile a tool's schema. Raises ``BadSchemaError`` for one that is not valid, refers to something outside itself
    or can accept no object."""
    return _compile(parameters)


def check_arguments(parameters: bytes, arguments: dict[str, Any]) -> Mismatch | None:
    """The first thing in ``arguments`` that the tool's schema does not accept; ``None`` when all fits."""
    enforced = _compile(parameters)
    exact, partial = enforced.exact, enforced.partial
    verdict = naming = exact
    if partial is not None:
        depth = json_depth(msgspec.json.encode(arguments))
        verdict = exact if depth <= enforced.depths.verdict and exact is not None else partial
        naming = exact if depth <= enforced.depths.naming and exact is not None else partial
    if verdict is None or naming is None:
        raise AssertionError("a compiled schema has a validator")
    if verdict.is_valid(arguments):
        return None
    error = next(iter(naming.iter_errors(arguments)), None)
    if error is None:
        return Mismatch("arguments", "do not fit the tool's schema")
    return Mismatch(path_text("arguments", tuple(error.instance_path)), _reason(error))


def without_intent(parameters: bytes, arguments: dict[str, Any]) -> dict[str, Any]:
    """``arguments`` without the string ``intent`` that Code Mode adds, unless the schema has such a property."""
    if not isinstance(arguments.get(_INTENT), str) or _compile(parameters).declares_intent:
        return arguments
    return {name: value for name, value in arguments.items() if name != _INTENT}


@lru_cache(maxsize=512)
def _compile(parameters: bytes) -> Enforced:
    schema = cast(dict[str, Any], msgspec.json.decode(parameters))
    dialect = dialect_of(schema)
    if dialect is None:
        raise BadSchemaError(("$schema",), "names no dialect that is known here")
    references = References(schema, dialect)
    expressions = _check_words(schema, references)
    refused: set[str] = set()
    unfolding = unfolds(schema, references)
    try:
        exact = _validator(_without(schema, refused, unevaluated=unfolding), dialect)
    except jsonschema_rs.ValidationError as error:
        refused = _refused_expressions(schema)
        if not refused:
            raise _problem(schema, references, error) from None
        exact = None
        try:
            _validator(_without(schema, refused, unevaluated=unfolding), dialect)
        except jsonschema_rs.ValidationError as other:
            raise _problem(schema, references, other) from None
    if not _takes_objects(schema):
        raise BadSchemaError(("type",), "must be object")
    notes: tuple[str, ...] = ()
    depths = Depths(CHILD_JSON_DEPTH, CHILD_JSON_DEPTH)
    partial = None
    if unfolding:
        exact = None  # what was compiled lacks words, and without them a ``not`` would refuse more
        notes = ("not enforced here: unevaluated properties and items, over references that multiply",)
    if refused:
        notes += (f"regular expressions not enforced here: {len(refused)} (not linear, or too large)",)
    if exact is None:
        partial = _validator(loosened(schema, refused.__contains__), Dialect.DRAFT2020)
    elif b'"$r' in parameters or b'"$dynamicRef"' in parameters:
        depths = cheap_depths(schema, references, CHILD_JSON_DEPTH)
        if min(depths) < CHILD_JSON_DEPTH:
            partial = _validator(loosened(schema, lambda _: False), Dialect.DRAFT2020)
        if depths.verdict < CHILD_JSON_DEPTH:
            notes = (f"enforced in part for arguments over {max(depths.verdict, 0)} levels: references that multiply",)
    return Enforced(exact, partial, depths, notes, expressions, _declares_intent(schema, references))


def _validator(schema: Schema, dialect: Dialect) -> jsonschema_rs.Validator:
    return _VALIDATORS[dialect](schema, offline=True, pattern_options=_OPTIONS, validate_formats=False, mask=_MASK)


def _check_words(schema: dict[str, Any], references: References) -> int:
    """Refuse references that lead out of the schema, other dialects inside it and too many regular expressions; the
    number of those."""
    expressions = 0
    for inner in objects(schema):
        expressions += sum(1 for _ in _expressions(inner))
        if expressions > EXPRESSIONS:
            raise BadSchemaError((), f"has more than {EXPRESSIONS} regular expressions")
    for steps, inner in walk(schema):
        for word in REFERENCES:
            reference: object = inner.get(word)
            if isinstance(reference, str) and not references.local(reference):
                raise BadSchemaError((*steps, word), "must stay inside the schema: remote references are not followed")
        if steps and inner.get("$schema", schema.get("$schema")) != schema.get("$schema"):
            raise BadSchemaError((*steps, "$schema"), "must be that of the root")
    return expressions


def _expressions(schema: dict[str, Any]) -> Iterator[str]:
    if isinstance(pattern := schema.get("pattern"), str):
        yield pattern
    if isinstance(named := schema.get("patternProperties"), dict):
        yield from cast(dict[str, Any], named)


def _refused_expressions(schema: dict[str, Any]) -> set[str]:
    refused: set[str] = set()
    for expression in {found for _, inner in walk(schema) for found in _expressions(inner)}:
        try:
            _validator({"pattern": expression}, Dialect.DRAFT2020)
        except jsonschema_rs.ValidationError:
            refused.add(expression)
    return refused


def _without(value: Any, refused: set[str], *, unevaluated: bool) -> Any:
    """A schema without the refused expressions, and without what unfolds, to see whether the rest of it is valid."""
    if not refused and not unevaluated:
        return value
    if isinstance(value, list):
        return [_without(inner, refused, unevaluated=unevaluated) for inner in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    for word, inner in cast(dict[str, Any], value).items():
        if (word == "pattern" and isinstance(inner, str) and inner in refused) or (unevaluated and word in UNEVALUATED):
            continue
        if word == "patternProperties" and isinstance(inner, dict):
            inner = {name: below for name, below in cast(dict[str, Any], inner).items() if name not in refused}  # noqa: PLW2901
        kept[word] = _without(inner, refused, unevaluated=unevaluated)
    return kept


def _problem(schema: dict[str, Any], references: References, error: jsonschema_rs.ValidationError) -> BadSchemaError:
    if error.kind.name in ("$ref", "referencing"):
        for steps, inner in walk(schema):
            reference: object = inner.get("$ref")
            if isinstance(reference, str) and references.resolve(reference, schema) is None:
                return BadSchemaError((*steps, "$ref"), "leads to nothing in the schema")
        return BadSchemaError((), "has a reference that leads to nothing in it")
    return BadSchemaError(tuple(error.instance_path), f"is not valid JSON Schema ({error.kind.name})")


def _takes_objects(schema: dict[str, Any]) -> bool:
    types: object = schema.get("type", "object")
    return types == "object" or (isinstance(types, list) and "object" in types)


def _declares_intent(schema: dict[str, Any], references: References) -> bool:
    """Whether the root, what it refers to or what it combines has a property ``intent``."""
    waiting: list[Schema] = [schema]
    seen: set[int] = set()
    while waiting:
        inner = waiting.pop()
        if not isinstance(inner, dict) or id(inner) in seen:
            continue
        seen.add(id(inner))
        if _INTENT in inner.get("properties", ()) or _INTENT in inner.get("required", ()):
            return True
        reference: object = inner.get("$ref")
        found = references.resolve(reference, schema) if isinstance(reference, str) else None
        waiting += [below for steps, below in subschemas(inner) if steps[0] in _IN_PLACE]
        waiting += [] if found is None else [found[0]]
    return False


def _reason(error: jsonschema_rs.ValidationError) -> str:
    """The library's own words with the value masked; names that came with the arguments are left out."""
    if error.kind.name in _NAMES_VALUES:
        return f"has a property or item that is not declared ({error.kind.name})"
    text = error.message.removeprefix(_MASK).strip()
    return text if len(text) <= _REASON_CHARS else text[: _REASON_CHARS - 1] + "…"
