"""What the real child takes as a tool's schema: a checker for tests, written from the protocol and from probing it.

``problem`` gives the first thing that the child would refuse, or ``None``. ``test_real_child.py`` holds it against the
real one.
"""

import json
from typing import Any

ONE = {"items", "additionalProperties", "not", "contains", "propertyNames"}
MANY = {"allOf", "anyOf", "oneOf", "prefixItems"}
NAMED = {"properties", "$defs", "definitions", "patternProperties"}
TEXTS = {"description", "title", "pattern", "format", "$comment"}
NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
SIZES = {f"{way}{what}" for way in ("min", "max") for what in ("Length", "Items", "Properties", "Contains")}
TRUTHS = {"uniqueItems", "readOnly", "writeOnly", "deprecated"}
TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


def problem(raw: bytes) -> str | None:
    schema = json.loads(raw)
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "the root is not of type object"
    if len(raw) > 8192:
        return f"{len(raw)} bytes"
    if depth(schema) > 16:
        return f"{depth(schema)} deep"
    return inner_problem(schema, "")


def inner_problem(schema: Any, at: str) -> str | None:
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, dict):
        return f"{at} is no schema"
    for word, value in schema.items():
        here = f"{at}/{word}"
        bad = word_problem(word, value, here)
        if bad:
            return bad
    return None


def word_problem(word: str, value: Any, here: str) -> str | None:
    if word in ONE | MANY | NAMED:
        return schemas_problem(word, value, here)
    return None if value_is_taken(word, value) else f"{here} is not taken"


def schemas_problem(word: str, value: Any, here: str) -> str | None:
    if word in ONE:
        return inner_problem(value, here)
    if word in MANY:
        if not isinstance(value, list) or not value:
            return f"{here} is no list of schemas"
        return next(filter(None, (inner_problem(inner, f"{here}/{i}") for i, inner in enumerate(value))), None)
    if not isinstance(value, dict):
        return f"{here} holds no names"
    return next(filter(None, (inner_problem(inner, f"{here}/{name}") for name, inner in value.items())), None)


def value_is_taken(word: str, value: Any) -> bool:
    number: Any = value
    whole = isinstance(value, int) and not isinstance(value, bool)
    texts = value if isinstance(value, list) and all(isinstance(name, str) for name in value) else None
    if word in TEXTS:
        return isinstance(value, str)
    if word in TRUTHS:
        return isinstance(value, bool)
    if word in SIZES:
        return whole and 0 <= number < 2**64
    if word in NUMBERS:
        return (whole or isinstance(value, float)) and (word != "multipleOf" or number > 0)
    if word == "required":
        return texts is not None and len(set(texts)) == len(texts)
    if word == "type":
        return (isinstance(value, str) and value in TYPES) or (bool(texts) and TYPES.issuperset(texts or ()))
    if word == "enum":
        return isinstance(value, list) and bool(value)
    if word == "examples":
        return isinstance(value, list)
    return word in ("const", "default")
