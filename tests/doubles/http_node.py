"""A gateway's HTTP node without children: real services on a real server, one port, in this process.

A test plays the owner itself, by ``node.calls`` and ``node.sessions``.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from adapters.http.routes import routes
from adapters.http.services import HttpServices
from adapters.http.streams import Streams
from gateway.auth.authenticator import Authenticator, KnownKey
from gateway.auth.principals import ApiKeyHolder
from gateway.auth.reach import SessionAgents
from gateway.auth.tokens import digest
from gateway.bus.calls import Calls, Dispatch, Dispatched
from gateway.bus.clients import Clients
from gateway.bus.keys import Keys
from gateway.bus.log import Log
from gateway.bus.nodes import Nodes
from gateway.bus.scripts import Bounds, Scripts
from gateway.bus.sessions import Owner, Sessions
from gateway.bus.store import Store
from gateway.bus.topology import Topology, connect
from gateway.config.secret import Secret
from gateway.config.settings import Agent, ApiKey, Auth, Limits, Server, Settings
from gateway.model import events
from gateway.model.clean import DispatchJson, LogJson, LogText
from gateway.model.redaction import Redactor
from gateway.observe.tasks import Tasks
from gateway.services.answers import Answers
from gateway.services.patrol import Patrol
from gateway.services.feeds import Feeds
from gateway.services.offers import Offers
from gateway.services.sessions import Agent as SessionAgent
from gateway.services.sessions import Conversations
from gateway.web.health import health_routes
from gateway.web.protocol import HttpProtocol
from gateway.web.rates import Rates
from gateway.web.replies import on_http_exception

KEY = "trk-test-key-of-the-backend"
NARROW_KEY = "trk-test-key-of-support-only"
SUPPORT_ORIGIN = "https://app.example"
OTHER_ORIGIN = "https://other.example"

SUPPORT = Agent(name="support", command=("agent",), cwd="/", allowed_origins=(SUPPORT_ORIGIN,))
OTHER = Agent(name="other", command=("agent",), cwd="/", allowed_origins=(OTHER_ORIGIN,), tokens_may_approve=True)


def settings_for(limits: Limits = Limits(), agents: Sequence[Agent] = (SUPPORT, OTHER)) -> Settings:
    """Two agents; one key for all, one for ``support`` alone."""
    keys = (
        ApiKey(label="backend", key=Secret(KEY)),
        ApiKey(label="narrow", key=Secret(NARROW_KEY), agents=("support",)),
    )
    return Settings(server=Server(), auth=Auth(api_keys=keys), limits=limits, agents=tuple(agents))


class Node:
    """One node. ``http`` is a client of it with the backend's key."""

    def __init__(self, topology: Topology, store: Store, settings: Settings, options: Mapping[str, Any]) -> None:
        self.settings = settings
        self.topology = topology
        self.store = store
        self.tasks = Tasks()
        self.is_draining = False
        self.problems: list[str] = []
        self.sessions = Sessions(store)
        self.calls = Calls(store)
        self.log = Log(store)
        self.feeds = Feeds(store, self.tasks)
        self.nodes = Nodes(store, "incarnation-of-a-test")
        redactor = Redactor(())
        agents = {agent.id: agent for agent in settings.agents}
        known = [
            KnownKey(
                ApiKeyHolder(key.label, key.label, frozenset(a.id for a in settings.agents if a.name in key.agents))
                if key.agents
                else ApiKeyHolder(key.label, key.label, None),
                digest(key.key.reveal()),
            )
            for key in settings.auth.api_keys
        ]
        self.authenticator = Authenticator(known, self.sessions, self.now_ms)
        self.session_agents = SessionAgents(self.sessions)
        self.owner = Owner("a-node", "incarnation-of-a-test", 0)
        self.sweeper = Sweeper(store, self.nodes)
        bounds = settings.limits
        self.services = HttpServices(
            settings=settings,
            agents=agents,
            authenticator=self.authenticator,
            session_agents=self.session_agents,
            conversations=Conversations(
                self.sessions,
                self.feeds,
                self.nodes,
                redactor,
                agents={a.id: SessionAgent(a.id, a.name, a.storage == "shared") for a in settings.agents},
                own=self.owner,
            ),
            sessions=self.sessions,
            offers=Offers(Clients(store), redactor),
            answers=Answers(self.calls, redactor),
            calls=self.calls,
            log=self.log,
            feeds=self.feeds,
            streams=Streams(bounds.max_streams),
            tasks=self.tasks,
            rates=Rates(bounds.requests_per_second, bounds.request_burst, "requests"),
            failures=Rates(bounds.auth_failures_per_minute / 60, bounds.auth_failures_per_minute, "auth"),
            now_ms=self.now_ms,
            draining=lambda: self.is_draining,
            **options,
        )
        self.app = Starlette(
            routes=[*routes(self.services), *health_routes(lambda: self.problems, with_metrics=True)],
            exception_handlers={HTTPException: on_http_exception},
        )
        self.app.router.redirect_slashes = False
        self.url = ""
        self.port = 0

    def now_ms(self) -> int:
        """The bus clock."""
        return self.topology.clock_for("p00").now_ms()

    def client(self, credential: str | None = KEY, **headers: str) -> httpx.AsyncClient:
        """A client with a credential."""
        if credential is not None:
            headers["Authorization"] = f"Bearer {credential}"
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=15)

    # --- playing the owner

    async def begin_run(self, session_id: str) -> str:
        """Starts the next run that waits; it must have been put in by an input."""
        epoch = (await self.sessions.owner(session_id)).epoch
        run = await self.sessions.start_run(session_id, epoch)
        assert run is not None
        await self.sessions.append(session_id, epoch, [events.run_started(run.run_id)])
        return run.run_id

    async def end_run(self, session_id: str, run_id: str) -> None:
        """Completes a run."""
        epoch = (await self.sessions.owner(session_id)).epoch
        await self.sessions.append(session_id, epoch, [events.run_completed(run_id)], ends_run=run_id)

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
        owner = await self.sessions.owner(session_id)
        call = Dispatch(
            call_id=call_id,
            client_id=client_id,
            revision=revision,
            budget_ms=budget_ms,
            tool="highlight_row",
            model_name="client__web__highlight_row",
            run_id="00000000-0000-4000-8000-000000000000",
            idempotent=False,
            arguments=LogJson(arguments),
            executing=DispatchJson(executing) if executing is not None else None,
            before=[events.tool_call(call_id, "client__web__highlight_row", LogJson(arguments))],
        )
        done = await self.calls.dispatch(session_id, owner.epoch, call)
        assert isinstance(done, Dispatched)
        return done

    async def append(self, session_id: str, count: int, first: int = 0) -> None:
        """Logs ``count`` messages."""
        epoch = (await self.sessions.owner(session_id)).epoch
        payloads = [events.message_assistant(LogText(f"message {first + n}")) for n in range(count)]
        await self.sessions.append(session_id, epoch, payloads)


@asynccontextmanager
async def http_node(
    url: str, settings: Settings | None = None, *, bounds: Bounds = Bounds(), **options: Any
) -> AsyncIterator[Node]:
    """A node that serves on a loopback port."""
    keys = Keys("tr")
    scripts = Scripts(bounds, control=keys.control)
    topology = connect(url, scripts.all())
    async with topology:
        node = Node(topology, Store(topology, keys, scripts), settings or settings_for(), options)

        def control(message: bytes) -> None:
            session_id = message.decode().split(" ")[1]
            node.authenticator.forget(session_id)
            if message.startswith(b"session "):
                node.session_agents.forget(session_id)

        await topology.subscribe(keys.control.encode(), control)
        topology.on_gap(lambda: (node.authenticator.forget_all(), node.tasks.spawn("catch.up", node.feeds.catch_up())))
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            node.port = listening.getsockname()[1]
            node.url = f"http://127.0.0.1:{node.port}"
            config = uvicorn.Config(
                node.app,
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
                node.services.streams.drain()
                server.should_exit = True
                with contextlib.suppress(asyncio.CancelledError):
                    await serving
                await node.tasks.aclose()
