"""The log's events. Owns their shapes and their one encoding; a payload can be built only from redacted text.

An ``EventPayload`` is an event's JSON object without its ``seq``: the script that appends it puts the number in
front, so an event is encoded once for the log and for every reader (HTTP protocol, "Events"). Ids are UUIDs or
names that were checked against an alphabet; all free text is ``LogText``, all free JSON ``LogJson``.
"""

from typing import Final, Literal, NewType

import msgspec

from gateway.model.clean import LogJson, LogText

EventPayload = NewType("EventPayload", bytes)
"""One encoded event without ``seq``. Only this module makes them."""

OpenPayload = NewType("OpenPayload", bytes)
"""An encoded event whose closing brace is left to a script, which adds what only it knows (instants)."""

_encode: Final = msgspec.json.Encoder().encode
RunEnd = Literal["run_completed", "run_cancelled"]


class _Event(msgspec.Struct, tag_field="type", omit_defaults=True):
    pass


class TextData(msgspec.Struct):
    text: LogText


class TextBlock(msgspec.Struct, tag_field="type", tag="text"):
    """A text content block, adjacently tagged."""

    data: TextData


class ToolCallData(msgspec.Struct):
    id: str
    name: str
    arguments: msgspec.Raw


class ToolCallBlock(msgspec.Struct, tag_field="type", tag="tool_call"):
    """A tool call content block, adjacently tagged."""

    data: ToolCallData


Block = TextBlock | ToolCallBlock


class Message(msgspec.Struct):
    """A message of a conversation."""

    role: Literal["user", "assistant"]
    content: list[Block]


class SessionCreated(_Event, tag="session_created"):
    agent_id: str
    agent_version_id: str


class MessageUser(_Event, tag="message_user"):
    message: Message
    source: Literal["client", "steer", "external"]


class MessageAssistant(_Event, tag="message_assistant"):
    message: Message
    message_id: str | None = None


class ToolCalled(_Event, tag="tool_call"):
    call_id: str
    name: str
    arguments: msgspec.Raw


class ToolResult(_Event, tag="tool_result"):
    call_id: str
    content: list[Block]
    is_error: bool


class RunQueued(_Event, tag="run_queued"):
    run_id: str


class RunStarted(_Event, tag="run_started"):
    run_id: str


class RunCompleted(_Event, tag="run_completed"):
    run_id: str


class RunCancelled(_Event, tag="run_cancelled"):
    run_id: str


class RunFailed(_Event, tag="run_failed"):
    run_id: str
    error: LogText


class ErrorEvent(_Event, tag="error"):
    message: LogText


class ApprovalRequested(_Event, tag="approval_requested"):
    call_id: str
    server: str
    tool: str
    arguments: msgspec.Raw
    args_hash: str


class ApprovalResolved(_Event, tag="approval_resolved"):
    call_id: str
    decision: Literal["allow", "deny"]
    deny_message: LogText | None = None
    resolved_by: str | None = None


class ClientRegistered(_Event, tag="client_registered"):
    client_id: str
    name: str
    lifetime: msgspec.Raw
    tools: msgspec.Raw


class ClientToolsUpdated(_Event, tag="client_tools_updated"):
    client_id: str
    tools: msgspec.Raw


class ClientLeft(_Event, tag="client_left"):
    client_id: str
    reason: Literal["departed", "timed_out"]


class ClientToolDispatched(_Event, tag="client_tool_dispatched"):
    client_id: str
    call_id: str
    tool: str
    arguments: msgspec.Raw
    attempt: int = 0  # never 0 on the wire
    deadline: str | None = None
    ack_by: str | None = None
    remaining_ms: int | None = None


class ClientToolAcked(_Event, tag="client_tool_acked"):
    client_id: str
    call_id: str


class ClientToolFailed(_Event, tag="client_tool_failed"):
    client_id: str
    call_id: str
    reason: Literal["client_gone", "ack_timeout", "result_timeout", "run_gone"]
    detail: str | None = None
    outcome: str | None = None


class Custom(_Event, tag="custom"):
    kind: str
    payload: msgspec.Raw


EVENT_TYPES: Final[tuple[type[msgspec.Struct], ...]] = (
    SessionCreated,
    MessageUser,
    MessageAssistant,
    ToolCalled,
    ToolResult,
    RunQueued,
    RunStarted,
    RunCompleted,
    RunCancelled,
    RunFailed,
    ErrorEvent,
    ApprovalRequested,
    ApprovalResolved,
    ClientRegistered,
    ClientToolsUpdated,
    ClientLeft,
    ClientToolDispatched,
    ClientToolAcked,
    ClientToolFailed,
    Custom,
)
"""Every event of the log, for whoever describes them."""


def _payload(event: _Event) -> EventPayload:
    return EventPayload(_encode(event))


def _text(text: LogText) -> list[Block]:
    return [TextBlock(TextData(text))]


def session_created(agent_id: str, agent_version_id: str) -> EventPayload:
    """The first event of every log."""
    return _payload(SessionCreated(agent_id, agent_version_id))


def message_user(text: LogText) -> EventPayload:
    """A turn's input, logged once the child has it (or when its run fails before)."""
    return _payload(MessageUser(Message("user", _text(text)), "client"))


def message_assistant(text: LogText, message_id: str | None = None) -> EventPayload:
    """A closed message of the agent (bridge 8). ``message_id`` is the one of its deltas: an addition of ours, so that a
    reader of both can put the message in their place."""
    return _payload(MessageAssistant(Message("assistant", _text(text)), message_id))


def message_assistant_call(call_id: str, name: str, arguments: LogJson) -> EventPayload:
    """The block that readers join a call's result to (HTTP protocol, "Transcript")."""
    block = ToolCallBlock(ToolCallData(call_id, name, msgspec.Raw(arguments)))
    return _payload(MessageAssistant(Message("assistant", [block])))


def tool_call(call_id: str, name: str, arguments: LogJson) -> EventPayload:
    """A call by its model name."""
    return _payload(ToolCalled(call_id, name, msgspec.Raw(arguments)))


def tool_result(call_id: str, text: LogText, *, is_error: bool) -> EventPayload:
    """What a call was answered with."""
    return _payload(ToolResult(call_id, _text(text), is_error))


def run_queued(run_id: str) -> EventPayload:
    """An input was accepted; every one gets a terminal event."""
    return _payload(RunQueued(run_id))


def run_completed(run_id: str) -> EventPayload:
    """A run ended well."""
    return _payload(RunCompleted(run_id))


def run_cancelled(run_id: str) -> EventPayload:
    """A run was cancelled, active or queued."""
    return _payload(RunCancelled(run_id))


def run_failed(run_id: str, error: LogText) -> EventPayload:
    """A run failed; ``error`` begins with the reason's name."""
    return _payload(RunFailed(run_id, error))


def error(message: LogText) -> EventPayload:
    """Something about the session that no run's end says."""
    return _payload(ErrorEvent(message))


def approval_requested(call_id: str, arguments: LogJson, args_hash: str) -> EventPayload:
    """The child asks before it acts (bridge 8, "Approvals")."""
    return _payload(ApprovalRequested(call_id, "agent", "approval", msgspec.Raw(arguments), args_hash))


def approval_resolved(
    call_id: str, decision: Literal["allow", "deny"], deny_message: LogText | None, resolved_by: str | None
) -> EventPayload:
    """An approval was answered, expired or ended with its run; the last two are denials."""
    return _payload(ApprovalResolved(call_id, decision, deny_message, resolved_by))


def client_registered(client_id: str, lifetime: LogJson, tools: LogJson) -> OpenPayload:
    """A client joined; the script adds the name that it hands out."""
    head = _encode({"type": "client_registered", "client_id": client_id})[:-1]
    return OpenPayload(b'%s,"lifetime":%s,"tools":%s' % (head, lifetime, tools))


def client_tools_updated(client_id: str, tools: LogJson) -> EventPayload:
    """A client's whole list, replaced."""
    return _payload(ClientToolsUpdated(client_id, msgspec.Raw(tools)))


def custom(kind: str, payload: LogJson) -> EventPayload:
    """What the two protocols have no event for: activities, diagnostics, cards, resets."""
    return _payload(Custom(kind, msgspec.Raw(payload)))


def seq_of(event: bytes) -> int:
    """The ``seq`` of an event as a script wrote it: ``{"seq":N,…``. Raises ValueError for anything else."""
    if not event.startswith(b'{"seq":'):
        raise ValueError("not an event of the log")
    return int(event[7 : event.index(b",", 7)])
