"""The child's frames: every kind, typed. Owns their shapes and closed sets of words; must never hold state.

Source: stdio protocol, Framing, Run events, Client tools. Strict where the protocol is: the envelope, the two client
tool events, all enumerations and error codes. Tolerant where it says so: further fields in results and in run events.
"""

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

PROTOCOL: Final = "magi-code.local-agent"
VERSION: Final = 1
PROTOCOL_MARKER: Final = b'"magi-code.local-agent"'
"""In every frame, and in no text inside one: a quote in a text is escaped."""

Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1024)]
"""Opaque; ours to copy back and never to read."""
CallId: TypeAlias = Annotated[str, Meta(max_length=1024, pattern=r"^[!#-\[\]-~]+\Z")]
"""Opaque too, but printable ASCII without quote and backslash: paths hold it, and events that scripts write."""
Natural: TypeAlias = Annotated[int, Meta(ge=0)]

ActivityKind: TypeAlias = Literal["tool", "subagent", "compaction"]
ActivityState: TypeAlias = Literal["started", "completed", "failed"]
Outcome: TypeAlias = Literal["completed", "cancelled", "failed"]
Persistence: TypeAlias = Literal["durable", "degraded", "not_started"]
CancelReason: TypeAlias = Literal["cancelled", "timeout", "run_finished", "shutdown"]

ERROR_CODES: Final = frozenset(
    {
        "invalid_frame",
        "invalid_request",
        "invalid_params",
        "protocol_mismatch",
        "unsupported_method",
        "unsupported_capability",
        "not_initialized",
        "already_initialized",
        "duplicate_id",
        "request_limit",
        "frame_too_large",
        "incomplete_frame",
        "configuration_invalid",
        "provider_unavailable",
        "profile_invalid",
        "mcp_unavailable",
        "startup_cancelled",
        "startup_failed",
        "busy",
        "stale_session",
        "session_missing",
        "session_busy",
        "session_invalid",
        "cwd_mismatch",
        "history_limit",
        "stale_revision",
        "content_limit",
        "operation_cancelled",
        "operation_missing",
        "discovery_limit",
        "discovery_unavailable",
        "discovery_record_bytes",
        "discovery_page_bytes",
        "catalog_limit",
        "catalog_unavailable",
        "stale_catalog",
        "stale_selection",
        "selection_invalid",
        "effort_unsupported",
        "stale_run",
        "stale_approval",
        "execution_failed",
        "persistence_failed",
        "output_unavailable",
        "stale_client_tool_call",
    }
)
"""All that an error response or ``run.finished`` may carry; any other code fails closed."""


class ErrorBody(Struct, frozen=True, forbid_unknown_fields=True):
    """``error`` of a response."""

    code: str


class Envelope(Struct, frozen=True, forbid_unknown_fields=True):
    """Any output frame, its payload still encoded."""

    protocol: str
    version: int
    type: str
    instance_id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
    seq: Annotated[int, Meta(ge=1, le=2**53)]
    id: str | UnsetType | None = UNSET
    result: Raw = Raw(b"")
    error: ErrorBody | UnsetType = UNSET
    event: str | UnsetType = UNSET
    data: Raw = Raw(b"")


# Run events.


class InputPersisted(Struct, frozen=True):
    """The prompt is in the child's history: from here on the session id is worth keeping."""

    session_id: Id
    run_id: Id
    message_id: Id
    durable: bool
    revision: str


class MessageDelta(Struct, frozen=True):
    """A best-effort piece of a message. Its ``part`` has nothing to do with the parts of a reconcile."""

    session_id: Id
    run_id: Id
    message_id: Id
    part: Natural
    text: str


class MessageReconcile(Struct, frozen=True):
    """One part of a message's authoritative text; the parts joined replace its deltas."""

    session_id: Id
    run_id: Id
    message_id: Id
    part: Natural
    text: str
    last_part: bool
    partial: bool


class Activity(Struct, frozen=True):
    """A tool, a subagent or a compaction starts or ends. ``name`` and ``summary`` may quote commands: redact them."""

    session_id: Id
    run_id: Id
    activity_id: Id
    kind: ActivityKind
    state: ActivityState
    name: str
    summary: str


class ApprovalRequested(Struct, frozen=True):
    """The child waits for a yes or no; without one it denies after ``expires_in_ms``."""

    session_id: Id
    run_id: Id
    approval_id: Id
    summary: str
    expires_in_ms: Natural


class Diagnostic(Struct, frozen=True):
    """A remark of the child. Its codes are an open set."""

    session_id: Id
    run_id: Id
    code: str
    summary: str


class RunFinished(Struct, frozen=True):
    """The run's last event, once."""

    session_id: Id
    run_id: Id
    outcome: Outcome
    persistence: Persistence
    revision: str | None
    error_code: str | None


class ToolCall(Struct, frozen=True, forbid_unknown_fields=True):
    """The child asks for a client tool. ``arguments`` is an object, encoded; UTF-8, depth and names were checked."""

    session_id: Id
    run_id: Id
    call_id: CallId
    task_id: str | None
    subagent_id: str | None
    name: str
    arguments: Raw
    timeout_ms: Annotated[int, Meta(ge=1)]


class ToolCancel(Struct, frozen=True, forbid_unknown_fields=True):
    """The child waits no longer for this call."""

    session_id: Id
    run_id: Id
    call_id: CallId
    task_id: str | None
    subagent_id: str | None
    reason: CancelReason


class CardHead(Struct, frozen=True):
    """The part of a card that is checked; the rest is display data."""

    schema_version: Literal[1]
    card_id: Id
    activity_id: Id
    revision: Natural
    state: Literal["running", "finished"]
    outcome: Literal["success", "failure", "cancelled", "interrupted", "unknown"] | None
    changes: Literal["not_applicable", "none", "applied", "partial", "unknown"]


class ToolCard(Struct, frozen=True):
    """A display card (only when ``tool.cards`` was negotiated): a whole snapshot, encoded."""

    session_id: Id
    run_id: Id
    activity_id: Id
    part: Natural
    last_part: bool
    card: Raw


RunEvent: TypeAlias = (
    InputPersisted
    | MessageDelta
    | MessageReconcile
    | Activity
    | ApprovalRequested
    | Diagnostic
    | RunFinished
    | ToolCall
    | ToolCancel
    | ToolCard
)

RUN_EVENTS: Final[dict[str, type[RunEvent]]] = {
    "input.persisted": InputPersisted,
    "message.delta": MessageDelta,
    "message.reconcile": MessageReconcile,
    "activity": Activity,
    "approval.requested": ApprovalRequested,
    "diagnostic": Diagnostic,
    "run.finished": RunFinished,
    "client.tool.call": ToolCall,
    "client.tool.cancel": ToolCancel,
    "tool.card": ToolCard,
}
