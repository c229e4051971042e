"""A Cluster: who has which slot. Owns the slot map, its refresh, the redirected commands and the moved channels.

A redirected command was not executed, so it is sent on to the node that the redirection names, up to ``_HOPS`` times.
Nothing else is ever repeated.
"""

import asyncio
import contextlib
import logging
import random
import secrets
from collections import deque
from collections.abc import Collection, Coroutine, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, LiteralString, cast

from gateway.bus.address import Address
from gateway.bus.channels import Callback
from gateway.bus.connect import Backoff, Endpoint, always, open_wire
from gateway.bus.connection import Connection, answer
from gateway.bus.errors import BusError, BusUnavailable, Kind, Redirect
from gateway.bus.topology import Shard, Topology
from gateway.bus.wire import Bounds, Script, Sent
from gateway.observe.tasks import Tasks

if TYPE_CHECKING:
    from asyncio import Future

logger = logging.getLogger(__name__)

_SLOTS: Final = 16_384
_HOPS: Final = 5
_ASK_S: Final = 1.0
_HELD: Final = 4_096  # redirected commands that wait for a node to be connected
_HELD_S: Final = 1.0
_UNUSED_S: Final = 10.0
_SHARDED_PUBSUB: Final = (7, 0)


def _crc_table() -> tuple[int, ...]:
    table: list[int] = []
    for byte in range(256):
        crc = byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
        table.append(crc)
    return tuple(table)


_CRC: Final = _crc_table()
_BACK: Final = {entry & 0xFF: index for index, entry in enumerate(_CRC)}  # no two entries share their low byte


@lru_cache(maxsize=4_096)
def slot_of(key: bytes) -> int:
    """The slot of a key or channel: CRC-16 (XMODEM) of its hash tag, or of all of it (Cluster specification)."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return _crc(key) % _SLOTS


def _crc(data: bytes, crc: int = 0) -> int:
    for byte in data:
        crc = (crc << 8 & 0xFF00) ^ _CRC[crc >> 8 ^ byte]
    return crc


def _closing(crc: int, wanted: int) -> bytes:
    """The two bytes that take a CRC from ``crc`` to ``wanted``: the table is walked backwards."""
    last = _BACK[wanted & 0xFF]
    first = _BACK[wanted >> 8 ^ _CRC[last] >> 8]
    return bytes((crc >> 8 ^ first, (crc & 0xFF) ^ _CRC[first] >> 8 ^ last))


def channel_in(slot: int) -> bytes:
    """A name of our own that lies in ``slot``: a random hash tag whose last two characters are computed."""
    while True:  # one tag in five can be closed by letters and digits
        tag = secrets.token_hex(6).encode()
        crc = _crc(tag)
        for wanted in range(slot, 1 << 16, _SLOTS):  # a slot is a part of the CRC
            if (end := _closing(crc, wanted)).isalnum():
                return b"toolrelay:probe:{%s%s}" % (tag, end)


Ranges = list[tuple[int, int, Endpoint]]


class Cluster(Topology):
    """A Cluster's primaries. ``subscribe`` follows a channel whose slot moves; a gap is reported for each move."""

    def __init__(self, address: Address, scripts: Sequence[Script] = (), bounds: Bounds | None = None) -> None:
        super().__init__(address, scripts, bounds)
        self.refreshes = 0
        self._by_place: dict[tuple[str, int], Shard] = {}
        self._map: list[Shard | None] = [None] * _SLOTS
        self._places: dict[tuple[str, int], None] = {(e.host, e.port): None for e in address.endpoints}  # replicas too
        self._callbacks: dict[bytes, list[Callback]] = {}
        self._subscribed_at: dict[bytes, Shard] = {}
        self._lost: set[bytes] = set()  # channels that a server has dropped
        self._informed: Connection | None = None  # of the server that the last MOVED named
        self._held: dict[Shard, deque[tuple[Sent, bool]]] = {}
        self._unused: dict[Shard, float] = {}  # since when
        self._sharded = True
        self._stale = asyncio.Event()
        self._fresh = asyncio.Event()
        self._known: BusUnavailable | None = BusUnavailable(Kind.DOWN, detail="no node of the Cluster answers")
        self._task: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    # --- the interface

    @property
    def shards(self) -> Sequence[Shard]:
        """The primaries that are known."""
        return list(self._by_place.values())

    @property
    def sharded(self) -> bool:
        """True from Redis 7 on."""
        return self._sharded

    @property
    def fault(self) -> BusUnavailable | None:
        """As ``Topology.fault``; also while the slots are not known."""
        return self._known or super().fault

    def shard_for(self, tag: str) -> Shard:
        """The primary of a partition, as far as is known; it redirects if not. ``BusUnavailable`` with no map."""
        shard = self._map[slot_of(b"{%s}" % tag.encode())]
        if shard is None:
            if not self._by_place:
                raise BusUnavailable(Kind.CLUSTERDOWN, detail="the slots are not known yet")
            shard = next(iter(self._by_place.values()))
        return shard

    def subscribe(self, channel: bytes, callback: Callback) -> "Future[None]":
        """As ``Subscriber.subscribe``. ``BusUnavailable`` is raised at once while no slots are known."""
        shard = self._shard_of(channel)
        self._callbacks.setdefault(channel, []).append(callback)
        self._subscribed_at.setdefault(channel, shard)
        return self._subscribed_at[channel].subscriber.subscribe(channel, callback)

    def unsubscribe(self, channel: bytes, callback: Callback) -> None:
        """As ``Subscriber.unsubscribe``."""
        callbacks = self._callbacks.get(channel, [])
        if callback not in callbacks:
            return
        callbacks.remove(callback)
        self._subscribed_at[channel].subscriber.unsubscribe(channel, callback)
        if not callbacks:
            del self._callbacks[channel], self._subscribed_at[channel]

    def _shard_of(self, channel: bytes) -> Shard:
        shard = self._map[slot_of(channel)]
        if shard is None:
            raise BusUnavailable(Kind.CLUSTERDOWN, detail="the slot is served by nobody")
        return shard

    async def start(self, *, timeout: float = 5.0) -> None:
        """Learns the slots and connects to every primary."""
        if self._task is None:
            self._stale.set()
            self._task = Tasks().spawn("bus.cluster_map", self._keep_fresh())
        try:
            async with asyncio.timeout(timeout):
                await self._fresh.wait()
                await asyncio.gather(*(shard.start(timeout) for shard in self.shards))
        except TimeoutError:
            raise self.fault or BusUnavailable(Kind.TIMEOUT, detail="connecting to the Cluster") from None

    async def close(self) -> None:
        """Ends every connection."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._closing:
            await asyncio.wait(self._closing)
        await asyncio.gather(*(shard.close() for shard in self.shards))

    # --- the map

    def refresh(self) -> None:
        """Asks for the slots soon; many wishes are one question."""
        self._stale.set()

    async def _keep_fresh(self) -> None:
        backoff = Backoff(0.05, 1.0)
        while True:
            if self._whole():
                await self._stale.wait()
            self._stale.clear()
            try:
                self._apply(await self._ask())
                self._known = None
                self.refreshes += 1
            except (BusError, OSError) as error:
                if self._known is None:
                    logger.warning("the Cluster's slots cannot be had: %s", error)
                self._known = error if isinstance(error, BusUnavailable) else BusUnavailable(Kind.DOWN)
            except Exception:
                logger.exception("reading the Cluster's slots failed in an unforeseen way")
            else:
                self._fresh.set()
            if self._whole():
                backoff.reset()
            await asyncio.sleep(backoff.next())

    def _whole(self) -> bool:
        return self._known is None and None not in self._map and all(shard.connection.up for shard in self.shards)

    async def _ask(self) -> Ranges:
        """The slots by CLUSTER SLOTS, from any node that answers: a connected primary first."""
        connections = [connection for connection in self.all() if connection.up]
        random.shuffle(connections)  # one that is cut off must not be asked every time
        connections.sort(key=lambda connection: connection is not self._informed)
        self._informed = None
        error: BusError = BusUnavailable(Kind.DOWN, detail="no node of the Cluster answers")
        for connection in connections:
            try:
                reply = await answer(connection.call("CLUSTER", "SLOTS"), _ASK_S)
                return self._read(reply, connection.endpoint, connection.server.version)
            except BusError as fault:
                error = fault
        tls = self.address.endpoints[0].tls
        for host, port in list(self._places):
            endpoint = Endpoint(host, port, tls=tls)
            try:
                wire = await open_wire(endpoint, self.address.login, Bounds(), timeout=_ASK_S, replica=True)
                try:
                    return self._read(
                        await answer(wire.send(("CLUSTER", "SLOTS")), _ASK_S), endpoint, wire.server.version
                    )
                finally:
                    wire.abort(Kind.CLOSED)
            except BusError as fault:
                error = fault
        raise error

    def _read(self, reply: object, asked: Endpoint | None, version: tuple[int, ...]) -> Ranges:
        ranges: Ranges = []
        places: dict[tuple[str, int], None] = {(e.host, e.port): None for e in self.address.endpoints}
        for entry in cast("list[list[Any]]", reply):
            nodes = [
                (bytes(node[0] or b"").decode() or (asked.host if asked else ""), int(node[1])) for node in entry[2:]
            ]
            places.update(dict.fromkeys(nodes))
            ranges.append((int(entry[0]), int(entry[1]), Endpoint(*nodes[0], tls=self.address.endpoints[0].tls)))
        if not ranges:
            raise BusUnavailable(Kind.CLUSTERDOWN, detail="the Cluster has no slots")
        self._places = places
        self._sharded = version >= _SHARDED_PUBSUB
        return ranges

    def _apply(self, ranges: Ranges) -> None:
        fresh: list[Shard | None] = [None] * _SLOTS
        first_slot: dict[Shard, int] = {}
        for first, last, endpoint in ranges:
            shard = self._shard_at(endpoint, first)
            fresh[first : last + 1] = [shard] * (last + 1 - first)
            first_slot.setdefault(shard, first)
        self._map = fresh
        for shard, slot in first_slot.items():
            if self._sharded and fresh[slot_of(shard.subscriber.probe_channel)] is not shard:
                shard.subscriber.probe_on(channel_in(slot))
        self._follow()
        self._leave(first_slot.keys())

    def _leave(self, live: Collection[Shard]) -> None:
        """Closes the shards without a slot: those that are down at once, the others when nobody uses them any more (a
        slot on its way there is asked for by ASK before the map names it)."""
        loop = asyncio.get_running_loop()
        for place, shard in list(self._by_place.items()):
            if shard in live:
                self._unused.pop(shard, None)
                continue
            if shard not in self._unused:
                self._unused[shard] = loop.time()
                loop.call_later(_UNUSED_S + 1, self.refresh)
            used = shard.connection.up and (shard.connection.pending or loop.time() - self._unused[shard] < _UNUSED_S)
            if not used and not self._held.get(shard):
                del self._by_place[place], self._unused[shard]
                self._background(shard.close(), "bus.shard_close")

    def _shard_at(self, endpoint: Endpoint, slot: int) -> Shard:
        """The shard of a place, begun if it is new; its probe lies in ``slot``."""
        place = (endpoint.host, endpoint.port)
        shard = self._by_place.get(place)
        if shard is None:
            shard = self._by_place[place] = Shard(
                always(endpoint),
                self.address,
                self._scripts,
                bounds=self._bounds,
                sharded=self._sharded,
                probe_channel=channel_in(slot) if self._sharded else None,
            )
            shard.connection.redirect = partial(self._redirected, shard.connection)
            shard.connection.on_up.append(partial(self._release, shard))
            shard.connection.on_down.append(self._on_down)
            shard.subscriber.follow(self._on_moved)
            shard.subscriber.on_gap(self._gap)
            self._background(self._begin(shard), "bus.shard_start")
        return shard

    async def _begin(self, shard: Shard) -> None:
        with contextlib.suppress(BusError):  # it goes on trying, and ``fault`` says so
            await shard.start(5.0)

    def _background(self, work: Coroutine[Any, Any, None], name: LiteralString) -> None:
        task = Tasks().spawn(name, work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _on_down(self, _: BusUnavailable) -> None:
        self.refresh()

    # --- channels

    def _on_moved(self, channel: bytes) -> None:
        if channel in self._callbacks:
            self._lost.add(channel)
        self.refresh()

    def _follow(self) -> None:
        """Subscribes each channel at the server that has its slot now, and once more what a server has dropped."""
        followed: list[Future[None]] = []
        lost, self._lost = self._lost, set()
        for channel, callbacks in self._callbacks.items():
            shard, before = self._map[slot_of(channel)], self._subscribed_at[channel]
            if shard is None:
                if channel in lost:
                    self._lost.add(channel)
            elif shard is not before:
                self._subscribed_at[channel] = shard
                for callback in callbacks:
                    before.subscriber.unsubscribe(channel, callback)
                    followed.append(shard.subscriber.subscribe(channel, callback))
            elif channel in lost:
                followed.append(shard.subscriber.resubscribe(channel))
        if followed:
            asyncio.gather(*followed, return_exceptions=True).add_done_callback(self._followed)

    def _followed(self, outcomes: "Future[list[BaseException | None]]") -> None:
        if not outcomes.cancelled() and None in outcomes.result():  # else they have moved on before they arrived
            self._gap()

    # --- redirected commands

    def _redirected(self, origin: Connection, sent: Sent, error: Redirect) -> bool:
        """Sends a command on; it was not executed where it came back from."""
        sent.hops += 1
        host = error.host or (origin.endpoint.host if origin.endpoint else "")
        if sent.hops > _HOPS or not host:
            _give_up(sent)
            return True
        shard = self._shard_at(Endpoint(host, error.port, tls=self.address.endpoints[0].tls), error.slot)
        if not error.ask:
            self._map[error.slot] = shard
            self._informed = shard.connection
            self.refresh()
        if not shard.connection.take_over(sent, asking=error.ask):
            held = self._held.setdefault(shard, deque())
            if len(held) >= _HELD:
                _give_up(sent)
                return True
            if not held:
                asyncio.get_running_loop().call_later(_HELD_S, self._expire, shard)
            held.append((sent, error.ask))
        return True

    def _release(self, shard: Shard) -> None:
        for sent, asking in self._held.pop(shard, ()):
            shard.connection.take_over(sent, asking=asking)

    def _expire(self, shard: Shard) -> None:
        for sent, _ in self._held.pop(shard, ()):
            _give_up(sent)


def _give_up(sent: Sent) -> None:
    if not sent.future.done():
        sent.future.set_exception(BusUnavailable(Kind.MOVED))
