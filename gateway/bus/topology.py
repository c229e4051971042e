"""Where a partition lives. Owns the servers' set: one, a Sentinel's primary, or a Cluster's primaries and its slots.

A partition is the hash tag of its keys (``p00`` … ``p7f``). Ask ``for_partition`` for each command and keep nothing:
in a Cluster the answer changes. Never sends a command by itself but to find out where things are.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, cast

from gateway.bus.address import Address, parse_url
from gateway.bus.channels import Callback
from gateway.bus.clock import Clock
from gateway.bus.connect import Endpoint, Resolve, always
from gateway.bus.connection import Connection
from gateway.bus.errors import BusError, BusUnavailable, Kind
from gateway.bus.subscriber import Subscriber
from gateway.bus.versions import warnings
from gateway.bus.wire import Bounds, Script
from gateway.observe.tasks import Tasks

if TYPE_CHECKING:
    from asyncio import Future

logger = logging.getLogger(__name__)

_SENTINEL_S: Final = 0.5  # one Sentinel's answer
_WATCH_S: Final = 2.0


class Shard:
    """One primary as this node sees it: its command connection, its subscriptions, its clock."""

    def __init__(
        self,
        resolve: Resolve,
        address: Address,
        scripts: Iterable[Script],
        *,
        bounds: Bounds | None,
        sharded: bool = False,
        probe_channel: bytes | None = None,
    ) -> None:
        self.connection = Connection(resolve, address.login, bounds=bounds)
        self.connection.register(scripts)
        self.connection.on_up.append(self._check_version)
        self.subscriber = Subscriber(
            resolve, address.login, commands=self.connection, sharded=sharded, probe_channel=probe_channel
        )
        self.clock = Clock(self.connection)
        self._warned: set[str] = set()

    @property
    def fault(self) -> BusUnavailable | None:
        """Why it is not whole now; None when it is."""
        return self.connection.fault or self.subscriber.fault

    async def start(self, timeout: float) -> None:
        """Connects all three; raises ``BusUnavailable`` after ``timeout`` seconds, and goes on trying."""
        parts = (self.connection, self.subscriber, self.clock)
        outcomes = await asyncio.gather(*(part.start(timeout=timeout) for part in parts), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def close(self) -> None:
        """Ends all three."""
        await self.clock.close()
        await self.subscriber.close()
        await self.connection.close()

    def _check_version(self) -> None:
        for text in warnings(self.connection.server):
            if text not in self._warned:
                self._warned.add(text)
                logger.warning("%s", text)


class Topology(ABC):
    """The interface, and all that does not depend on the kind. ``connect`` makes the right one for a URL."""

    def __init__(self, address: Address, scripts: Sequence[Script], bounds: Bounds | None) -> None:
        self.address = address
        self._scripts = list(scripts)
        self._bounds = bounds
        self._gap_callbacks: list[Callable[[], None]] = []

    @property
    @abstractmethod
    def shards(self) -> Sequence[Shard]:
        """Every primary."""

    @abstractmethod
    def shard_for(self, tag: str) -> Shard:
        """The primary that has the keys with ``{tag}``."""

    @property
    def sharded(self) -> bool:
        """True where a push must be SPUBLISH (a Cluster that has it), false where it must be PUBLISH."""
        return False

    @abstractmethod
    async def start(self, *, timeout: float = 5.0) -> None:
        """Connects; raises ``BusUnavailable`` after ``timeout`` seconds, and goes on trying until ``close``."""

    @abstractmethod
    async def close(self) -> None:
        """Ends every connection."""

    @abstractmethod
    def subscribe(self, channel: bytes, callback: Callback) -> "Future[None]":
        """As ``Subscriber.subscribe``, at the server of the channel (its hash tag names the partition)."""

    @abstractmethod
    def unsubscribe(self, channel: bytes, callback: Callback) -> None:
        """As ``Subscriber.unsubscribe``."""

    # --- the same for all

    def for_partition(self, tag: str) -> Connection:
        """The command connection of a partition."""
        return self.shard_for(tag).connection

    def subscriber_for(self, tag: str) -> Subscriber:
        """The subscription connection of a partition. In a Cluster use ``subscribe``, which follows a slot."""
        return self.shard_for(tag).subscriber

    def clock_for(self, tag: str) -> Clock:
        """The clock that stamps a partition's deadlines."""
        return self.shard_for(tag).clock

    def all(self) -> list[Connection]:
        """The command connection of every primary."""
        return [shard.connection for shard in self.shards]

    def register(self, scripts: Iterable[Script]) -> None:
        """Scripts to load on each connect, now and of servers to come."""
        self._scripts.extend(scripts)
        for shard in self.shards:
            shard.connection.register(self._scripts)

    def on_gap(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls ``callback`` when pushes of any server may have been missed. Returns what takes it away again."""
        self._gap_callbacks.append(callback)
        return partial(self._forget_gap, callback)

    def _forget_gap(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(ValueError):
            self._gap_callbacks.remove(callback)

    def _gap(self) -> None:
        for callback in list(self._gap_callbacks):
            try:
                callback()
            except Exception:
                logger.exception("a callback after a gap failed")

    @property
    def fault(self) -> BusUnavailable | None:
        """Why the bus is not whole now; None when it is. Readiness is this."""
        return next((shard.fault for shard in self.shards if shard.fault is not None), None)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class OneServer(Topology):
    """A server whose place is known, or that Sentinels know. All partitions are there."""

    def __init__(
        self,
        address: Address,
        scripts: Sequence[Script] = (),
        bounds: Bounds | None = None,
        *,
        watch_s: float = _WATCH_S,
    ) -> None:
        super().__init__(address, scripts, bounds)
        self._sentinels = Sentinels(address) if address.kind == "sentinel" else None
        resolve = self._sentinels.primary if self._sentinels else always(address.endpoints[0])
        self._shard = Shard(resolve, address, scripts, bounds=bounds)
        self._shard.subscriber.on_gap(self._gap)
        self._watch_s = watch_s
        self._task: asyncio.Task[None] | None = None

    @property
    def shards(self) -> Sequence[Shard]:
        """The one."""
        return (self._shard,)

    def shard_for(self, tag: str) -> Shard:
        """The one."""
        return self._shard

    def subscribe(self, channel: bytes, callback: Callback) -> "Future[None]":
        """As ``Subscriber.subscribe``."""
        return self._shard.subscriber.subscribe(channel, callback)

    def unsubscribe(self, channel: bytes, callback: Callback) -> None:
        """As ``Subscriber.unsubscribe``."""
        self._shard.subscriber.unsubscribe(channel, callback)

    async def start(self, *, timeout: float = 5.0) -> None:
        """Connects."""
        if self._sentinels is not None and self._task is None:
            self._task = Tasks().spawn("bus.sentinel_watch", self._watch(self._sentinels))
        await self._shard.start(timeout)

    async def close(self) -> None:
        """Ends the connections."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._shard.close()
        if self._sentinels is not None:
            await self._sentinels.close()

    async def _watch(self, sentinels: "Sentinels") -> None:
        """Leaves a primary that the Sentinels have replaced and that does not know it: cut off, it still answers us."""
        while True:
            await asyncio.sleep(self._watch_s)
            try:
                primary = await sentinels.primary()
            except BusError:
                continue  # no Sentinel knows better: stay
            except Exception:
                logger.exception("asking the Sentinels failed in an unforeseen way")
                continue
            connection, subscriber = self._shard.connection, self._shard.subscriber
            if connection.up and connection.endpoint != primary:
                logger.warning("the Sentinels name another primary")
                connection.reconnect()
            if subscriber.up and subscriber.endpoint != primary:
                subscriber.reconnect()


class _SentinelClient(Protocol):
    """What is used of redis-py's client."""

    def sentinel_masters(self) -> Awaitable[dict[str, dict[str, Any]]]: ...

    async def aclose(self) -> None: ...


class Sentinels:
    """Asks the Sentinels who is the primary, one after the other, by redis-py's clients.

    redis-py's own ``discover_master`` changes its list while it waits: asked twice at once, as we ask, it loses a
    Sentinel and leaves its connection open.
    """

    def __init__(self, address: Address) -> None:
        # Loading redis takes longer than all the rest here, and only Sentinel needs it.
        from redis.asyncio.retry import Retry  # noqa: PLC0415
        from redis.asyncio.sentinel import Sentinel  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415

        self._service = address.service
        self._tls = address.endpoints[0].tls
        login = address.sentinel_login
        sentinel = Sentinel(
            [(e.host, e.port) for e in address.endpoints],
            sentinel_kwargs={
                "socket_timeout": _SENTINEL_S,
                "socket_connect_timeout": _SENTINEL_S,
                "retry": Retry(NoBackoff(), 0),
                **({"username": login.username or None, "password": login.password} if login.password else {}),
            },
        )
        self._clients = tuple(cast("list[_SentinelClient]", sentinel.sentinels))
        self._last: _SentinelClient | None = None  # whoever knew the primary is asked first
        self._usable = cast("Callable[[dict[str, Any], str], bool]", sentinel.check_master_state)  # pyright: ignore[reportUnknownMemberType]

    async def primary(self) -> Endpoint:
        """Where the primary is now. ``BusUnavailable`` when no Sentinel knows one that is up."""
        from redis.exceptions import RedisError  # noqa: PLC0415

        for client in sorted(self._clients, key=lambda each: each is not self._last):
            try:
                masters = await client.sentinel_masters()
            except (RedisError, OSError):
                continue  # another one may know
            state = masters.get(self._service)
            if state is not None and self._usable(state, self._service):
                self._last = client
                return Endpoint(state["ip"], state["port"], tls=self._tls)
        raise BusUnavailable(Kind.DOWN, detail="no Sentinel knows a primary")

    async def close(self) -> None:
        """Ends the connections to the Sentinels."""
        for client in self._clients:
            await client.aclose()


def connect(url: str, scripts: Sequence[Script] = (), *, bounds: Bounds | None = None) -> Topology:
    """The topology of a URL (``address.parse_url``), not started yet. Raises ``AddressError``."""
    address = parse_url(url)
    if address.kind == "cluster":
        from gateway.bus.cluster import Cluster  # noqa: PLC0415 - it needs this module

        return Cluster(address, scripts, bounds)
    return OneServer(address, scripts, bounds)
