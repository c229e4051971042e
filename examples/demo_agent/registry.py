"""The tools that a client brings. Pure: it validates ``client_tools`` whole, before anything starts.

What is accepted and what is not follows the stdio protocol, "Bounds and schemas": a list of keywords, each with the
kind of value that it takes. Nothing is resolved, compiled or fetched.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from frames import Fields, Refused, as_list, compact, is_bool, is_integer, is_text

LIMITS: Final = {
    "tools": 32,
    "name_bytes": 64,
    "description_bytes": 2_048,
    "registry_bytes": 32_768,
    "schema_bytes": 8_192,
    "schema_depth": 16,
    "arguments_bytes": 16_384,
    "result_bytes": 32_768,
    "pending_calls": 16,
    "default_timeout_ms": 30_000,
    "min_timeout_ms": 1_000,
    "max_timeout_ms": 300_000,
}
TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})

_NAME = re.compile(r"client__[A-Za-z0-9_]{1,56}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LARGEST: Final = 2**64 - 1


@dataclass(frozen=True)
class Tool:
    """One registered tool; ``timeout_ms`` has its default filled in."""

    name: str
    description: str
    schema: dict[str, Any]
    timeout_ms: int


def _schema(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, dict) and is_schema(cast("dict[str, Any]", value)))


def _schema_map(value: Any) -> bool:
    return isinstance(value, dict) and all(_schema(item) for item in cast("dict[str, Any]", value).values())


def _schema_list(value: Any) -> bool:
    items = as_list(value)
    return bool(items) and all(_schema(item) for item in items or ())


def _type(value: Any) -> bool:
    names = [value] if is_text(value) else as_list(value)
    return bool(names) and all(is_text(name) and name in TYPES for name in names or ())


def _names(value: Any) -> bool:
    names = as_list(value)
    return names is not None and all(map(is_text, names)) and len(set(names)) == len(names)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


KEYWORDS: Final[dict[str, Callable[[Any], bool]]] = {
    "type": _type,
    **dict.fromkeys(("properties", "$defs", "definitions", "patternProperties"), _schema_map),
    **dict.fromkeys(("items", "additionalProperties", "not", "contains", "propertyNames"), _schema),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _schema_list),
    "required": _names,
    "enum": lambda value: bool(as_list(value)),
    **dict.fromkeys(("const", "default", "examples"), lambda _value: True),
    **dict.fromkeys(("description", "title", "pattern", "format", "$comment"), is_text),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _number),
    "multipleOf": lambda value: _number(value) and value > 0,
    **dict.fromkeys(
        (
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "minContains",
            "maxContains",
        ),
        partial(is_integer, low=0, high=_LARGEST),
    ),
    **dict.fromkeys(("uniqueItems", "readOnly", "writeOnly", "deprecated"), is_bool),
}
"""Keyword to the check of its value. An unknown keyword refuses the whole registry."""


def is_schema(value: dict[str, Any]) -> bool:
    """Whether every keyword is known and has the kind of value it takes. Literal data below them is not looked at."""
    return all(name in KEYWORDS and KEYWORDS[name](item) for name, item in value.items())


def depth(value: Any) -> int:
    """How many containers stand inside each other, literal data included."""
    if isinstance(value, dict):
        return 1 + max(map(depth, cast("dict[str, Any]", value).values()), default=0)
    items = as_list(value)
    return 0 if items is None else 1 + max(map(depth, items), default=0)


def _tool(value: Any) -> Tool:
    if not isinstance(value, Fields) or value.repeated:
        raise Refused("invalid_params")
    required = {"name", "description", "input_schema"}
    if not required <= value.keys() <= required | {"timeout_ms"}:
        raise Refused("invalid_params")
    name, description, given = value["name"], value["description"], value["input_schema"]
    schema = cast("dict[str, Any]", given if isinstance(given, dict) else {})
    timeout_ms = value.get("timeout_ms", LIMITS["default_timeout_ms"])
    accepted = bool(
        isinstance(name, str)
        and _NAME.fullmatch(name)
        and isinstance(description, str)
        and description.strip()
        and not _CONTROL.search(description)
        and len(description.encode()) <= LIMITS["description_bytes"]
        and is_integer(timeout_ms, LIMITS["min_timeout_ms"], LIMITS["max_timeout_ms"])
        and schema.get("type") == "object"
        and depth(schema) <= LIMITS["schema_depth"]
        and is_schema(schema)
        and len(compact(schema)) <= LIMITS["schema_bytes"]
    )
    if not accepted:
        raise Refused("invalid_params")
    return Tool(name, description, schema, timeout_ms)


def read(value: Any) -> dict[str, Tool]:
    """The registry by name, in the order given; ``invalid_params`` for all of it if one thing is wrong."""
    items = as_list(value)
    if items is None or len(items) > LIMITS["tools"]:
        raise Refused("invalid_params")
    tools = [_tool(item) for item in items]
    registry = {tool.name: tool for tool in tools}
    effective = [
        {"name": t.name, "description": t.description, "input_schema": t.schema, "timeout_ms": t.timeout_ms}
        for t in tools
    ]
    if len(registry) != len(tools) or len(compact(effective)) > LIMITS["registry_bytes"]:
        raise Refused("invalid_params")
    return registry
