"""One process: state folder, embedded Redis, gateway, uvicorn, signals. Owns the order of start and end of them all.

Draining begins in our own signal path: uvicorn would wait for open connections first. A second signal ends at once.
"""

import asyncio
import errno
import gc
import resource
import shutil
import signal
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Final

import uvicorn
import uvloop
from starlette.types import ASGIApp

from gateway.app import SOCKET_PROTOCOL, Gateway
from gateway.bus.embedded import EmbeddedError, EmbeddedServer
from gateway.bus.errors import BusError
from gateway.config.dev import DEMO_AGENT
from gateway.config.settings import Agent, Settings, known_secrets
from gateway.config.state import State, StateError, open_state
from gateway.model import limits
from gateway.model.redaction import KnownSecret, Redactor
from gateway.observe import log as logs
from gateway.observe import metrics
from gateway.observe.log import get_logger
from gateway.web.demo import Demo
from gateway.web.protocol import HttpProtocol

log = get_logger("server")

CONNECT_S: Final = 5.0
CLOSE_S: Final = 20.0
OPEN_FILES: Final = 1 << 20


class StartError(Exception):
    """This node cannot start; the text is one line for a person."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: ours drain first."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def run(settings: Settings, *, dev: bool = False, demo: bool = False, demo_agent: str = DEMO_AGENT) -> int:
    """Serves until a signal. Returns the exit code: 0 after a drained end, 1 when it could not start.

    ``dev`` adds the demo page, whose sessions are of ``demo_agent``; ``demo`` keeps nothing afterwards.
    """
    known = [KnownSecret(value, label) for value, label in known_secrets(settings)]
    redactor = Redactor(known, metrics.count_redaction)
    logs.configure(level=settings.server.log_level, redact=redactor.diagnostic)
    raise_open_files()
    sys.excepthook, threading.excepthook = logs.on_crash, logs.on_thread_crash
    try:
        with open_state(settings) as state:
            _check_agents(settings)
            if "agents" in settings.server.roles:
                redactor.deltas().feed(" ")  # its rules are compiled at their first use: half a second, so not in a run
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(
                    _serve(settings, state, redactor, page_of=demo_agent if dev or demo else "", demo=demo)
                )
    except (StateError, StartError, EmbeddedError) as error:
        print(f"toolrelay: {redactor.diagnostic(str(error))}", file=sys.stderr)  # noqa: T201
        return 1


def raise_open_files() -> None:
    """Every stream and socket is an open file, and most systems allow a process 1,024 until it asks for more. Children
    have a bound of their own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):  # some systems have a lower bound that they do not tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _check_agents(settings: Settings) -> None:
    """An agent that cannot be started is better known now than at its first input."""
    if "agents" not in settings.server.roles:
        return
    for agent in settings.agents:
        if shutil.which(agent.command[0], path=_path(agent)) is None:
            raise StartError(f"agent {agent.name}: the command {agent.command[0]} does not exist or cannot be executed")


def _path(agent: Agent) -> str | None:
    path = agent.env.get("PATH")
    return path.reveal() if path is not None else None


async def _serve(settings: Settings, state: State, redactor: Redactor, *, page_of: str, demo: bool) -> int:
    asyncio.get_running_loop().set_exception_handler(logs.on_loop_error)
    stop = _Stop()
    async with AsyncExitStack() as stack:
        url = settings.redis.url.reveal()
        if url == "embedded":
            embedded = EmbeddedServer(None if demo else state.folder / "redis")
            url = (await stack.enter_async_context(embedded)).url
        page = None
        if page_of and "edge" in settings.server.roles:
            page = Demo(settings, _say, agent_name=page_of)
        gateway = Gateway(
            settings,
            node_name=state.node_name,
            redis_url=url,
            redactor=redactor,
            demo_agent=page.agent_name if page is not None else "",
        )
        stack.push_async_callback(gateway.close)
        if page is not None:
            gateway.add_routes(page.routes(gateway.open_session, gateway.http.failures))
        try:
            await gateway.start(timeout=CONNECT_S)
        except BusError as error:
            raise StartError(f"redis.url: the bus is not reachable: {error}") from None
        listener = _listen(settings, settings.server.port, "; --port takes another (0: a free one)")
        if gateway.metrics is not None:
            await stack.enter_async_context(_measured(settings, gateway, gateway.metrics))
        server = _Server(uvicorn_config(settings, gateway.asgi))
        serving = gateway.tasks.spawn("server", server.serve(sockets=[listener]))
        await _say_where(settings, listener, page, demo=demo)
        gc.collect()
        gc.freeze()  # what was made to start lives as long as the process: no collection need look at it again
        await stop.wait(serving)
        log.info("draining")
        await gateway.drain()
        server.should_exit = True
        server.force_exit = stop.twice
        await asyncio.wait([serving], timeout=CLOSE_S)
    return 0


class _Stop:
    """SIGTERM and SIGINT: the first drains, the second ends at once."""

    def __init__(self) -> None:
        self._wanted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.twice = False
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        self.twice = self._wanted.done()
        if not self.twice:
            self._wanted.set_result(None)

    async def wait(self, serving: "asyncio.Task[None]") -> None:
        """Until a signal, or until the server has ended by itself (which it does only after a fault)."""
        await asyncio.wait([self._wanted, serving], return_when=asyncio.FIRST_COMPLETED)


@asynccontextmanager
async def _measured(settings: Settings, gateway: Gateway, app: ASGIApp) -> AsyncGenerator[None]:
    """Serves the metrics on their own port while the node lives, draining included."""
    listener = _listen(settings, settings.server.metrics_port, " (server.metrics_port)")
    config = uvicorn.Config(
        app, ws="none", lifespan="off", access_log=False, log_config=None, server_header=False, limit_concurrency=16
    )
    server = _Server(config)
    serving = gateway.tasks.spawn("metrics", server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = server.force_exit = True
        await asyncio.wait([serving], timeout=CLOSE_S)


def _listen(settings: Settings, port: int, advice: str) -> socket.socket:
    host = settings.server.host
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), port), family=family, backlog=2048)
    except OSError as error:
        told = advice if error.errno == errno.EADDRINUSE else ""
        raise StartError(f"cannot listen on {host}:{port}: {error.strerror}{told}") from None


def uvicorn_config(settings: Settings, app: ASGIApp) -> uvicorn.Config:
    """How uvicorn serves ``app``: its limits are ours."""
    return uvicorn.Config(
        app,
        http=HttpProtocol,
        ws=SOCKET_PROTOCOL,
        ws_max_size=limits.SOCKET_FRAME_BYTES,
        ws_per_message_deflate=False,  # a deflate context costs 40 KiB a socket, and a bomb costs more
        ws_ping_interval=limits.KEEPALIVE_S,
        ws_ping_timeout=limits.KEEPALIVE_S,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(settings.limits.drain_s) + 1,
    )


async def _say_where(settings: Settings, listener: socket.socket, page: Demo | None, *, demo: bool) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    address = settings.server.public_url or f"http://{shown}:{port}"
    log.info("serving", port=port, roles=",".join(settings.server.roles))
    _say(f"toolrelay serves {address}")
    if page is not None:
        for line in page.lines(address, demo=demo):
            _say(line)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201
