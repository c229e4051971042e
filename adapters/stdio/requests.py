"""The gateway's frames to a child: encoded, then measured, then allowed. Owns the bounds of what is written; must never
write.

Sources: stdio protocol, Framing, Client tools, Seen; bridge 6. One byte or one level too much ends the child or leaves
it deaf, so a frame is refused here before a request id is spent on it. Encoded is raw UTF-8; a ``\\u`` escape stands
only where JSON needs one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from adapters.stdio.frames import PROTOCOL, VERSION, ToolCall
from adapters.stdio.results import Method
from adapters.stdio.shape import deeper_than, repeats_a_name
from gateway.model.clean import ModelJson, ModelText
from gateway.model.limits import (
    CHILD_DESCRIPTION_BYTES,
    CHILD_INPUT_FRAME_BYTES,
    CHILD_JSON_DEPTH,
    CHILD_PROMPT_BYTES,
    CHILD_REGISTRY_BYTES,
    CHILD_SCHEMA_BYTES,
    CHILD_SCHEMA_DEPTH,
    CHILD_TIMEOUT_MAX_MS,
    CHILD_TIMEOUT_MIN_MS,
    CHILD_TOOLS,
)
from gateway.model.results import result_bytes

Bound: TypeAlias = Literal[
    "frame_bytes",
    "json_depth",
    "prompt_bytes",
    "result_bytes",
    "tools",
    "registry_bytes",
    "schema_bytes",
    "schema_depth",
    "description_bytes",
    "timeout_ms",
]


class RequestError(Exception):
    """A frame that must not be written. Nothing was spent."""


class TooLargeError(RequestError):
    """Beyond a bound of the child: ``bound`` names it, ``size`` is what it would have been, ``limit`` what it may be.

    For depths ``size`` is the limit and one: how much deeper is not measured.
    """

    def __init__(self, bound: Bound, size: int, limit: int) -> None:
        super().__init__(f"{bound}: {size}, at most {limit}")
        self.bound: Bound = bound
        self.size = size
        self.limit = limit


class UnfitError(RequestError):
    """Not beyond a bound, but nothing that the child would take: a blank prompt, a lone surrogate, broken JSON."""


class RequestsSpentError(RequestError):
    """The child's request ids are used up; one is kept for ``shutdown``."""


class CallClosedError(RequestError):
    """The call was answered, cancelled or never made: nothing more is written for its id."""


@dataclass(frozen=True, slots=True)
class ToolDescriptor:
    """One tool as the child gets it: ``input_schema`` is encoded JSON inside the child's subset (bridge 4)."""

    name: str
    description: ModelText
    input_schema: ModelJson
    timeout_ms: int = CHILD_TIMEOUT_MAX_MS


@dataclass(frozen=True, slots=True)
class Request:
    """A request that may be written: ``data`` is its line with the LF. Its ``id`` is spent, written or not."""

    id: str
    method: Method
    data: bytes
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ResultRoom:
    """What is left for a result's text: ``raw`` bytes of UTF-8, and ``encoded`` bytes as JSON without the quotes
    (``encoded_bytes``). A text fits when it is within both. Negative: not even an empty one does."""

    raw: int
    encoded: int


class _Frame(Struct):
    protocol: str
    version: int
    id: str
    method: str
    params: Struct


class Empty(Struct):
    """Params of ``status``, ``shutdown``, ``session.create``."""


class Initialize(Struct, omit_defaults=True):
    """Params of ``initialize``; ``client_tools`` is the encoded registry."""

    required_capabilities: list[str]
    client_tools: Raw | UnsetType = UNSET


class OpenSession(Struct):
    """Params of ``session.open``."""

    session_id: str


class PageHistory(Struct):
    """Params of ``history.page``."""

    session_id: str
    revision: str
    cursor: str | None


class ListPage(Struct):
    """Params of ``session.list``, ``model.catalog``: both of them, or neither."""

    revision: str | None
    cursor: str | None


class SetEffort(Struct, tag_field="mode", tag="set"):
    """An effort of a selection."""

    value: Literal["low", "medium", "high", "xhigh", "max"]


class Select(Struct, omit_defaults=True):
    """Params of ``selection.set``."""

    session_id: str
    selection_revision: str
    catalog_revision: str
    provider: str
    model: str
    effort: SetEffort | UnsetType = UNSET


class StartTurn(Struct):
    """Params of ``turn.start``."""

    session_id: str
    prompt: str


class CancelTurn(Struct):
    """Params of ``turn.cancel``."""

    session_id: str
    run_id: str


class AnswerApproval(Struct):
    """Params of ``approval.answer``."""

    session_id: str
    run_id: str
    approval_id: str
    allow: bool


class AnswerCall(Struct, omit_defaults=True):
    """Params of ``client.tool.result``: the call's identity as it came, and the answer."""

    instance_id: str
    session_id: str
    run_id: str
    call_id: str
    task_id: str | None
    subagent_id: str | None
    status: Literal["success", "error"]
    text: str
    structured: Raw | UnsetType = UNSET


_ENCODER: Final = msgspec.json.Encoder()
_NAME: Final = re.compile(r"client__[A-Za-z0-9_]{1,56}")
_DESCRIPTION_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def encode_request(request_id: str, method: Method, params: Struct) -> bytes:
    """One line with its LF. Raises TooLargeError, UnfitError."""
    try:
        data = _ENCODER.encode(_Frame(PROTOCOL, VERSION, request_id, method, params))
    except UnicodeEncodeError:
        raise UnfitError("a lone surrogate") from None
    if len(data) > CHILD_INPUT_FRAME_BYTES:
        raise TooLargeError("frame_bytes", len(data), CHILD_INPUT_FRAME_BYTES)
    # A result's text is long and has no depth; what can have some is its structured value, two levels in.
    nested = params.structured if isinstance(params, AnswerCall) else data
    inside = CHILD_JSON_DEPTH if nested is data else CHILD_JSON_DEPTH - 2
    if nested is not UNSET and deeper_than(bytes(nested), inside):
        raise TooLargeError("json_depth", CHILD_JSON_DEPTH + 1, CHILD_JSON_DEPTH)
    return data + b"\n"


def encoded_bytes(text: str) -> int:
    """Bytes of ``text`` as a JSON string, without the quotes. Raises UnfitError for a lone surrogate."""
    try:
        return len(_ENCODER.encode(text)) - 2
    except UnicodeEncodeError:
        raise UnfitError("a lone surrogate") from None


def utf8_bytes(text: str) -> int:
    """Bytes of ``text`` in UTF-8. Raises UnfitError for a lone surrogate."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise UnfitError("a lone surrogate") from None


def start_turn(session_id: str, prompt: ModelText) -> StartTurn:
    """Raises TooLargeError, UnfitError."""
    size = utf8_bytes(prompt)
    if size > CHILD_PROMPT_BYTES:
        raise TooLargeError("prompt_bytes", size, CHILD_PROMPT_BYTES)
    if not prompt.strip():
        raise UnfitError("a blank prompt")
    return StartTurn(session_id, prompt)


def answer_call(
    instance_id: str, call: ToolCall, status: Literal["success", "error"], text: ModelText, structured: ModelJson | None
) -> AnswerCall:
    """``structured`` of None is left out; JSON's null is ``b"null"``. Raises TooLargeError, UnfitError."""
    compact = b"" if structured is None else compact_json(structured)
    size, limit = utf8_bytes(text) + len(compact), result_bytes(structured is not None)
    if size > limit:
        raise TooLargeError("result_bytes", size, limit)
    return _answer(instance_id, call, status, text, compact)


def result_room(instance_id: str, call: ToolCall, structured: ModelJson | None, id_bytes: int) -> ResultRoom:
    """The room for the text of an answer whose request id has at most ``id_bytes`` bytes. Raises TooLargeError,
    UnfitError."""
    compact = b"" if structured is None else compact_json(structured)
    limit = result_bytes(structured is not None)
    if len(compact) > limit:
        raise TooLargeError("result_bytes", len(compact), limit)
    # The longer of the two statuses is taken.
    empty = _answer(instance_id, call, "success", "", compact)
    taken = len(encode_request("r" * id_bytes, "client.tool.result", empty)) - 1
    return ResultRoom(limit - len(compact), CHILD_INPUT_FRAME_BYTES - taken)


def _answer(
    instance_id: str, call: ToolCall, status: Literal["success", "error"], text: str, structured: bytes
) -> AnswerCall:
    return AnswerCall(
        instance_id,
        call.session_id,
        call.run_id,
        call.call_id,
        call.task_id,
        call.subagent_id,
        status,
        text,
        Raw(structured) if structured else UNSET,
    )


def compact_json(value: bytes) -> bytes:
    """One JSON value without spaces, and without escapes that it does not need. Raises UnfitError.

    What is not JSON for every reader (a lone surrogate, a number out of range, a name twice, bytes that are no UTF-8)
    is refused: the child would refuse the whole frame without saying which.
    """
    if deeper_than(value, CHILD_JSON_DEPTH):
        raise TooLargeError("json_depth", CHILD_JSON_DEPTH + 1, CHILD_JSON_DEPTH)
    try:
        decoded: object = msgspec.json.decode(value)
        if repeats_a_name(value):
            raise UnfitError("a name stands twice in one object")
        compact = msgspec.json.format(value, indent=-1)
        return _ENCODER.encode(decoded) if b"\\u" in compact else compact
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        raise UnfitError("not JSON") from None


def encode_registry(tools: Sequence[ToolDescriptor]) -> Raw:
    """The registry, compact, as the child measures it. Raises TooLargeError, UnfitError."""
    if len(tools) > CHILD_TOOLS:
        raise TooLargeError("tools", len(tools), CHILD_TOOLS)
    if len({tool.name for tool in tools}) != len(tools):
        raise UnfitError("two tools of one name")
    registry = _ENCODER.encode([_descriptor(tool) for tool in tools])
    if len(registry) > CHILD_REGISTRY_BYTES:
        raise TooLargeError("registry_bytes", len(registry), CHILD_REGISTRY_BYTES)
    return Raw(registry)


class _Descriptor(Struct):
    name: str
    description: str
    input_schema: Raw
    timeout_ms: int


def _descriptor(tool: ToolDescriptor) -> _Descriptor:
    if not _NAME.fullmatch(tool.name):
        raise UnfitError("a tool's name is client__ and 1 to 56 of A-Z a-z 0-9 _")
    size = utf8_bytes(tool.description)
    if size > CHILD_DESCRIPTION_BYTES:
        raise TooLargeError("description_bytes", size, CHILD_DESCRIPTION_BYTES)
    if not tool.description.strip() or _DESCRIPTION_CONTROLS.search(tool.description):
        raise UnfitError(f"{tool.name}: the description is blank or has control characters")
    schema = compact_json(tool.input_schema)
    if len(schema) > CHILD_SCHEMA_BYTES:
        raise TooLargeError("schema_bytes", len(schema), CHILD_SCHEMA_BYTES)
    if deeper_than(schema, CHILD_SCHEMA_DEPTH):
        raise TooLargeError("schema_depth", CHILD_SCHEMA_DEPTH + 1, CHILD_SCHEMA_DEPTH)
    if not CHILD_TIMEOUT_MIN_MS <= tool.timeout_ms <= CHILD_TIMEOUT_MAX_MS:
        raise TooLargeError("timeout_ms", tool.timeout_ms, CHILD_TIMEOUT_MAX_MS)
    return _Descriptor(tool.name, tool.description, Raw(schema), tool.timeout_ms)
