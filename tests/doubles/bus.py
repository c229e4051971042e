"""The bus on a real server for tests: stores of several nodes on one prefix, an owner's outbox, a look at all keys."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from gateway.bus.calls import Calls, Dispatch, Reply
from gateway.bus.clients import Clients
from gateway.bus.keys import Keys
from gateway.bus.log import Log
from gateway.bus.outbox import Outbox
from gateway.bus.scripts import Bounds, Scripts
from gateway.bus.sessions import NO_KEY, Owner, QueuedRun, Sessions
from gateway.bus.store import Store
from gateway.bus.topology import Topology, connect
from gateway.model import events
from gateway.model.clean import DispatchJson, LogJson, LogText, ModelText
from gateway.observe.tasks import Tasks
from tests.doubles.lifetimes import lasting

NEVER = LogJson(b'{"type":"never"}')
NODE = Owner("node-a", "incarnation-a", 0)


@dataclass
class Bus:
    """One node's view of the bus."""

    topology: Topology
    store: Store
    tasks: Tasks = field(default_factory=Tasks)
    lost: list[Exception] = field(default_factory=list[Exception])
    was_lost: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.sessions = Sessions(self.store)
        self.clients = Clients(self.store)
        self.calls = Calls(self.store)
        self.log = Log(self.store)

    async def session(self) -> str:
        """A new session."""
        session_id = str(uuid4())
        await self.sessions.create(
            session_id,
            agent_id="agent",
            display_name=LogText(""),
            label="backend",
            created=events.session_created("agent", "1"),
            token_hash="0" * 64,
            token_id=str(uuid4()),
            token_ttl_ms=60_000,
            idempotency=NO_KEY,
        )
        return session_id

    async def client(
        self, session_id: str, *, ttl_s: int = 0, key: str = "", holder: str = "", name: str = "web"
    ) -> str:
        """A registration: its id."""
        client_id = str(uuid4())
        await self.clients.register(
            session_id,
            client_id,
            name=name,
            ttl_s=ttl_s,
            lifetime=NEVER,
            tools=b"[]",
            registered=events.client_registered(client_id, NEVER, LogJson(b"[]")),
            key=key,
            holder=holder,
            idempotency=NO_KEY,
        )
        return client_id

    async def submit(self, session_id: str, owner: Owner | None = NODE, *, shared: bool = False, wait_ms: int = 60_000):
        """An input: (run id, owner)."""
        run_id = str(uuid4())
        return await self.sessions.submit(
            session_id,
            run_id,
            ModelText("do it"),
            events.run_queued(run_id),
            owner,
            NO_KEY,
            shared=shared,
            home_wait_ms=wait_ms,
        )

    def outbox(self, session_id: str, epoch: int = 1, *, isolation_s: float = 5.0) -> Outbox:
        """An owner's writes."""
        return Outbox(
            self.store,
            session_id,
            epoch,
            tasks=self.tasks,
            isolation_s=isolation_s,
            on_lost=self._lose,
        )

    def _lose(self, error: Exception) -> None:
        self.lost.append(error)
        self.was_lost.set()

    async def start_run(self, outbox: Outbox) -> QueuedRun | None:
        """Takes the next input."""
        coming: asyncio.Future[QueuedRun | None] = asyncio.get_running_loop().create_future()
        self.sessions.start_run(outbox, coming.set_result)
        return await asyncio.wait_for(coming, 10)

    async def owned(self) -> tuple[str, Outbox]:
        """A session with an active run, and its owner's outbox."""
        session_id = await self.session()
        await self.submit(session_id)
        outbox = self.outbox(session_id)
        assert await self.start_run(outbox) is not None
        return session_id, outbox

    async def dispatch(
        self,
        outbox: Outbox,
        client_id: str,
        call_id: str,
        *,
        budget_s: float = 30.0,
        revision: int = 1,
        idempotent: bool = False,
        arguments: bytes = b'{"a":1}',
        executing: bytes | None = None,
    ) -> Reply:
        """Dispatches a call."""
        coming: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        call = Dispatch(
            call_id,
            client_id,
            revision,
            "tool",
            "client__web__tool",
            "run",
            idempotent,
            LogJson(arguments),
            DispatchJson(executing) if executing is not None else None,
            [events.tool_call(call_id, "client__web__tool", LogJson(arguments))],
        )
        until = asyncio.get_running_loop().time() + budget_s
        self.calls.dispatch(outbox, call, until=until, delivered="", then=coming.set_result)
        return await asyncio.wait_for(coming, 10)

    async def answer(self, session_id: str, client_id: str, call_id: str, digest: str = "d") -> None:
        """Answers a call."""
        result = events.tool_result(call_id, LogText("done"), is_error=False)
        await self.calls.answer(session_id, client_id, call_id, digest=digest, answer=b"answer", result=result)

    async def types(self, session_id: str) -> list[str]:
        """The kinds of the log's events, in order."""
        return [kind_of(entry.event) for entry in await self.log.after(session_id, 0, 1000)]


def kind_of(event: bytes) -> str:
    """An event's type."""
    return event.split(b'"type":"', 1)[1].split(b'"', 1)[0].decode()


@asynccontextmanager
async def bus(url: str, prefix: str, bounds: Bounds | None = None) -> AsyncGenerator[Bus]:
    """A node's bus under a prefix."""
    topology = connect(url)
    scripts = Scripts(bounds or Bounds(), sharded=topology.sharded)
    topology.register(scripts.all())
    async with topology:
        for shard in topology.shards:
            shard.clock.agree(0)
        made = Bus(topology, Store(topology, Keys(prefix), scripts))
        yield made
        await made.tasks.aclose()


async def keys_without_lifetime(topology: Topology, prefix: str) -> list[str]:
    """Keys under a prefix that neither have a TTL nor are on the permanent list."""
    found: list[str] = []
    for connection in topology.all():
        names = await connection.call("KEYS", f"{prefix}:*")
        assert isinstance(names, list)
        for raw in names:  # pyright: ignore[reportUnknownVariableType]
            name = bytes(raw).decode()  # pyright: ignore[reportUnknownArgumentType]
            if await connection.call("PTTL", name) == -1:
                found.append(name)
    return lasting(found)
