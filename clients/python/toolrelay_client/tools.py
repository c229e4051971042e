"""Functions as tools: schemas from annotations, arguments from JSON, answers from what is returned.

Owns the bounds of an answer; knows no socket.
"""

import asyncio
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, overload

import msgspec

from toolrelay_client.errors import ToolError

if TYPE_CHECKING:
    from toolrelay_client.calls import Call

RESULT_CHARS: Final = 65_536
STRUCTURED_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """A call's answer: at most 65,536 characters; ``structured`` is any JSON of at most 64 KiB."""

    text: str
    is_error: bool = False
    structured: Any = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that is offered. ``idempotent``: another worker may run a call that this one had begun."""

    name: str
    description: str
    parameters: dict[str, Any]
    function: Callable[..., Any]
    arguments: type[msgspec.Struct]
    call_name: str = ""
    timeout_s: float | None = None
    idempotent: bool = False

    def wire(self) -> dict[str, Any]:
        """As the gateway is told of it."""
        found: dict[str, Any] = {"name": self.name, "description": self.description, "parameters": self.parameters}
        if self.timeout_s is not None:
            found["timeout_ms"] = round(self.timeout_s * 1000)
        if self.idempotent:
            found["idempotent"] = True
        return found

    async def run(self, arguments: Any, call: "Call") -> Answer:
        """Runs it; whatever it does, there is an answer. A function that is not async runs in a thread."""
        try:
            given = msgspec.convert(arguments, self.arguments)
        except msgspec.ValidationError as error:
            return Answer(f"The arguments are not valid: {error}", is_error=True)
        named = {field: getattr(given, field) for field in given.__struct_fields__}
        if self.call_name:
            named[self.call_name] = call
        try:
            if inspect.iscoroutinefunction(self.function):
                return answer_of(await self.function(**named))
            return answer_of(await asyncio.to_thread(self.function, **named))
        except ToolError as error:
            return Answer(str(error)[:RESULT_CHARS], is_error=True)
        except Exception as error:  # a failure of a tool is an answer
            return Answer(f"The tool failed: {type(error).__name__}: {error}"[:RESULT_CHARS], is_error=True)


def answer_of(value: Any) -> Answer:
    """The answer for what a tool returned: a text, an ``Answer``, None, or anything that msgspec encodes."""
    match value:
        case None:
            answer = Answer("Done.")
        case str():
            answer = Answer(value)
        case Answer():
            answer = value
        case _:
            answer = Answer(msgspec.json.encode(value).decode())
    if len(answer.text) > RESULT_CHARS:
        return Answer(f"The tool's result is too large: at most {RESULT_CHARS} characters.", is_error=True)
    if answer.structured is not None and len(msgspec.json.encode(answer.structured)) > STRUCTURED_BYTES:
        return Answer(f"The tool's structured result is too large: at most {STRUCTURED_BYTES} bytes.", is_error=True)
    return answer


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    idempotent: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    idempotent: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Makes a tool of a function: its name, its docstring, and a JSON Schema from its annotations.

    Annotations may be whatever msgspec reads, bounds by ``Annotated[int, msgspec.Meta(ge=1)]``. A parameter that is
    annotated with ``Call`` gets the call and is not part of the schema. Raises TypeError for a parameter without an
    annotation or without a name of its own (``*args``).
    """

    def make(function: Callable[..., Any]) -> Tool:
        arguments, call_name = _arguments(function)
        return Tool(
            name or function.__name__,
            description if description is not None else (inspect.getdoc(function) or ""),
            _schema(arguments),
            function,
            arguments,
            call_name,
            timeout_s,
            idempotent,
        )

    return make if function is None else make(function)


def _arguments(function: Callable[..., Any]) -> tuple[type[msgspec.Struct], str]:
    from toolrelay_client.calls import Call  # noqa: PLC0415 - calls know tools

    hints = typing.get_type_hints(function, include_extras=True)
    call_name = ""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name not in hints or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{function.__name__}: {parameter.name} needs a name and an annotation of its own")
        if hints[parameter.name] is Call:
            call_name = parameter.name
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, hints[parameter.name]))
        else:
            fields.append((parameter.name, hints[parameter.name], parameter.default))
    struct = msgspec.defstruct(f"{function.__name__}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
    return struct, call_name


def _schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    (root,), inner = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    own = inner.pop(root["$ref"].rpartition("/")[2])
    own.pop("title", None)
    return {**own, "$defs": inner} if inner else own
