"""The composition root: one node's parts, wired. Owns their order of start and end; holds no rule.

The one module that imports adapters. ``server.py`` runs what is built here.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp

from adapters.http.routes import routes as http_routes
from adapters.http.services import HttpServices
from adapters.http.sessions import open_session
from adapters.http.streams import Streams
from adapters.stdio.reaper import Reaper
from adapters.stdio.services import StdioServices
from adapters.stdio.session import AgentSession
from adapters.websocket import asyncapi
from adapters.websocket.endpoint import Sockets
from adapters.websocket.server_protocol import SocketProtocol
from adapters.websocket.services import SocketServices
from gateway import __version__
from gateway.auth import tokens
from gateway.auth.authenticator import Authenticator, KnownKey
from gateway.auth.principals import ApiKeyHolder
from gateway.auth.reach import SessionAgents
from gateway.bus.calls import Calls
from gateway.bus.clients import Clients
from gateway.bus.enquiries import EnquiryBus
from gateway.bus.errors import BusError
from gateway.bus.inbox import Inbox
from gateway.bus.keys import Keys
from gateway.bus.log import Log
from gateway.bus.nodes import NodeInfo, Nodes
from gateway.bus.scripts import Bounds, Scripts
from gateway.bus.sessions import Owner, Resumption, Sessions
from gateway.bus.store import Store
from gateway.bus.topology import Topology, connect
from gateway.config.secret import Secret
from gateway.config.settings import Settings
from gateway.model import limits
from gateway.model.redaction import Redactor
from gateway.observe import metrics
from gateway.observe.log import get_logger
from gateway.services.answers import Answers
from gateway.services.capacity import Capacity
from gateway.services.catalogs import Catalogs
from gateway.services.deadlines import Timers
from gateway.services.enquiries import Enquiries
from gateway.services.feeds import Feeds
from gateway.services.gauges import Gauges
from gateway.services.membership import Membership
from gateway.services.offers import Offers
from gateway.services.owners import Owners
from gateway.services.patrol import Patrol
from gateway.services.sessions import Conversations
from gateway.services.succession import Agent, Succession
from gateway.services.tasks import Tasks
from gateway.web.health import health_routes, metrics_route
from gateway.web.hosts import HostCheck, served_hosts
from gateway.web.pages import Page
from gateway.web.rates import Rates
from gateway.web.replies import Reply, on_http_exception

log = get_logger("app")

SOCKET_PROTOCOL: Final = SocketProtocol
"""What uvicorn is to speak on WebSockets."""


def known_keys(settings: Settings) -> tuple[KnownKey, ...]:
    """The API keys by their hashes; a key is narrowed to the ids of the agents that it names."""
    by_name = {agent.name: agent.id for agent in settings.agents}

    def known(label: str, key: Secret, agents: Sequence[str]) -> KnownKey:
        digest = tokens.digest(key.reveal())
        reach = frozenset(by_name[name] for name in agents) if agents else None
        return KnownKey(ApiKeyHolder(label, digest[:32], reach), digest)

    operator = settings.auth.operator_key
    return (
        *(known(each.label, each.key, each.agents) for each in settings.auth.api_keys),
        *((known("operator", operator, ()),) if operator else ()),
    )


def _bounds(settings: Settings) -> Bounds:
    return Bounds(
        session_ttl_ms=settings.limits.session_ttl_s * 1000,
        settled_ttl_ms=settings.limits.settled_call_ttl_s * 1000,
        log_events=settings.limits.log_events,
    )


class Gateway:
    """One node. ``start`` it, serve ``asgi``, ``drain`` it, ``close`` it."""

    def __init__(
        self,
        settings: Settings,
        *,
        node_name: str,
        redis_url: str,
        redactor: Redactor,
        demo_agent: str = "",
    ) -> None:
        metrics.BUILD.labels(__version__).set(1)
        self.settings: Final = settings
        self.incarnation: Final = secrets.token_hex(8)
        self.node_name: Final = node_name
        self.draining = False
        self.tasks = Tasks()
        self.topology: Topology = connect(redis_url)
        keys = Keys(settings.redis.prefix)
        scripts = Scripts(_bounds(settings), sharded=self.topology.sharded)
        self.topology.register(scripts.all())
        self.store = Store(self.topology, keys, scripts)
        self.sessions = Sessions(self.store)
        self.calls = Calls(self.store)
        self.log = Log(self.store)
        self.nodes = Nodes(self.store, self.incarnation)
        self.offers = Offers(Clients(self.store), redactor)
        self.answers = Answers(self.calls, redactor)
        self.feeds = Feeds(self.store, self.tasks)
        self.timers = Timers()
        self.capacity = Capacity(settings.limits.max_children)
        self._is_owner: Final = "agents" in settings.server.roles
        self._started_ms = 0
        agents = {agent.id: agent for agent in settings.agents}
        kinds = {a.id: Agent(a.id, a.name, a.storage == "shared") for a in settings.agents}
        self._succession = Succession(
            self.sessions,
            self.nodes,
            agents=kinds,
            own=Owner(node_name, self.incarnation, 0) if self._is_owner else None,
            home_wait_s=settings.limits.home_wait_s,
        )
        self._patrol = Patrol(self.store, self.nodes, self._succession)
        self.conversations = Conversations(
            self.sessions,
            self.feeds,
            self.nodes,
            redactor,
            agents=kinds,
            succession=self._succession,
        )
        enquiry_bus = EnquiryBus(self.store, self.incarnation)
        self.enquiries = Enquiries(enquiry_bus, self.sessions, self.nodes, self._succession, redactor, agents=kinds)
        self.authenticator = Authenticator(known_keys(settings), self.sessions, self.now_ms)
        self._reaper = Reaper()
        self._stdio = StdioServices(
            store=self.store,
            sessions=self.sessions,
            calls=self.calls,
            offers=self.offers,
            redactor=redactor,
            timers=self.timers,
            capacity=self.capacity,
            reaper=self._reaper,
            tasks=self.tasks,
            limits=settings.limits,
            agents=agents,
        )
        self.owners = Owners(self.incarnation, self.sessions, enquiry_bus, self.tasks, self._make_runner)
        self._session_agents = SessionAgents(self.sessions)
        self._inbox = Inbox(self.store, self.incarnation, self.owners, self._credentials_changed, self.enquiries.came)
        self._membership = Membership(self.nodes, self._info, self._on_contact)
        failures = Rates(
            settings.limits.auth_failures_per_minute / 60, settings.limits.auth_failures_per_minute, "auth"
        )
        self._sockets = Sockets(
            SocketServices(
                settings=settings,
                incarnation=self.incarnation,
                authenticator=self.authenticator,
                conversations=self.conversations,
                offers=self.offers,
                answers=self.answers,
                feeds=self.feeds,
                timers=self.timers,
                tasks=self.tasks,
                failures=failures,
                now_ms=self.now_ms,
                demo_agent_id=next((a.id for a in settings.agents if a.name == demo_agent), None),
            )
        )
        self._streams = Streams(settings.limits.max_streams)
        self.http = HttpServices(
            settings=settings,
            agents=agents,
            authenticator=self.authenticator,
            session_agents=self._session_agents,
            conversations=self.conversations,
            enquiries=self.enquiries,
            sessions=self.sessions,
            offers=self.offers,
            catalogs=Catalogs(self.sessions, self.offers, redactor),
            answers=self.answers,
            calls=self.calls,
            log=self.log,
            feeds=self.feeds,
            streams=self._streams,
            tasks=self.tasks,
            rates=Rates(settings.limits.requests_per_second, settings.limits.request_burst, "requests"),
            failures=failures,
            now_ms=self.now_ms,
            draining=lambda: self.draining,
            demo_agent=demo_agent,
        )
        edge: list[BaseRoute] = self._edge(self.http) if "edge" in settings.server.roles else []
        gauges = Gauges(self.topology, redactor, lambda: not self.problems())
        measured = metrics_route(gauges.read)
        own_port = bool(settings.server.metrics_port)
        health = [*health_routes(self.problems), *([] if own_port else [measured])]
        self.metrics: ASGIApp | None = Starlette(routes=[measured]) if own_port else None
        """What ``server.metrics_port`` serves."""
        self._app = Starlette(routes=[*health, *edge], exception_handlers={HTTPException: on_http_exception})
        self._app.router.redirect_slashes = False
        self.asgi: ASGIApp = HostCheck(self._app, served=served_hosts(settings.server))

    def _edge(self, http: HttpServices) -> list[BaseRoute]:
        """What clients use, and its descriptions."""
        url = self.settings.server.public_url
        described = Page(lambda: Reply(200, asyncapi.encoded(version=__version__, url=url)))
        return [
            *http_routes(http),
            Route("/-/asyncapi.json", described),
            WebSocketRoute("/v1/ws", self._sockets),
        ]

    # --- what the parts ask

    def now_ms(self) -> int:
        """The bus clock, as this node estimates it."""
        return self.store.now_ms(self.store.keys.tags[0])

    def problems(self) -> list[str]:
        """Why this node is not ready; empty when it is."""
        found = ["draining"] if self.draining else []
        if (fault := self.topology.fault) is not None:
            found.append(f"the bus is not reachable ({fault.kind.value})")
        elif self._membership.fault is not None:
            found.append(f"the bus takes no writes ({self._membership.fault.kind.value})")
        return found + [f"{name} does not run" for name in self.tasks.degraded]

    def _credentials_changed(self, session_id: str) -> None:
        """A token was revoked, or the session deleted."""
        self.authenticator.forget(session_id)
        self._session_agents.forget(session_id)

    def add_routes(self, routes: Sequence[BaseRoute]) -> None:
        """Further pages, before the node is served."""
        self._app.router.routes.extend(routes)

    async def open_session(self, agent_name: str, label: str) -> tuple[str, str]:
        """A session for one of this gateway's own pages: its id and its token. Raises Refusal, BusUnavailable."""
        return await open_session(self.http, agent_name, label)

    def _info(self) -> NodeInfo:
        return NodeInfo(
            name=self.node_name,
            roles=self.settings.server.roles,
            agents=tuple(agent.name for agent in self.settings.agents) if self._is_owner else (),
            children=self.capacity.taken,
            max_children=self.capacity.most,
            draining=self.draining,
            started_ms=self._started_ms,
            version=__version__,
        )

    def _make_runner(self, session_id: str, epoch: int, resumption: Resumption) -> AgentSession:
        agents: Mapping[str, object] = self._stdio.agents
        assert resumption.agent_id in agents, "whoever owns a session has its agent"
        return AgentSession(
            self._stdio,
            self._stdio.agents[resumption.agent_id],
            session_id,
            epoch,
            resumption,
            forget=lambda runner, bus_lost, work_left: self.owners.forget(
                session_id, runner, bus_lost=bus_lost, work_left=work_left
            ),
        )

    # --- life

    async def start(self, *, timeout: float = 5.0) -> None:
        """Connects, takes its lease, opens its inbox. Raises BusUnavailable; then ``close`` is still due."""
        await self.topology.start(timeout=timeout)
        self._started_ms = self.now_ms()
        self.topology.on_gap(self._on_gap)
        await self._inbox.open()
        await self._membership.join()
        await self._succession.look_after(self.store.keys.tags)  # what waits for this node to come back
        self.tasks.supervise("membership", self._membership.run)
        self.tasks.supervise("patrol", self._patrol.run)

    def _on_contact(self) -> None:
        """The lease was renewed. Where it had ended, others may have let go of what this node has; they know of its
        return after their own next renewal, so what is taken back at once is taken back once more behind that."""
        if self._patrol.contact():
            self._on_gap()
            asyncio.get_running_loop().call_later(2 * limits.NODE_RENEW_MS / 1000, self._on_gap)

    def _on_gap(self) -> None:
        """Pushes may have been missed: whoever lives on them reads what stands in Redis."""
        self._patrol.gap()
        self.authenticator.forget_all()
        self.owners.resync()
        self.tasks.spawn("feeds.catch_up", self.feeds.catch_up())

    async def drain(self) -> None:
        """Not ready any more: sockets are sent elsewhere, streams end, runs finish and their sessions change hands."""
        self.draining = True
        with suppress(BusError):  # others learn at once that nothing new is for this node
            await self.nodes.renew(self._info())
        await self._sockets.drain()
        self._streams.drain()
        await self.owners.hand_over(self._succession.give_up, wait_s=self.settings.limits.drain_s)

    async def close(self) -> None:
        """Ends children, then everything else. Idempotent."""
        await self.owners.close()
        await self._membership.leave()
        self.timers.close()
        await self.tasks.aclose()
        await self.topology.close()
        self._reaper.close()
