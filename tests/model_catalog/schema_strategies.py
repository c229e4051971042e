"""Hypothesis strategies for JSON Schemas and values that have a fair chance of fitting them."""

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "a", "b", "b", "c", "$ref", "__proto__", "x y"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.sampled_from([0.5, 1.0, 2.5, -1.0]),
    st.sampled_from(["", "a", "b", "ab", "aab", "2020-01-01"]),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
PATTERNS = st.sampled_from(["^a", "b$", "^[a-c]*$", "^(?=a)", r"(a)\1", ""])
SIZES = st.sampled_from([0, 1, 2, 3, 1.0, 2.0])
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "null", "array", "object"])
REFERENCES = st.sampled_from(["#", "#/$defs/one", "#/$defs/two", "#/properties/a", "#one", "#/$defs/one/properties/a"])


def words(schema: st.SearchStrategy[Any], *, references: bool, patterns: st.SearchStrategy[str]) -> Any:
    lists = st.lists(schema, min_size=1, max_size=3)
    named = st.dictionaries(NAMES, schema, max_size=3)
    optional: dict[str, st.SearchStrategy[Any]] = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "properties": named,
        "patternProperties": st.dictionaries(patterns, schema, max_size=2),
        "additionalProperties": schema,
        "propertyNames": schema,
        "required": st.lists(NAMES, max_size=2, unique=True),
        "minProperties": SIZES,
        "maxProperties": SIZES,
        "items": schema,
        "prefixItems": lists,
        "contains": schema,
        "minContains": SIZES,
        "maxContains": SIZES,
        "minItems": SIZES,
        "maxItems": SIZES,
        "uniqueItems": st.booleans(),
        "allOf": lists,
        "anyOf": lists,
        "oneOf": lists,
        "not": schema,
        "if": schema,
        "then": schema,
        "else": schema,
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2),
        "dependentSchemas": named,
        "unevaluatedProperties": schema,
        "unevaluatedItems": schema,
        "enum": st.lists(VALUES, max_size=3),
        "const": VALUES,
        "minLength": SIZES,
        "maxLength": SIZES,
        "pattern": patterns,
        "minimum": st.integers(-2, 3),
        "exclusiveMaximum": st.integers(-2, 4) | st.just(2.5),
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "title": st.just("T"),
        "description": st.just("D"),
        "default": VALUES,
        "examples": st.lists(VALUES, max_size=2),
        "nullable": st.just(True),
        "x-extra": VALUES,
        "$comment": st.just("C"),
        "format": st.just("email"),
    }
    if references:
        optional["$ref"] = REFERENCES
        optional["$dynamicRef"] = st.just("#")
        optional["$anchor"] = st.just("one")
    # A few keywords at a time: a schema with all of them accepts nothing.
    return st.lists(st.sampled_from(sorted(optional)), min_size=0, max_size=4, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({word: optional[word] for word in chosen})
    )


def schemas(*, references: bool = True, patterns: st.SearchStrategy[str] = PATTERNS) -> st.SearchStrategy[Any]:
    """Root schemas: objects, some with ``$defs`` that their references find."""
    inner = st.recursive(
        st.booleans() | words(st.booleans(), references=references, patterns=patterns),
        lambda below: words(below, references=references, patterns=patterns),
        max_leaves=8,
    )
    root = words(inner, references=references, patterns=patterns)
    definitions = st.fixed_dictionaries({"one": inner, "two": inner})
    return st.builds(lambda schema, defs: {**schema, "$defs": defs}, root, definitions)


_LEAVES: list[Any] = [None, True, 0, 1, 1.0, 2, -2, 2.5, "", "a", "b", "aab"]
_INNER: list[Any] = [
    *_LEAVES,
    [],
    [0],
    [0, 1],
    [0, 1, 2],
    [1, 1],
    ["a", None],
    [[0], {"a": 0}],
    {},
    {"a": 0},
    {"a": "a", "b": None},
    {"a": {"a": {"a": 1}}},
    {"b": []},
]
SAMPLES: list[dict[str, Any]] = [
    {},
    *({"a": value} for value in _INNER),
    *({"b": value} for value in _INNER[::2]),
    *({"a": value, "b": other} for value, other in zip(_INNER, reversed(_INNER), strict=True)),
    {"a": 0, "b": 1, "c": 2},
    {"$ref": "#", "__proto__": 0, "x y": None},
    {"a": {"a": {"a": {"b": 0}}}, "c": [[[0]]]},
]
"""Objects that tell small schemas apart; one random object seldom falls where a copy differs from its original."""
