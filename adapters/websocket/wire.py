"""Every frame of ``toolrelay.v1`` as a struct (websocket protocol, "Frames"). Owns shapes and bounds of fields only.

Fields that are not known are ignored, as a newer client may send them. ``null`` stands for an optional field that is
left out. The AsyncAPI document is generated from these structs.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from gateway.model import limits

SUBPROTOCOL: Final = "toolrelay.v1"

Id = Annotated[int, Meta(description="The client's own number of the frame; it is echoed.")]
SessionId = Annotated[str, Meta(max_length=64, description="A session's uuid.")]
ClientId = Annotated[str, Meta(max_length=64, description="A registration's uuid.")]
CallId = Annotated[str, Meta(min_length=1, max_length=256, description="A call's id, as its dispatched event has it.")]
Tools = Annotated[Any, Meta(description=f"The whole list of tools, at most {limits.TOOLS_PER_CLIENT}.")]
# "(?!\n)" because Python's "$" would let a line feed at the end pass.
ClientName = Annotated[str, Meta(pattern=rf"^[a-z0-9-]{{1,{limits.CLIENT_NAME_CHARS}}}(?!\n)$")]
ClientKey = Annotated[
    str,
    Meta(
        pattern=rf"^[^\x00-\x1f\x7f]{{{limits.CLIENT_KEY_MIN_CHARS},{limits.CLIENT_KEY_MAX_CHARS}}}(?!\n)$",
        description="The app's own name of this tab or worker; a newer registration with it takes the place over.",
    ),
]


class _Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="op"):
    id: Id


class Never(msgspec.Struct, frozen=True, tag_field="type", tag="never"):
    """A registration that stays, whoever is there."""


class TtlData(msgspec.Struct, frozen=True):
    """How long a registration lives without its socket."""

    seconds: Annotated[int, Meta(ge=limits.CLIENT_TTL_MIN_S, le=limits.CLIENT_TTL_MAX_S)]


class Ttl(msgspec.Struct, frozen=True, tag_field="type", tag="ttl"):
    """A registration that lapses some time after its socket has gone."""

    data: TtlData


class Attach(_Frame, frozen=True, kw_only=True, tag="attach"):
    """Read a session, and act for its clients, from here on. ``after_seq`` left out: the live head."""

    session_id: SessionId
    token: Annotated[str, Meta(max_length=4096)] | None = None
    after_seq: Annotated[int, Meta(ge=0)] | None = None


class Detach(_Frame, frozen=True, kw_only=True, tag="detach"):
    """End an attachment; the registrations that this socket holds in it begin to lapse."""

    session_id: SessionId


class Register(_Frame, frozen=True, kw_only=True, tag="register"):
    """Offer tools, held by this socket."""

    session_id: SessionId
    name: ClientName
    lifetime: Never | Ttl
    tools: Tools = None
    key: ClientKey | None = None


class Resume(_Frame, frozen=True, kw_only=True, tag="resume"):
    """Take a registration up again, with its open calls."""

    session_id: SessionId
    client_id: ClientId
    resume_key: Annotated[str, Meta(max_length=256)]


class ReplaceTools(_Frame, frozen=True, kw_only=True, tag="tools"):
    """Replace a registration's whole list."""

    session_id: SessionId | None = None
    client_id: ClientId
    tools: Tools


class Ack(_Frame, frozen=True, kw_only=True, tag="ack"):
    """This client works on a call."""

    session_id: SessionId | None = None
    client_id: ClientId
    call_id: CallId


class Result(_Frame, frozen=True, kw_only=True, tag="result"):
    """A call's answer. ``structured`` is any JSON, at most 64 KiB compact."""

    session_id: SessionId | None = None
    client_id: ClientId
    call_id: CallId
    text: Annotated[str, Meta(max_length=limits.RESULT_CHARS)]
    is_error: bool | None = None
    structured: Any = None


class Leave(_Frame, frozen=True, kw_only=True, tag="leave"):
    """End a registration; its open calls fail as ``client_gone``."""

    session_id: SessionId | None = None
    client_id: ClientId


class Input(_Frame, frozen=True, kw_only=True, tag="input"):
    """Say something to the agent."""

    session_id: SessionId
    text: str
    idempotency_key: (
        Annotated[str, Meta(min_length=1, max_length=limits.IDEMPOTENCY_KEY_CHARS, pattern=r"^[ -~]*(?!\n)$")] | None
    ) = None


class Cancel(_Frame, frozen=True, kw_only=True, tag="cancel"):
    """End the active run, or the oldest that waits."""

    session_id: SessionId


class Approve(_Frame, frozen=True, kw_only=True, tag="approve"):
    """Answer an approval."""

    session_id: SessionId
    call_id: CallId
    decision: Literal["allow", "deny"]
    message: Annotated[str, Meta(max_length=4096)] | None = None


class Ping(_Frame, frozen=True, kw_only=True, tag="ping"):
    """Measure."""


ClientOp = ReplaceTools | Ack | Result | Leave
"""Ops of one registration, whose session may be left out."""

Op = Attach | Detach | Register | Resume | ReplaceTools | Ack | Result | Leave | Input | Cancel | Approve | Ping
"""Every frame that a client sends."""

OPS: Final[tuple[type[_Frame], ...]] = (
    Attach,
    Detach,
    Register,
    Resume,
    ReplaceTools,
    Ack,
    Result,
    Leave,
    Input,
    Cancel,
    Approve,
    Ping,
)
BY_NAME: Final = {str(op.__struct_config__.tag): op for op in OPS}
"""One op by its name. (A conversion to a union builds the union anew each time, to one struct it does not.)"""
OP_NAMES: Final = frozenset(BY_NAME)

Status = Literal["idle", "active"]


class Attached(msgspec.Struct, frozen=True):
    """``attach``: every event with a greater seq follows."""

    seq: int
    status: Status


class Empty(msgspec.Struct, frozen=True):
    """``detach``, ``result``, ``leave``."""


class Registered(msgspec.Struct, frozen=True):
    """``register``. ``resume_key`` is shown once; ``expires_at`` is null while the socket holds the registration."""

    client_id: str
    name: str
    expires_at: str | None
    resume_key: str


class Resumed(msgspec.Struct, frozen=True):
    """``resume``: the dispatched events of the calls that are still open."""

    name: str
    expires_at: str | None
    calls: list[msgspec.Raw]


class Submitted(msgspec.Struct, frozen=True):
    """``input``."""

    outcome: Literal["new_run", "steered"]
    run_id: str


class Cancelled(msgspec.Struct, frozen=True):
    """``cancel``; null where there was no run."""

    run_id: str | None


class Time(msgspec.Struct, frozen=True):
    """``ping``: the bus clock, RFC 3339."""

    time: str


class ErrorBody(msgspec.Struct, frozen=True):
    """A refusal, as in HTTP's envelope."""

    code: str
    message: str


class Ok(msgspec.Struct, frozen=True):
    """A frame was done."""

    id: int
    ok: msgspec.Raw


class Error(msgspec.Struct, frozen=True):
    """A frame was refused; the socket and its other sessions do not notice."""

    id: int
    error: ErrorBody


class EventPush(msgspec.Struct, frozen=True):
    """An event of an attached session's log, as HTTP's stream has it."""

    session_id: str
    event: msgspec.Raw


class DeltaData(msgspec.Struct, frozen=True):
    """A piece of a message that is being written; unlogged, and it may be lost."""

    message_id: str
    part: int
    text: str


class DeltaPush(msgspec.Struct, frozen=True):
    """Text as it comes."""

    session_id: str
    delta: DeltaData


class ResetData(msgspec.Struct, frozen=True):
    """Events with a greater seq follow."""

    seq: int


class ResetPush(msgspec.Struct, frozen=True):
    """The place is no longer kept, or the reader fell too far behind: what lies between is read over HTTP."""

    session_id: str
    reset: ResetData


CloseReason = Literal["token_expired", "token_revoked", "deleted", "taken_over"]


class ClosedData(msgspec.Struct, frozen=True, omit_defaults=True):
    """``client_id`` is there when one registration has ended for this socket, not the attachment."""

    reason: CloseReason
    client_id: str | None = None


class ClosedPush(msgspec.Struct, frozen=True):
    """An attachment ended, or a registration was taken over by another socket."""

    session_id: str
    closed: ClosedData


class KeepalivePush(msgspec.Struct, frozen=True):
    """Every 20 seconds, whatever else is sent: it keeps a service worker awake."""

    keepalive: str


ANSWERS: Final = (Attached, Empty, Registered, Resumed, Submitted, Cancelled, Time)
PUSHES: Final = (EventPush, DeltaPush, ResetPush, ClosedPush, KeepalivePush)
