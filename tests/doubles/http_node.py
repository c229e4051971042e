"""A gateway's HTTP node without children: the real composition on a real server, one port, in this process.

A test plays the owner itself, by ``node.write`` and ``node.dispatch``.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx
import uvicorn

from gateway.app import Gateway
from gateway.bus.calls import Dispatch, Dispatched
from gateway.bus.outbox import Outbox
from gateway.bus.sessions import QueuedRun
from gateway.config.secret import Secret
from gateway.config.settings import Agent, ApiKey, Auth, Limits, Server, Settings
from gateway.model import events
from gateway.model.clean import DispatchJson, LogJson, LogText
from gateway.model.events import EventPayload
from gateway.model.redaction import Redactor
from gateway.web.protocol import HttpProtocol
from tests.doubles import described

_numbers = count(1)
KEY = "trk-test-key-of-the-backend"
NARROW_KEY = "trk-test-key-of-support-only"
SUPPORT_ORIGIN = "https://app.example"
OTHER_ORIGIN = "https://other.example"

SUPPORT = Agent(name="support", command=("agent",), cwd="/", allowed_origins=(SUPPORT_ORIGIN,))
OTHER = Agent(name="other", command=("agent",), cwd="/", allowed_origins=(OTHER_ORIGIN,), tokens_may_approve=True)


def settings_for(limits: Limits | None = None, agents: Sequence[Agent] = (SUPPORT, OTHER)) -> Settings:
    """Two agents; one key for all, one for ``support`` alone."""
    keys = (
        ApiKey(label="backend", key=Secret(KEY)),
        ApiKey(label="narrow", key=Secret(NARROW_KEY), agents=("support",)),
    )
    return Settings(
        server=Server(roles=("edge",)), auth=Auth(api_keys=keys), limits=limits or Limits(), agents=tuple(agents)
    )


class Node:
    """One node. A test plays the owner of its sessions."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.services = gateway.http
        self.topology = gateway.topology
        self.store = gateway.store
        self.tasks = gateway.tasks
        self.sessions = gateway.sessions
        self.calls = gateway.calls
        self.log = gateway.log
        self.feeds = gateway.feeds
        self._outboxes: dict[tuple[str, int], Outbox] = {}
        self.lost: list[Exception] = []
        self.url = ""
        self.port = 0

    def client(self, credential: str | None = KEY, **headers: str) -> httpx.AsyncClient:
        """A client with a credential."""
        if credential is not None:
            headers["Authorization"] = f"Bearer {credential}"
        # No TLS here, and loading certificates takes longer than most tests.
        return httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=15, verify=False, event_hooks={"response": [described.check]}
        )

    # --- playing the owner (one node of a test does, as a session has one)

    async def outbox(self, session_id: str) -> Outbox:
        """The owner's writes to a session."""
        owner = await self.sessions.owner(session_id)
        found = self._outboxes.get((session_id, owner.epoch))
        if found is None:
            found = Outbox(
                self.store, session_id, owner.epoch, tasks=self.tasks, isolation_s=5.0, on_lost=self.lost.append
            )
            self._outboxes[session_id, owner.epoch] = found
        return found

    async def begin_run(self, session_id: str) -> str:
        """Starts the next run that waits; it must have been put in by an input."""
        outbox = await self.outbox(session_id)
        begun: asyncio.Future[QueuedRun | None] = asyncio.get_running_loop().create_future()
        self.sessions.start_run(outbox, begun.set_result)
        run = await begun
        assert run is not None
        return run.run_id

    async def end_run(self, session_id: str, run_id: str) -> None:
        """Completes a run."""
        await self.write(session_id, [events.run_completed(run_id)], ends_run=run_id)

    async def dispatch(
        self,
        session_id: str,
        client_id: str,
        call_id: str,
        *,
        budget_ms: int = 20_000,
        arguments: bytes = b"{}",
        executing: bytes | None = None,
        revision: int = 1,
    ) -> Dispatched:
        """Dispatches a call to a client, as an owner does."""
        call = Dispatch(
            call_id=call_id,
            client_id=client_id,
            revision=revision,
            tool="highlight_row",
            model_name="client__web__highlight_row",
            run_id="00000000-0000-4000-8000-000000000000",
            idempotent=False,
            arguments=LogJson(arguments),
            executing=DispatchJson(executing) if executing is not None else None,
            before=[events.tool_call(call_id, "client__web__highlight_row", LogJson(arguments))],
        )
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        until = loop.time() + budget_ms / 1000
        self.calls.dispatch(await self.outbox(session_id), call, until=until, delivered="", then=done.set_result)
        reply = await done
        assert isinstance(reply, Dispatched), reply
        return reply

    async def kept(self, session_id: str, count: int) -> None:
        """Waits until ``count`` idempotency keys of the session are kept: so many requests have come."""
        keys = self.store.keys.session(session_id)
        async with asyncio.timeout(30):
            while await self.store.call(keys.tag, "ZCARD", f"{keys.base}:idems") != count:
                await asyncio.sleep(0.01)

    async def write(self, session_id: str, payloads: Sequence[EventPayload], **more: Any) -> None:
        """Logs events."""
        outbox = await self.outbox(session_id)
        self.sessions.append(outbox, payloads, **more)
        assert await outbox.drained(10)
        assert not self.lost

    async def append(self, session_id: str, count: int, first: int = 0) -> None:
        """Logs ``count`` messages."""
        await self.write(session_id, [events.message_assistant(LogText(f"message {first + n}")) for n in range(count)])


@asynccontextmanager
async def http_node(
    url: str, settings: Settings | None = None, *, demo_agent: str = "", **timing: float
) -> AsyncGenerator[Node]:
    """A node that serves on a loopback port. ``timing``: fields of ``HttpServices`` that are too long for a test."""
    number = next(_numbers)
    gateway = Gateway(
        settings or settings_for(),
        node_name=f"edge-{number}",
        redis_url=url,
        redactor=Redactor(()),
        demo_agent=demo_agent,
    )
    for name, value in timing.items():
        object.__setattr__(gateway.http, name, value)
    try:
        await gateway.start()
        node = Node(gateway)
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            node.port = listening.getsockname()[1]
            node.url = f"http://127.0.0.1:{node.port}"
            config = uvicorn.Config(
                gateway.asgi,
                http=HttpProtocol,
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=1,
            )
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            while not server.started:
                await asyncio.sleep(0.005)
            try:
                yield node
            finally:
                await gateway.drain()
                server.should_exit = True
                await asyncio.wait([serving])
    finally:
        await gateway.close()
