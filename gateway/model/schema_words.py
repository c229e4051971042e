"""What the words of JSON Schema mean: where subschemas stand, which dialect a schema is in. Owns facts; judges nothing.

Sources: JSON Schema core and validation, drafts 4 to 2020-12.
"""

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, cast

Schema = dict[str, Any] | bool
Steps = tuple[str | int, ...]
"""The way from a schema's root to a place in it: member names and list indexes."""

ONE: Final = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""Keywords that hold one schema."""
MANY: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
"""Keywords that hold a list of schemas (``items`` did before 2020-12)."""
NAMED: Final = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
"""Keywords that hold schemas under names (``dependencies`` may hold lists of names beside them)."""
REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
UNEVALUATED: Final = ("unevaluatedItems", "unevaluatedProperties")
"""Keywords for what no other one at their place has looked at, through references too."""
ANNOTATIONS: Final = frozenset({"default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"})

_PLAIN: Final = re.compile(r"[A-Za-z0-9_$-]{1,64}")
_PATH_CHARS: Final = 200


class Dialect(Enum):
    """The drafts that are known, oldest first; the value is the order."""

    DRAFT4 = 4
    DRAFT6 = 6
    DRAFT7 = 7
    DRAFT2019 = 2019
    DRAFT2020 = 2020

    @property
    def ref_stands_alone(self) -> bool:
        """Whether everything beside a ``$ref`` is ignored."""
        return self.value <= Dialect.DRAFT7.value

    @property
    def ignored(self) -> frozenset[str]:
        """Keywords of later drafts, which mean nothing in this one."""
        return _IGNORED[self]


_LATER_THAN_7: Final = frozenset({"minContains", "maxContains", "prefixItems"})
_IGNORED: Final = {
    Dialect.DRAFT4: _LATER_THAN_7 | {"const", "contains", "examples", "propertyNames"},
    Dialect.DRAFT6: _LATER_THAN_7,
    Dialect.DRAFT7: _LATER_THAN_7,
    Dialect.DRAFT2019: frozenset({"prefixItems"}),
    Dialect.DRAFT2020: frozenset[str](),
}
_DIALECTS: Final = {
    "json-schema.org/draft-04/schema": Dialect.DRAFT4,
    "json-schema.org/draft-06/schema": Dialect.DRAFT6,
    "json-schema.org/draft-07/schema": Dialect.DRAFT7,
    "json-schema.org/draft/2019-09/schema": Dialect.DRAFT2019,
    "json-schema.org/draft/2020-12/schema": Dialect.DRAFT2020,
}


def dialect_of(schema: Schema) -> Dialect | None:
    """The dialect that ``$schema`` names at the root: 2020-12 without one, ``None`` for one that is not known."""
    named: object = schema.get("$schema", "") if isinstance(schema, dict) else ""
    if named == "":
        return Dialect.DRAFT2020
    if not isinstance(named, str):
        return None
    return _DIALECTS.get(named.removesuffix("#").removeprefix("https://").removeprefix("http://"))


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[Steps, Schema]]:
    """The schemas that stand directly in ``schema``, with the steps to each."""
    for word, value in schema.items():
        if isinstance(value, (dict, bool)):
            if word in ONE:
                yield (word,), cast(Schema, value)
            elif word in NAMED and isinstance(value, dict):
                for name, inner in cast(dict[str, Any], value).items():
                    if isinstance(inner, (dict, bool)):
                        yield (word, name), cast(Schema, inner)
        elif isinstance(value, list) and word in MANY:
            for index, inner in enumerate(cast(list[Any], value)):
                if isinstance(inner, (dict, bool)):
                    yield (word, index), cast(Schema, inner)


def walk(schema: Schema, steps: Steps = ()) -> Iterator[tuple[Steps, dict[str, Any]]]:
    """Every object schema in ``schema``, itself first, with the steps to each."""
    waiting: list[tuple[Steps, Schema]] = [(steps, schema)]
    while waiting:
        at, inner = waiting.pop()
        if isinstance(inner, dict):
            yield at, inner
            waiting.extend((at + more, below) for more, below in subschemas(inner))


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value, itself first: in a schema a reference may make any of them a schema."""
    waiting: list[Any] = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            yield cast(dict[str, Any], inner)
            waiting += cast(dict[str, Any], inner).values()
        elif isinstance(inner, list):
            waiting += cast(list[Any], inner)


def path_text(base: str, steps: Steps) -> str:
    """A path as a person reads it: ``tools[3].parameters.properties.x``. A name that is not plain shows as ``…``."""
    text = base
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if _PLAIN.fullmatch(step) else "…")
    return text if len(text) <= _PATH_CHARS else text[: _PATH_CHARS - 1] + "…"
