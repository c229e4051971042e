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


BELOW = ["items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"]
UNEVALUATED = ["unevaluatedProperties", "unevaluatedItems"]
COMBINED = ["allOf", "anyOf", "oneOf", "oneOf", "prefixItems"]
NAMED = ["properties", "properties", "patternProperties", "dependentSchemas"]
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
    "required": st.lists(NAMES, min_size=1, max_size=2, unique=True),
    "enum": st.lists(SCALARS, max_size=3),
    "const": SCALARS,
    "minProperties": SIZES,
    "maxProperties": SIZES,
    "minContains": SIZES,
    "maxContains": SIZES,
    "minItems": SIZES,
    "maxItems": SIZES,
    "uniqueItems": st.booleans(),
    "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), min_size=1, max_size=2),
    "minLength": SIZES,
    "maxLength": SIZES,
    "pattern": PATTERNS,
    "minimum": st.integers(-2, 3),
    "exclusiveMaximum": st.integers(-2, 4) | st.just(2.5),
    "multipleOf": st.sampled_from([1, 2, 0.5]),
    "description": st.just("D"),
    "default": VALUES,
    "examples": st.lists(VALUES, max_size=2),
    "nullable": st.just(True),
}


@st.composite
def inner_schemas(draw: st.DrawFn, depth: int, *, references: bool) -> Any:
    """One schema of at most ``depth`` levels. Keywords that restrict each other come together: what a copy gets wrong
    is how they play together, not one alone."""
    if depth == 0 or draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from([True, False, *LEAVES]))
    below = inner_schemas(depth - 1, references=references)
    schema: dict[str, Any] = {}
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.integers(0, 9))
        if kind <= 1:
            word = draw(st.sampled_from(sorted(PLAIN)))
            schema[word] = draw(PLAIN[word])
        elif kind <= 3:
            schema[draw(st.sampled_from(COMBINED))] = draw(st.lists(below, min_size=1, max_size=3))
        elif kind <= 5:
            word = draw(st.sampled_from(NAMED))
            schema[word] = draw(
                st.dictionaries(PATTERNS if word == "patternProperties" else NAMES, below, min_size=1, max_size=2)
            )
        elif kind <= 7:
            schema[draw(st.sampled_from(BELOW))] = draw(below)
        elif kind == 8:
            schema["contains"] = draw(below)
            schema["maxContains"] = draw(st.integers(0, 1))
        elif references and draw(st.booleans()):
            schema["$ref"] = draw(REFERENCES)
            schema.update(draw(st.sampled_from([{}, {"$anchor": "one"}, {"description": "D"}, {"$dynamicRef": "#"}])))
        else:
            schema[draw(st.sampled_from(UNEVALUATED))] = draw(below)
    return schema


@st.composite
def schemas(draw: st.DrawFn, *, references: bool = True) -> Any:
    """Root schemas: objects with a property ``a`` that says something, and ``$defs`` that references find."""
    below = inner_schemas(3, references=references)
    root: dict[str, Any] = {"properties": {"a": draw(below)}}
    if draw(st.booleans()):
        more = draw(below)
        root.update(more if isinstance(more, dict) else {})
    if references:
        root["$defs"] = {
            "one": draw(inner_schemas(2, references=True)),
            "two": draw(inner_schemas(1, references=False)),
        }
    return root


LEAVES: list[Any] = [
    {"type": "integer"},
    {"type": "string"},
    {"type": "null"},
    {"type": ["array", "object"]},
    {"minimum": 1},
    {"maxLength": 1},
    {"required": ["a"]},
    {"if": {"type": "integer"}, "then": {"minimum": 1}},
    {"dependentRequired": {"a": ["b"]}},
    {"unevaluatedItems": False},
    {"const": 0},
    {"enum": ["a", 1]},
]
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
