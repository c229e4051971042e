"""The bodies of the HTTP protocol, as structs. Owns their fields and bounds; events and tools are the model's.

Requests ignore fields that are not known: a client of the original may send more. A nullable field that the protocol's
clients require is always there.
"""

from typing import Annotated, Any, Final, Literal
from uuid import UUID, uuid5

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from gateway.bus.store import rfc3339
from gateway.config.settings import AGENT_NAMESPACE, WORKSPACE_ID
from gateway.model import limits
from gateway.model.enquiries import NAME_CHARS, Effort

# Behind a `$` alone Python would let one line feed pass.
Name = Annotated[str, Meta(min_length=1, max_length=limits.CLIENT_NAME_CHARS, pattern=r"^[a-z0-9-]+(?!\n)$")]
Key = Annotated[str, Meta(min_length=limits.CLIENT_KEY_MIN_CHARS, max_length=limits.CLIENT_KEY_MAX_CHARS)]
Instant = Annotated[str, Meta(description="RFC 3339, UTC.", extra_json_schema={"format": "date-time"})]
Id = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]

AGENTS_SINCE: Final = "2025-01-01T00:00:00.000Z"
"""``created_at`` of every agent: a configured one has no such instant, and clients insist on one."""


# --- requests


class CreateSession(Struct):
    """``POST /v1/sessions``. There are no vaults here: ``vault_ids`` is checked and means nothing."""

    agent_id: UUID
    display_name: Annotated[str, Meta(max_length=limits.DISPLAY_NAME_CHARS)] | None = None
    vault_ids: Annotated[list[UUID], Meta(max_length=10)] | None = None


class Input(Struct):
    """``POST …/events``."""

    type: Literal["input"]
    text: Annotated[str, Meta(extra_json_schema={"minLength": 1, "pattern": r"\S", "description": "Not blank."})]


class Never(Struct, tag_field="type", tag="never"):
    """A registration that ends by leaving alone."""


class TtlData(Struct):
    """Seconds after the last ping."""

    seconds: Annotated[int, Meta(ge=limits.CLIENT_TTL_MIN_S, le=limits.CLIENT_TTL_MAX_S)]


class Ttl(Struct, tag_field="type", tag="ttl"):
    """A registration that lapses when its pings stop."""

    data: TtlData


class ToolForm(Struct, omit_defaults=True):
    """A tool as a client declares it; for the description alone, as the model checks what comes."""

    name: Annotated[str, Meta(min_length=1, max_length=limits.TOOL_NAME_CHARS, pattern="^[A-Za-z0-9_-]+$")]
    description: Annotated[str, Meta(max_length=limits.TOOL_DESCRIPTION_CHARS)]
    parameters: dict[str, Any]
    timeout_ms: Annotated[int, Meta(ge=1)] | None = None
    idempotent: bool = False


_LIST: Final[dict[str, Any]] = {
    "type": "array",
    "maxItems": limits.TOOLS_PER_CLIENT,
    "items": {"$ref": "#/components/schemas/ToolForm"},
}


class Register(Struct):
    """``POST …/clients``. ``tools`` is checked by the model, which names a bad one by its place."""

    name: Name
    lifetime: Never | Ttl
    tools: Annotated[Any, Meta(extra_json_schema={**_LIST, "type": ["array", "null"]})] = None
    key: Key | None = None


class Tools(Struct):
    """``PUT …/tools``."""

    tools: Annotated[Any, Meta(extra_json_schema=_LIST)]


class Result(Struct):
    """``POST …/result``; ``structured`` keeps its numbers as they came."""

    text: Annotated[str, Meta(max_length=limits.RESULT_CHARS)]
    is_error: bool | None = None
    structured: Raw | UnsetType = UNSET


class Allow(Struct, tag_field="decision", tag="allow"):
    """An approval that is granted; it takes no message."""

    message: Any | UnsetType = UNSET


class Deny(Struct, tag_field="decision", tag="deny"):
    """An approval that is refused."""

    message: str | None = None


Decision = Allow | Deny

ModelName = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS, pattern=r"^[!-~]+(?: [!-~]+)*(?!\n)$")]


class SelectModel(Struct):
    """``PUT …/model``: one of ``GET …/models``."""

    provider: ModelName
    model: ModelName
    effort: Effort | None = None


# --- answers


class CreatedBy(Struct):
    """Who made a session."""

    api_key_id: Id
    label: str
    type: Literal["api_key"] = "api_key"


class Session(Struct, omit_defaults=True):
    """A session. The fields behind ``created_at`` stand where the protocol has them."""

    id: Id
    agent_id: Id
    agent_version_id: Id
    workspace_id: Id
    display_name: str
    status: Literal["idle", "active"]
    created_at: Instant
    created_by: CreatedBy | UnsetType = UNSET
    session_token: str | UnsetType = UNSET
    session_token_id: Id | UnsetType = UNSET
    session_token_expires_at: Instant | UnsetType = UNSET


class SessionPage(Struct):
    """``GET /v1/sessions``; the cursor goes on as ``after``."""

    items: list[Session]
    next_cursor: Id | None


class NewToken(Struct):
    """A token, shown once."""

    session_token: str
    expires_at: Instant


class TokenReceipt(Struct):
    """A token that the same key made before."""

    id: Id
    session_id: Id
    expires_at: Instant


class Submitted(Struct):
    """Where an input went."""

    outcome: Literal["new_run", "steered"]
    run_id: Id


class Cancelled(Struct):
    """The run that a cancel touched."""

    run_id: Id | None


class Registered(Struct):
    """A registration's id, the name that it was given, when it lapses."""

    id: Id
    name: str
    expires_at: Instant | None


class Ping(Struct):
    """When a registration lapses now."""

    expires_at: Instant | None


class Agent(Struct):
    """A configured agent."""

    id: Id
    name: str
    workspace_id: Id
    created_at: Instant


class AgentPage(Struct):
    """``GET /v1/agents``."""

    items: list[Agent]
    next_cursor: Id | None


class Tool(Struct, omit_defaults=True):
    """A tool as its client declared it."""

    name: str
    description: str
    parameters: Raw
    timeout_ms: int | None = None
    idempotent: bool = False


class Client(Struct):
    """A registration as it stands."""

    id: Id
    name: str
    key: str | None
    state: Literal["online", "asleep", "gone"]
    expires_at: Instant | None
    tools: list[Tool]


class ClientPage(Struct):
    """``GET …/clients``: all of them, 32 at most."""

    items: list[Client]
    next_cursor: None = None


class Call(Struct):
    """A call as it stands."""

    call_id: str
    client_id: Id
    tool: str
    model_name: str
    run_id: Id
    state: Literal["dispatched", "acked", "answered", "failed"]
    attempt: int
    outcome: Literal["done", "not_started", "unknown"] | None
    reason: Literal["client_gone", "ack_timeout", "result_timeout", "run_gone"] | None
    delivery: str | None
    dispatched_at: Instant
    due: Instant | None
    deadline: Instant
    settled_at: Instant | None


class CallPage(Struct):
    """``GET …/calls``; the cursor goes on as ``after``."""

    items: list[Call]
    next_cursor: str | None


class CatalogItem(Struct):
    """A tool that is offered: what the model calls it, whether it is one of the child's own, what was cut and why."""

    model_name: str
    client_id: Id
    tool: str
    native: bool
    notes: list[str]


class Catalog(Struct):
    """``GET …/catalog``; ``generation`` counts the session's children, 0 before the first."""

    generation: int
    items: list[CatalogItem]


class EventPage(Struct):
    """``GET …/events``; the cursor goes on as ``after_seq`` (asc) or ``before_seq`` (desc)."""

    items: list[dict[str, Any]]
    next_cursor: int | None


def instant(at_ms: int | None) -> str | None:
    """An instant of the bus clock on the wire."""
    return None if at_ms is None else rfc3339(at_ms)


def agent_version_id(agent_id: str) -> str:
    """The one version that a configured agent has."""
    return str(uuid5(AGENT_NAMESPACE, f"{agent_id}:version"))


def api_key_id(label: str) -> str:
    """The id of the API key with that label: the label is unique and outlives a rotation."""
    return str(uuid5(UUID(WORKSPACE_ID), f"api_key:{label}"))
