"""From an address to an open, greeted socket: connecting, TLS, AUTH, SELECT, the client's name, the server's version.

Owns one attempt and the back-off between attempts; never repeats by itself, never keeps a socket: ``connection`` and
``subscriber`` hold what comes out of here.
"""

import asyncio
import random
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from gateway.bus.errors import BusError, BusUnavailable, Kind
from gateway.bus.replies import all_answered, let_go
from gateway.bus.wire import Arg, Bounds, Server, Wire, as_map

_KEEPALIVE: Final = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 15_000))
_OLDEST: Final = (6, 2)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens: ``path`` for a unix socket, else ``host`` and ``port``, by TLS when ``tls`` is set."""

    host: str = ""
    port: int = 0
    path: str = ""
    tls: ssl.SSLContext | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Login:
    """Who we are to the server. The password is in no ``repr``."""

    username: str = ""
    password: str = field(default="", repr=False)
    db: int = 0
    name: str = "toolrelay"


Resolve = Callable[[], Awaitable[Endpoint]]
"""Tells where the server is now; asked before each attempt to connect. Raises ``BusUnavailable`` or ``OSError``."""


def always(endpoint: Endpoint) -> Resolve:
    """A place that does not change."""

    async def resolve() -> Endpoint:
        return endpoint

    return resolve


async def locate(resolve: Resolve, timeout: float) -> Endpoint:
    """Where the server is now. ``BusUnavailable(TIMEOUT)`` when that is not told within ``timeout`` seconds."""
    try:
        async with asyncio.timeout(timeout):
            return await resolve()
    except TimeoutError:
        raise BusUnavailable(Kind.TIMEOUT, detail="resolving") from None


class Backoff:
    """Full jitter: a random part of a bound that doubles from ``first_s`` to ``most_s``."""

    def __init__(self, first_s: float = 0.05, most_s: float = 1.0) -> None:
        self._first = first_s
        self._most = most_s
        self._bound = first_s

    def next(self) -> float:
        """Seconds to wait before the next attempt."""
        wait = random.uniform(self._bound / 4, self._bound)  # noqa: S311 - spreads load, guards nothing
        self._bound = min(self._bound * 2, self._most)
        return wait

    def reset(self) -> None:
        """After a success that lasted."""
        self._bound = self._first


async def open_wire(endpoint: Endpoint, login: Login, bounds: Bounds, *, timeout: float, replica: bool = False) -> Wire:
    """A socket that has said HELLO as ``login`` to a server of a known version, all within ``timeout`` seconds.

    Raises ``BusUnavailable``. Unless ``replica`` is allowed, one counts as READONLY: a push published there would reach
    nobody.
    """
    loop = asyncio.get_running_loop()
    wire: Wire | None = None
    try:
        async with asyncio.timeout(timeout):
            wire = await _socket(endpoint, bounds, loop)
            await _hello(wire, login, replica=replica)
    except TimeoutError:
        raise BusUnavailable(Kind.TIMEOUT, detail="connecting") from None
    except (OSError, ssl.SSLError) as error:
        raise BusUnavailable(Kind.DOWN, detail=_os_text(error)) from None
    except BusUnavailable as error:
        # What the server said when it closed the door explains more than that it is closed.
        raise (wire.lost.result() if wire is not None and wire.lost.done() else error) from None
    else:
        opened, wire = wire, None
        return opened
    finally:
        if wire is not None:
            wire.abort(Kind.CLOSED)


async def _socket(endpoint: Endpoint, bounds: Bounds, loop: asyncio.AbstractEventLoop) -> Wire:
    def make() -> Wire:
        return Wire(loop, bounds)

    if endpoint.path:
        return (await loop.create_unix_connection(make, endpoint.path))[1]
    name = endpoint.host if endpoint.tls else None
    transport, wire = await loop.create_connection(
        make, endpoint.host, endpoint.port, ssl=endpoint.tls, server_hostname=name
    )
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return wire


async def _hello(wire: Wire, login: Login, *, replica: bool) -> None:
    args: list[Arg] = ["HELLO", 2]
    if login.password:
        args += ["AUTH", login.username or "default", login.password]
    args += ["SETNAME", login.name]
    hello = wire.send(tuple(args))
    # HELLO is answered while a server loads its data, PING is not.
    rest = [wire.send(("PING",)), *([wire.send(("SELECT", login.db))] if login.db else [])]
    try:
        known = as_map(await hello)
        await all_answered(rest)
    except BusUnavailable:
        raise
    except BusError as error:
        # A server before 6.0 knows no HELLO; its refusal says no more than that.
        raise BusUnavailable(Kind.VERSION, detail=str(error)) from None
    finally:
        for future in rest:
            future.cancel()
            let_go(future)
    wire.server = Server(
        known.get(b"server", b"").decode("ascii", "replace"),
        tuple(int(number) for number in re.findall(rb"\d+", known.get(b"version", b""))),
    )
    if wire.server.version < _OLDEST:
        raise BusUnavailable(Kind.VERSION, detail="needs 6.2 or later")
    if not replica and known.get(b"role") != b"master":
        raise BusUnavailable(Kind.READONLY, detail="the server is a replica")


def _os_text(error: OSError) -> str:
    """The system's words for an error, without the address that asyncio puts there."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "TLS"
    return (error.strerror or type(error).__name__).split(":", 1)[0] if error.errno else type(error).__name__
