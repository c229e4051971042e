"""The shape of the configuration, with each setting's unit, default, bound and one line of help.

Owns the structs of the TOML tables. ``docs/configuration.md``, ``config example`` and ``config schema`` are generated
from them. Must never read a file or the environment: that is ``load``'s work.
"""

from typing import Annotated, Literal
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec
from msgspec import Meta, Struct

from gateway.config import checks
from gateway.config.secret import Secret
from gateway.model import limits

AGENT_NAMESPACE = uuid5(NAMESPACE_URL, "urn:toolrelay:agent")
"""The namespace of agents' ids: an agent without an ``id`` has the UUIDv5 of its name in it, on every node."""

WORKSPACE_ID = str(uuid5(NAMESPACE_URL, "urn:toolrelay:workspace"))
"""The one workspace that a gateway serves; clients of the HTTP protocol expect a session and an agent to have one."""

Role = Literal["edge", "agents"]
LogLevel = Literal["debug", "info", "warning", "error"]
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")

DAY_S = 24 * 3600

SECRET_MIN_CHARS = 8
"""A shorter value of a child's environment is no secret that could be found in a text (bridge 11a)."""


def _doc(text: str, unit: str = "", *, ge: float | None = None, le: float | None = None) -> Meta:
    return Meta(description=text, ge=ge, le=le, extra={"unit": unit})


class Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the configuration."""


class Server(Table, frozen=True, kw_only=True):
    """Where this node listens and what it does."""

    host: Annotated[str, _doc("Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, _doc("Port to listen on; 0 takes a free one.", ge=0, le=65_535)] = 8080
    roles: Annotated[
        tuple[Role, ...],
        _doc("What this node does: `edge` serves HTTP, SSE and WebSocket; `agents` owns children."),
    ] = ("edge", "agents")
    node_name: Annotated[
        str,
        _doc("Name of this node. Empty: host name and a suffix, made once and kept in `state_dir`. A session's home."),
    ] = ""
    state_dir: Annotated[
        str,
        _doc(
            "Folder for what this node keeps; locked, so a second `serve` needs its own. "
            "Empty: `${XDG_STATE_HOME:-~/.local/state}/toolrelay`."
        ),
    ] = ""
    allowed_hosts: Annotated[
        tuple[str, ...],
        _doc("Host names that requests may name. Empty: the host of `public_url`, or the loopback names without one."),
    ] = ()
    public_url: Annotated[str, _doc("Address that browsers use, such as `https://tools.example`; no path.")] = ""
    metrics_port: Annotated[
        int, _doc("A port of its own for `/metrics`; 0 serves it with everything else.", ge=0, le=65_535)
    ] = 0
    log_level: Annotated[LogLevel, _doc("The least level that is logged.")] = "info"

    def __post_init__(self) -> None:
        checks.listen_host(self.host)
        checks.roles(self.roles)
        checks.node_name(self.node_name)
        checks.host_names(self.allowed_hosts)
        checks.public_url(self.public_url)


class Redis(Table, frozen=True, kw_only=True):
    """The bus."""

    url: Annotated[
        Secret,
        _doc(
            "`embedded` (a server of this node's own), `redis://`, `rediss://`, `unix://`, "
            "`redis+sentinel://h1:p1,h2:p2/name` or `redis+cluster://h:p`."
        ),
    ] = msgspec.field(default_factory=lambda: Secret("embedded"))
    prefix: Annotated[str, _doc("First part of every key: gateways with different prefixes share one server.")] = "tr"

    def __post_init__(self) -> None:
        checks.redis_url(self.url.reveal())
        checks.redis_prefix(self.prefix)


class ApiKey(Table, frozen=True, kw_only=True):
    """A key of a backend."""

    label: Annotated[str, _doc("Name of the key in logs and in `created_by`; unique.")]
    key: Annotated[Secret, _doc("The key, at least 16 printable characters.")]
    agents: Annotated[tuple[str, ...], _doc("Names of the agents that this key reaches. Empty: all.")] = ()

    def __post_init__(self) -> None:
        checks.label(self.label)
        checks.key(self.key.reveal())


class Auth(Table, frozen=True, kw_only=True):
    """Who may do what."""

    api_keys: Annotated[tuple[ApiKey, ...], _doc("Keys of backends: `[{ label, key, agents }]`.")] = ()
    session_token_ttl_s: Annotated[
        int, _doc("How long a session token is good for.", "seconds", ge=60, le=30 * DAY_S)
    ] = 86_400
    operator_key: Annotated[
        Secret,
        _doc("Key of whoever runs this gateway, for the command line: as an API key for every agent. Empty: none."),
    ] = msgspec.field(default_factory=lambda: Secret(""))

    def __post_init__(self) -> None:
        checks.unique("label", [key.label for key in self.api_keys])
        if self.operator_key:
            checks.key(self.operator_key.reveal())


class Limits(Table, frozen=True, kw_only=True):
    """Bounds that an operator may set. Those of the protocols are fixed."""

    max_children: Annotated[int, _doc("Children on this node at once.", "children", ge=1, le=4_096)] = 64
    max_sessions: Annotated[int, _doc("Sessions that may exist in this Redis.", "sessions", ge=1, le=10_000_000)] = (
        100_000
    )
    max_sockets: Annotated[int, _doc("WebSockets open on this node at once.", "sockets", ge=1, le=1_000_000)] = 10_000
    max_streams: Annotated[int, _doc("SSE streams open on this node at once.", "streams", ge=1, le=1_000_000)] = 10_000
    requests_per_second: Annotated[
        float, _doc("Requests of one token or key, on average, on this node.", "requests per second", ge=1, le=1e6)
    ] = 100.0
    request_burst: Annotated[
        int, _doc("Requests of one token or key that may come at once.", "requests", ge=1, le=1_000_000)
    ] = 400
    auth_failures_per_minute: Annotated[
        int, _doc("Refused credentials from one address before it has to wait.", "failures", ge=1, le=1_000_000)
    ] = 60
    body_bytes: Annotated[int, _doc("Largest request body.", "bytes", ge=1024 * 1024, le=limits.BODY_BYTES)] = (
        limits.BODY_BYTES
    )
    deadline_margin_ms: Annotated[
        int, _doc("The child's clock less this is a call's deadline.", "milliseconds", ge=50, le=10_000)
    ] = limits.DEADLINE_MARGIN_MS
    start_wait_s: Annotated[float, _doc("How long an input waits for a free child.", "seconds", ge=0, le=3_600)] = 30.0
    home_wait_s: Annotated[
        float, _doc("How long an input waits for its session's node to come back.", "seconds", ge=0, le=86_400)
    ] = 60.0
    isolation_s: Annotated[
        float, _doc("How long an owner that cannot reach Redis keeps its children.", "seconds", ge=1, le=3_600)
    ] = 15.0
    drain_s: Annotated[float, _doc("How long a node that goes away waits for its runs.", "seconds", ge=0, le=3_600)] = (
        30.0
    )
    session_ttl_s: Annotated[
        int, _doc("A session ends so long after its last activity.", "seconds", ge=60, le=3_650 * DAY_S)
    ] = limits.SESSION_TTL_S
    log_events: Annotated[int, _doc("Events that a session's log keeps.", "events", ge=1_000, le=1_000_000)] = (
        limits.LOG_EVENTS
    )
    settled_call_ttl_s: Annotated[
        int, _doc("How long a settled call's record is kept.", "seconds", ge=60, le=365 * DAY_S)
    ] = limits.SETTLED_CALL_TTL_S


class Agent(Table, frozen=True, kw_only=True):
    """A kind of child: what is started for a session that names it."""

    name: Annotated[str, _doc("Name of the agent; unique.")]
    id: Annotated[str, _doc("A uuid. Empty: the UUIDv5 of the name under a fixed namespace.")] = ""
    command: Annotated[tuple[str, ...], _doc("Program and arguments; no shell.")]
    cwd: Annotated[
        str, _doc("Folder of the child. With `{session_id}` in it each session has one of its own, created.")
    ]
    env: Annotated[
        dict[str, Secret],
        _doc("Environment of the child. Nothing else is inherited but PATH, HOME, LANG, TZ, TMPDIR."),
    ] = {}
    allowed_origins: Annotated[
        tuple[str, ...], _doc("Origins of pages and extensions that may use the agent's sessions; exact.")
    ] = ()
    idle_timeout_s: Annotated[
        float, _doc("An idle child is stopped after this; the next input starts another.", "seconds", ge=1, le=86_400)
    ] = 600.0
    max_open_files: Annotated[
        int, _doc("Files that one process of a child may have open. 0: as many as the node.", "files", ge=0, le=1 << 20)
    ] = 4_096
    max_memory_mib: Annotated[
        int, _doc("Address space of one process of a child. 0: no bound of ours.", "MiB", ge=0, le=1 << 24)
    ] = 0
    max_file_mib: Annotated[
        int, _doc("Largest file that a child may write. 0: no bound of ours.", "MiB", ge=0, le=1 << 24)
    ] = 0
    max_cpu_s: Annotated[
        int,
        _doc("Processor time of one process of a child in its life. 0: no bound of ours.", "seconds", ge=0, le=1 << 24),
    ] = 0
    redact_arguments_by_name: Annotated[
        bool, _doc("Take values under credential-like names out of the arguments that a client gets, too.")
    ] = False
    dynamic_tools: Annotated[bool, _doc("Offer `client__tools` and `client__use` beside the native tools.")] = True
    delegated_use: Annotated[
        tuple[str, ...], _doc("Model names that a delegated task may reach by `client__use`. Empty: none.")
    ] = ()
    tokens_may_approve: Annotated[bool, _doc("Session tokens may answer approvals.")] = False
    storage: Annotated[
        Literal["node", "shared"],
        _doc("`node`: a session's child can live on its node only. `shared`: on any node with this agent."),
    ] = "node"
    on_lost_session: Annotated[
        Literal["error", "restart"],
        _doc("When the child lost its session. `error`: the run fails. `restart`: a new child session."),
    ] = "error"

    def __post_init__(self) -> None:
        checks.agent_name(self.name)
        msgspec.structs.force_setattr(self, "id", checks.uuid_text(self.id) or str(uuid5(AGENT_NAMESPACE, self.name)))
        checks.command(self.command)
        checks.cwd(self.cwd)
        checks.environment_names(self.env)
        checks.origins(self.allowed_origins)

    def environment(self) -> dict[str, str]:
        """The configured variables with their values, for the process alone."""
        return {name: value.reveal() for name, value in self.env.items()}

    @property
    def uuid(self) -> UUID:
        """``id`` as a uuid."""
        return UUID(self.id)


class Settings(Table, frozen=True, kw_only=True):
    """The whole configuration of one node."""

    server: Server = Server()
    redis: Redis = msgspec.field(default_factory=Redis)
    auth: Auth = msgspec.field(default_factory=Auth)
    limits: Limits = Limits()
    agents: tuple[Agent, ...] = ()

    def __post_init__(self) -> None:
        names = [agent.name for agent in self.agents]
        checks.unique("agent name", names)
        checks.unique("agent id", [agent.id for agent in self.agents])
        for key in self.auth.api_keys:
            for name in key.agents:
                if name not in names:
                    raise ValueError(f"API key {key.label} names the agent {name}, which is not configured")

    def agent(self, agent_id: str) -> Agent | None:
        """The agent of that id (lower-case uuid text), if it is configured here."""
        return next((agent for agent in self.agents if agent.id == agent_id), None)


def known_secrets(settings: Settings) -> list[tuple[str, str]]:
    """Every ``(value, label)`` that redaction must know (bridge 11a).

    API keys, the operator key, Redis passwords, and of agents' environments what came by ``env:`` or ``file:`` and has
    at least 8 characters. Labels name the setting and never the value; a value is listed once.
    """
    found: dict[str, str] = {}
    for key in settings.auth.api_keys:
        found.setdefault(key.key.reveal(), f"api_key:{key.label}")
    if settings.auth.operator_key:
        found.setdefault(settings.auth.operator_key.reveal(), "operator_key")
    for password in checks.redis_passwords(settings.redis.url.reveal()):
        found.setdefault(password, "redis_password")
    for agent in settings.agents:
        for name, value in agent.env.items():
            text = value.reveal()
            if value.source != "literal" and len(text) >= SECRET_MIN_CHARS:
                found.setdefault(text, f"env:{agent.name}:{name}")
    return list(found.items())
