"""A client's tool list as it came (HTTP protocol, Registrations; bridge 4). Owns the checks; it compiles nothing twice.

One bad tool refuses the whole list and is named by its index and the path in it. Messages quote nothing of a tool but
names that are in the alphabet.
"""

import re
from typing import Any, Final, NoReturn, cast

from gateway.model.arguments import EXPRESSIONS, BadSchemaError, check_schema
from gateway.model.errors import Code, Refusal
from gateway.model.limits import (
    CHILD_TIMEOUT_MAX_MS,
    CHILD_TIMEOUT_MIN_MS,
    TOOL_DESCRIPTION_CHARS,
    TOOL_LIST_BYTES,
    TOOL_NAME_CHARS,
    TOOL_SCHEMA_BYTES,
    TOOLS_PER_CLIENT,
)
from gateway.model.registration import ToolSpec
from gateway.model.schema_words import path_text
from gateway.model.strictjson import compact

_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{TOOL_NAME_CHARS}}}", re.ASCII)


def parse_tools(raw: object) -> tuple[ToolSpec, ...]:
    """The tools of a register or PUT body's ``tools``, a decoded JSON value.

    At most 64, names unique and 1-64 of ``[A-Za-z0-9_-]``, descriptions of at most 4,096 characters, ``parameters`` a
    JSON Schema object of at most 32 KiB with local references only; the list has at most 512 KiB, compact. Fields that
    are not known are ignored, as a newer client may send them. ``timeout_ms`` beyond 1,000-300,000 is brought in.
    Raises ``Refusal`` (INVALID_REQUEST, TOO_LARGE) naming ``tools[3].parameters.properties.x``.
    """
    if not isinstance(raw, list):
        _refuse("tools must be a list")
    listed = cast(list[object], raw)
    if len(listed) > TOOLS_PER_CLIENT:
        _refuse(f"tools has more than {TOOLS_PER_CLIENT} entries")
    specs: list[ToolSpec] = []
    expressions = 0
    places: dict[str, int] = {}
    for index, entry in enumerate(listed):
        spec = _tool(entry, f"tools[{index}]")
        expressions += check_schema(spec.parameters).expressions
        if expressions > EXPRESSIONS:
            _refuse(f"tools has more than {EXPRESSIONS} regular expressions")
        if spec.name in places:
            _refuse(f"tools[{index}].name is that of tools[{places[spec.name]}] too")
        places[spec.name] = index
        specs.append(spec)
    if sum(len(spec.parameters) + len(spec.description.encode()) + len(spec.name) for spec in specs) > TOOL_LIST_BYTES:
        raise Refusal(Code.TOO_LARGE, f"tools has more than {TOOL_LIST_BYTES} bytes")
    return tuple(specs)


def _tool(entry: object, at: str) -> ToolSpec:
    if not isinstance(entry, dict):
        _refuse(f"{at} must be an object")
    tool = cast(dict[str, Any], entry)
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        _refuse(f"{at}.name must be 1-{TOOL_NAME_CHARS} of letters, digits, _ and -")
    description = tool.get("description")
    if not isinstance(description, str):
        _refuse(f"{at}.description must be a string")
    if len(description) > TOOL_DESCRIPTION_CHARS:
        _refuse(f"{at}.description has more than {TOOL_DESCRIPTION_CHARS} characters")
    idempotent = tool.get("idempotent", False)
    if not isinstance(idempotent, bool):
        _refuse(f"{at}.idempotent must be true or false")
    return ToolSpec(
        name=name,
        description=description,
        parameters=_parameters(tool.get("parameters"), f"{at}.parameters"),
        timeout_ms=_timeout(tool.get("timeout_ms"), f"{at}.timeout_ms"),
        idempotent=idempotent,
    )


def _timeout(value: object, at: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        _refuse(f"{at} must be a number of milliseconds, {CHILD_TIMEOUT_MIN_MS} to {CHILD_TIMEOUT_MAX_MS}")
    return min(max(value, CHILD_TIMEOUT_MIN_MS), CHILD_TIMEOUT_MAX_MS)


def _parameters(value: object, at: str) -> bytes:
    if not isinstance(value, dict):
        _refuse(f"{at} must be a JSON Schema object")
    encoded = compact(value)
    if len(encoded) > TOOL_SCHEMA_BYTES:
        raise Refusal(Code.TOO_LARGE, f"{at} has more than {TOOL_SCHEMA_BYTES} bytes")
    try:
        check_schema(encoded)
    except BadSchemaError as problem:
        _refuse(f"{path_text(at, problem.steps)} {problem.reason}")
    return encoded


def _refuse(message: str) -> NoReturn:
    raise Refusal(Code.INVALID_REQUEST, message)
