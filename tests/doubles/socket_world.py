"""Nodes that serve sockets alone, over a real embedded server: the composition without HTTP and without children.

The owner of a session is played by the test: ``dispatch`` and ``append`` are what an owner does to the bus.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from websockets.asyncio.client import ClientConnection, connect

from adapters.websocket.endpoint import Sockets, SocketServices, endpoint
from gateway.auth import tokens
from gateway.auth.authenticator import Authenticator, KnownKey
from gateway.auth.principals import ApiKeyHolder
from gateway.bus.calls import Calls, Dispatch, Dispatched, Reply
from gateway.bus.clients import Clients
from gateway.bus.embedded import EmbeddedServer
from gateway.bus.errors import BusUnavailable
from gateway.bus.inbox import Inbox
from gateway.bus.keys import Keys
from gateway.bus.log import Log
from gateway.bus.nodes import NodeInfo, Nodes
from gateway.bus.outbox import Outbox
from gateway.bus.scripts import Bounds, Scripts
from gateway.bus.sessions import NO_KEY, Owner, QueuedRun, Sessions
from gateway.bus.store import Store
from gateway.bus.topology import Topology
from gateway.bus.topology import connect as connect_bus
from gateway.config.settings import Agent as AgentSettings
from gateway.config.settings import Server, Settings
from gateway.model import events
from gateway.model.clean import LogJson, LogText
from gateway.model.redaction import Redactor
from gateway.observe.tasks import Tasks
from gateway.server import uvicorn_config
from gateway.services.answers import Answers
from gateway.services.deadlines import Timers
from gateway.services.feeds import Feeds
from gateway.services.offers import Offers
from gateway.services.sessions import Conversations
from gateway.services.succession import Agent, Succession
from gateway.web.rates import Rates

ORIGIN = "https://app.example"
API_KEY = "trk_for_tests_only_0123456789"
WAIT_S = 10.0

AGENT = AgentSettings(name="support", command=("true",), cwd="/", allowed_origins=(ORIGIN,))
OTHER = AgentSettings(name="other", command=("true",), cwd="/", tokens_may_approve=True)
SETTINGS = Settings(server=Server(), agents=(AGENT, OTHER))


def redactor() -> Redactor:
    return Redactor(())


class _Nobody:
    """An owner that hears nothing: a test plays it."""

    def _unheard(self, *_: Any, **__: Any) -> None:
        return

    input_waiting = clients_changed = answered = failed = due_changed = cancel = approval_answered = asked = deleted = (
        _unheard
    )


class Node:
    """One gateway instance as far as sockets go."""

    def __init__(
        self, url: str, *, settings: Settings = SETTINGS, frames_per_second: float = 5_000, burst: int = 20_000
    ):
        self.incarnation = uuid4().hex
        keys = Keys("t")
        self.topology: Topology = connect_bus(url)
        scripts = Scripts(Bounds(), sharded=self.topology.sharded)
        self.topology.register(scripts.all())
        self.store = Store(self.topology, keys, scripts)
        self.tasks = Tasks()
        self.sessions = Sessions(self.store)
        self.calls = Calls(self.store)
        self.clients = Clients(self.store)
        self.nodes = Nodes(self.store, self.incarnation)
        self.feeds = Feeds(self.store, self.tasks)
        self._settings = settings
        self._rate = (frames_per_second, burst)
        self.sockets: Sockets
        self.port = 0
        self.scopes: list[Any] = []
        self._clock_tag = keys.tags[0]

    def now_ms(self) -> int:
        return self.topology.clock_for(self._clock_tag).now_ms()

    async def start(self, *, ping_s: float = 20.0, max_size: int = 4 * 1024 * 1024, sndbuf: int = 0) -> None:
        await self.topology.start()
        await self.renew()
        self.tasks.supervise("membership", self._keep_lease)
        self.timers = Timers()
        self.lost: list[Exception] = []
        self._outboxes: dict[str, Outbox] = {}
        self.topology.on_gap(self._on_gap)
        key = KnownKey(ApiKeyHolder("backend", "k1", None), tokens.digest(API_KEY))
        self.authenticator = Authenticator([key], self.sessions, self.now_ms)
        await Inbox(self.store, self.incarnation, _Nobody(), self.authenticator.forget, lambda *_: None).open()
        agents = {a.id: Agent(a.id, a.name, a.storage == "shared") for a in self._settings.agents}
        own = Owner("t", self.incarnation, 0)
        succession = Succession(self.sessions, self.nodes, agents=agents, own=own, home_wait_s=60)
        conversations = Conversations(
            self.sessions, self.feeds, self.nodes, redactor(), agents=agents, succession=succession
        )
        failed = self._settings.limits.auth_failures_per_minute
        self.sockets = endpoint(
            SocketServices(
                settings=self._settings,
                incarnation=self.incarnation,
                authenticator=self.authenticator,
                conversations=conversations,
                offers=Offers(self.clients, redactor()),
                answers=Answers(self.calls, redactor()),
                feeds=self.feeds,
                timers=self.timers,
                tasks=self.tasks,
                failures=Rates(failed / 60, failed, "auth"),
                now_ms=self.now_ms,
                frames_per_second=self._rate[0],
                frame_burst=self._rate[1],
            )
        )
        listener = socket.socket()
        if sndbuf:  # inherited by what is accepted
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        config = uvicorn_config(self._settings, Starlette(routes=[WebSocketRoute("/v1/ws", self.sockets)]))
        config.ws_max_size = max_size
        config.ws_ping_interval = config.ws_ping_timeout = ping_s
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._listener = listener
        await self._server.startup(sockets=[listener])

    async def renew(self) -> None:
        """The lease, and who else lives."""
        await self.nodes.renew(NodeInfo(self.incarnation[:8], ("edge",)))

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(1)
            with contextlib.suppress(BusUnavailable):
                await self.renew()

    def _on_gap(self) -> None:
        self.authenticator.forget_all()
        self.tasks.spawn("feeds.catch_up", self.feeds.catch_up())

    async def stop(self) -> None:
        await self.sockets.drain()
        await self._server.shutdown(sockets=[self._listener])
        self.timers.close()
        stuck = await self.tasks.aclose()
        assert not stuck, stuck
        await self.topology.close()

    # --- what backends and owners do

    async def session(self, agent: AgentSettings = AGENT, ttl_s: float = 3_600) -> tuple[str, str]:
        """A session and a token of it."""
        session_id = str(uuid4())
        token = tokens.mint_session_token(session_id)
        await self.sessions.create(
            session_id,
            agent_id=agent.id,
            display_name=LogText(""),
            label="backend",
            created=events.session_created(agent.id, "1"),
            token_hash=tokens.digest(token),
            token_id=str(uuid4()),
            token_ttl_ms=int(ttl_s * 1000),
            idempotency=NO_KEY,
        )
        return session_id, token

    async def token(self, session_id: str, *, ttl_s: float = 3_600) -> tuple[str, str]:
        """Another token: (token, its id)."""
        token = tokens.mint_session_token(session_id)
        token_id = str(uuid4())
        await self.sessions.add_token(session_id, tokens.digest(token), token_id, int(ttl_s * 1000), NO_KEY)
        return token, token_id

    async def own(self, session_id: str) -> int:
        """Makes this node the owner: the epoch."""
        heir = Owner("t", self.incarnation, 0)
        epoch = await self.sessions.claim(session_id, "", heir, lost_run=None, home_wait_ms=60_000)
        assert epoch is not None
        return epoch

    def outbox(self, session_id: str, epoch: int) -> Outbox:
        """The owner's writes."""
        if session_id not in self._outboxes:
            self._outboxes[session_id] = Outbox(
                self.store, session_id, epoch, tasks=self.tasks, isolation_s=10, on_lost=self.lost.append
            )
        return self._outboxes[session_id]

    async def dispatch(
        self, session_id: str, epoch: int, client_id: str, *, tool: str = "highlight", idempotent: bool = False
    ) -> str:
        """Dispatches a call to a client: its id."""
        call_id = f"call-{uuid4()}"
        record = next(s for s in await self.clients.all(session_id) if s.client_id == client_id)
        call = Dispatch(
            call_id,
            client_id,
            record.revision,
            tool,
            f"client__web__{tool}",
            str(uuid4()),
            idempotent,
            LogJson(b'{"row":3}'),
            None,
            [],
        )
        loop = asyncio.get_running_loop()
        coming: asyncio.Future[Reply] = loop.create_future()
        outbox = self.outbox(session_id, epoch)
        self.calls.dispatch(outbox, call, until=loop.time() + 300, delivered="", then=coming.set_result)
        assert isinstance(await asyncio.wait_for(coming, WAIT_S), Dispatched)
        return call_id

    async def say(self, session_id: str, epoch: int, text: str) -> int:
        """Logs a message of the agent: the seq."""
        return await self.append(session_id, epoch, [events.message_assistant(LogText(text))])

    async def append(self, session_id: str, epoch: int, payloads: Sequence[events.EventPayload], **more: Any) -> int:
        """Logs events as the owner: the log's last seq then."""
        outbox = self.outbox(session_id, epoch)
        self.sessions.append(outbox, payloads, **more)
        assert await outbox.drained(WAIT_S)
        assert not self.lost
        return await Log(self.store).head(session_id)

    async def start_run(self, session_id: str, epoch: int) -> QueuedRun | None:
        """Takes the next input as the owner."""
        coming: asyncio.Future[QueuedRun | None] = asyncio.get_running_loop().create_future()
        self.sessions.start_run(self.outbox(session_id, epoch), coming.set_result)
        return await asyncio.wait_for(coming, WAIT_S)


class Client:
    """A raw client: frames out, answers by id, pushes in their order."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.pushes: list[Any] = []
        self.keepalives: list[str] = []
        self._answers: dict[int, Any] = {}
        self._id = 0

    def next_id(self) -> int:
        self._id += 1
        return self._id

    async def send(self, op: str, **fields: Any) -> int:
        number = self.next_id()
        await self.connection.send(json.dumps({"id": number, "op": op, **fields}))
        return number

    async def raw(self, text: str | bytes) -> None:
        await self.connection.send(text)

    async def read_one(self) -> None:
        async with asyncio.timeout(WAIT_S):
            text = await self.connection.recv()
        assert isinstance(text, str)
        frame = json.loads(text)
        if "keepalive" in frame:
            self.keepalives.append(frame["keepalive"])
        elif "id" in frame:
            self._answers[frame["id"]] = frame
        else:
            self.pushes.append(frame)

    async def answer(self, number: int) -> Any:
        while number not in self._answers:
            await self.read_one()
        return self._answers.pop(number)

    async def call(self, op: str, **fields: Any) -> Any:
        """The whole answer frame."""
        return await self.answer(await self.send(op, **fields))

    async def ok(self, op: str, **fields: Any) -> Any:
        answer = await self.call(op, **fields)
        assert "ok" in answer, answer
        return answer["ok"]

    async def error(self, op: str, **fields: Any) -> Any:
        answer = await self.call(op, **fields)
        assert "error" in answer, answer
        return answer["error"]

    async def push(self, kind: str = "", **wanted: Any) -> Any:
        """The next push of that kind (``event``, ``reset``, ``closed``, ``delta``) with these members; it is taken."""
        seen = 0
        while True:
            while seen < len(self.pushes):
                frame = self.pushes[seen]
                body = frame.get(kind) if kind else frame
                if body is not None and all(body.get(name) == value for name, value in wanted.items()):
                    return self.pushes.pop(seen)
                seen += 1
            await self.read_one()

    async def event(self, type_: str) -> Any:
        return (await self.push("event", type=type_))["event"]

    async def closed(self) -> tuple[int, str]:
        """Reads until the socket is closed: code and reason."""
        try:
            while True:
                await self.read_one()
        except Exception as error:
            if isinstance(error, TimeoutError | AssertionError):
                raise
        return self.connection.close_code or 0, self.connection.close_reason or ""


class World:
    """A bus, and nodes and clients that end with it."""

    def __init__(self, url: str, stack: contextlib.AsyncExitStack) -> None:
        self.url = url
        self._stack = stack
        self._nodes: list[Node] = []

    async def node(self, **options: Any) -> Node:
        start = {name: options.pop(name) for name in ("ping_s", "max_size", "sndbuf") if name in options}
        node = Node(self.url, **options)
        await node.start(**start)
        self._stack.push_async_callback(node.stop)
        self._nodes.append(node)
        for one in self._nodes:
            await one.renew()
        return node

    async def client(self, node: Node, **options: Any) -> Client:
        options.setdefault("subprotocols", ["toolrelay.v1"])
        options.setdefault("compression", None)
        options.setdefault("max_size", None)
        connection = await connect(f"ws://127.0.0.1:{node.port}/v1/ws", proxy=None, **options)
        self._stack.push_async_callback(connection.close)
        return Client(connection)

    async def attached(self, node: Node, session_id: str, token: str, **fields: Any) -> Client:
        client = await self.client(node)
        await client.ok("attach", session_id=session_id, token=token, **fields)
        return client


@contextlib.asynccontextmanager
async def world(url: str) -> AsyncGenerator[World]:
    async with contextlib.AsyncExitStack() as stack:
        yield World(url, stack)


@contextlib.asynccontextmanager
async def bus() -> AsyncGenerator[str]:
    """An embedded server: its address. Worlds may share one, since all that they make has fresh ids."""
    async with EmbeddedServer() as server:
        yield server.url


TOOL = {
    "name": "highlight",
    "description": "Highlights a row.",
    "parameters": {"type": "object", "properties": {"row": {"type": "integer"}}},
}
TTL = {"type": "ttl", "data": {"seconds": 5}}
NEVER = {"type": "never"}
