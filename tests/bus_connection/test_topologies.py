"""Sentinel and Cluster, by the real binary."""

import asyncio
import importlib
import signal
import time

import pytest

from gateway.bus.address import parse_url
from gateway.bus.cluster import Cluster, channel_in, slot_of
from gateway.bus.errors import BusError, BusUnavailable
from gateway.bus.topology import Sentinels, Topology, connect
from gateway.bus.wire import Script
from tests.doubles.valkey_servers import ClusterSet, SentinelSet, Server, ask, until

SET = Script("return redis.call('SET', KEYS[1], ARGV[1])")
TAGS = [f"p{n:02x}" for n in range(128)]


def publish(bus: Topology) -> str:
    return "SPUBLISH" if bus.sharded else "PUBLISH"


async def test_one_server_serves_every_partition() -> None:
    async with Server() as server, connect(server.url, [SET]) as bus:
        assert bus.fault is None
        assert bus.for_partition("p00") is bus.for_partition("p7f")
        assert bus.all() == [bus.for_partition("p00")]
        assert await bus.for_partition("p00").run(SET, ["{p00}k"], ["v"]) == b"OK"
        assert abs(bus.clock_for("p00").now_ms() - time.time() * 1000) < 1000
        got: list[bytes] = []
        await bus.subscribe(b"{p00}push", got.append)
        await bus.for_partition("p00").call("PUBLISH", "{p00}push", "hello")
        await until(lambda: got == [b"hello"])


async def test_a_sentinel_failover_is_followed_and_readers_are_told() -> None:
    async with SentinelSet() as servers, connect(servers.url, [SET]) as bus:
        gaps: list[float] = []
        bus.on_gap(lambda: gaps.append(time.monotonic()))
        got: list[bytes] = []
        await bus.subscribe(b"push", got.append)
        assert await bus.for_partition("p00").run(SET, ["k"], ["v"]) == b"OK"
        await servers.primary.stop()

        async def writes() -> bool:
            return await bus.for_partition("p00").run(SET, ["k"], ["w"]) == b"OK"

        await until(writes, 15)
        assert bus.for_partition("p00").endpoint == servers.replica.endpoint
        await until(lambda: gaps and bus.fault is None, 15)
        await bus.for_partition("p00").call("PUBLISH", "push", "after")
        await until(lambda: got == [b"after"])


async def test_a_primary_that_the_sentinels_replaced_without_its_knowing_is_left() -> None:
    async with SentinelSet() as servers, connect(servers.url, [SET]) as bus:
        gaps: list[float] = []
        bus.on_gap(lambda: gaps.append(time.monotonic()))
        servers.primary.signal(signal.SIGSTOP)  # cut off from the Sentinels and from us
        await until(lambda: bus.fault is not None, 15)
        await until(lambda: bus.fault is None and bus.for_partition("p00").endpoint == servers.replica.endpoint, 15)
        servers.primary.signal(signal.SIGCONT)
        assert await bus.for_partition("p00").run(SET, ["k"], ["w"]) == b"OK"
        await until(lambda: gaps, 15)
        assert bus.subscriber_for("p00").endpoint == servers.replica.endpoint


async def move_slot(servers: ClusterSet, slot: int, source: Server, target: Server) -> None:
    source_id = await ask(source.port, "CLUSTER", "MYID")
    target_id = await ask(target.port, "CLUSTER", "MYID")
    assert isinstance(source_id, bytes)
    assert isinstance(target_id, bytes)
    await ask(target.port, "CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
    await ask(source.port, "CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)


async def end_move(servers: ClusterSet, slot: int, source: Server, target: Server) -> None:
    target_id = await ask(target.port, "CLUSTER", "MYID")
    assert isinstance(target_id, bytes)
    keys = await ask(source.port, "CLUSTER", "GETKEYSINSLOT", slot, 1000)
    assert isinstance(keys, list)
    if keys:
        await ask(source.port, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
    # Each once: a server that is told again drops its subscriptions again.
    for node in dict.fromkeys([target, source, *servers.nodes]):
        await ask(node.port, "CLUSTER", "SETSLOT", slot, "NODE", target_id)


async def test_a_cluster_of_three_serves_every_partition() -> None:
    async with ClusterSet() as servers, connect(servers.url, [SET]) as bus:
        assert isinstance(bus, Cluster)
        assert bus.sharded is (bus.all()[0].server.version >= (7, 0))
        assert len(bus.all()) == 3
        replies = await asyncio.gather(*(bus.for_partition(t).run(SET, [f"{{{t}}}k"], [t]) for t in TAGS))
        assert replies == [b"OK"] * 128
        assert len({id(bus.for_partition(t)) for t in TAGS}) == 3
        got: list[bytes] = []
        await asyncio.gather(*(bus.subscribe(f"{{{t}}}push".encode(), got.append) for t in TAGS))
        await asyncio.gather(*(bus.for_partition(t).call(publish(bus), f"{{{t}}}push", t) for t in TAGS))
        await until(lambda: sorted(got) == sorted(t.encode() for t in TAGS))
        for shard in bus.shards:
            shard.subscriber.probe_now()
        await until(lambda: all(s.subscriber.received > len(TAGS) / 6 for s in bus.shards))
        assert all(s.subscriber.silent == 0 for s in bus.shards)


async def test_a_slot_that_moves_to_an_empty_node_loses_no_command_and_reports_a_gap() -> None:
    async with ClusterSet(2, empty=1) as servers, connect(servers.url, [SET]) as bus:
        assert isinstance(bus, Cluster)
        tag = next(t for t in TAGS if slot_of(t.encode()) < 8000)
        slot, key, channel = slot_of(tag.encode()), f"{{{tag}}}k", f"{{{tag}}}push".encode()
        source, target = servers.nodes[0], servers.nodes[2]
        gaps: list[float] = []
        bus.on_gap(lambda: gaps.append(time.monotonic()))
        got: list[bytes] = []
        await bus.subscribe(channel, got.append)
        assert await bus.for_partition(tag).run(SET, [key], ["1"]) == b"OK"
        await move_slot(servers, slot, source, target)
        # The key is still at the source; a new one is asked of the target (ASK), scripts and all.
        assert await bus.for_partition(tag).run(SET, [key], ["2"]) == b"OK"
        assert await bus.for_partition(tag).run(SET, [key + "new"], ["3"]) == b"OK"
        await end_move(servers, slot, source, target)
        assert await bus.for_partition(tag).call("GET", key) == b"2"
        assert await bus.for_partition(tag).call("GET", key + "new") == b"3"
        await until(lambda: gaps and bus.for_partition(tag).endpoint == target.endpoint)
        assert len(gaps) == 1
        await bus.for_partition(tag).call(publish(bus), channel, "after")
        await until(lambda: got == [b"after"])


async def test_a_cluster_node_that_dies_is_replaced_by_its_replica() -> None:
    async with ClusterSet(3, replicas=1) as servers, connect(servers.url, [SET]) as bus:
        tag = next(t for t in TAGS if slot_of(t.encode()) < 5000)
        gaps: list[float] = []
        bus.on_gap(lambda: gaps.append(time.monotonic()))
        got: list[bytes] = []
        channel = f"{{{tag}}}push".encode()
        await bus.subscribe(channel, got.append)
        other = next(t for t in TAGS if slot_of(t.encode()) > 12000)
        await servers.nodes[0].stop()
        # The neighbours' primaries serve on: the Cluster is told apart by slots, not by its state as a whole.
        assert await bus.for_partition(other).run(SET, [f"{{{other}}}k"], ["v"]) == b"OK"

        async def writes() -> bool:
            return await bus.for_partition(tag).run(SET, [f"{{{tag}}}k"], ["w"]) == b"OK"

        await until(writes, 20)
        await until(lambda: gaps and bus.fault is None, 20)
        await bus.for_partition(tag).call(publish(bus), channel, "after")
        await until(lambda: got == [b"after"])


def test_slots_are_those_of_redis_py() -> None:
    crc = importlib.import_module("redis.crc")
    for key in (b"", b"a", b"{p00}x", b"x{}y", b"{{a}b", b"x{a}{b}", b"\xff\x00{\xfe}"):
        assert slot_of(key) == crc.key_slot(key)


def test_a_channel_of_any_slot_is_computed_and_not_searched_for() -> None:
    """A search would take minutes here, and would hold up a node's loop when it starts and in a failover."""
    names = {slot: channel_in(slot) for slot in range(0, 16_384, 5)}
    assert all(slot_of(name) == slot for slot, name in names.items())
    assert len({*names.values(), *(channel_in(0) for _ in range(100))}) == len(names) + 100, "each is its own"


@pytest.mark.parametrize("kind", ["none", "wrong"])
async def test_no_cluster_to_be_had_is_an_answer(kind: str) -> None:
    url = "redis+cluster://127.0.0.1:1"
    async with Server() as server:
        bus = connect(url if kind == "none" else server.url.replace("redis:", "redis+cluster:"))
        with pytest.raises(BusError):
            await bus.start(timeout=0.5)
        assert bus.fault is not None
        await bus.close()


class _Sentinel:
    """One Sentinel as redis-py's client shows it. ``flags`` is what it thinks of the primary; None: it is down."""

    def __init__(self, port: int, *, down: bool | None) -> None:
        self.port, self.down, self.closed = port, down, 0

    async def sentinel_masters(self) -> dict[str, dict[str, object]]:
        await asyncio.sleep(0)
        if self.down is None:
            raise OSError
        flags = {"is_master": True, "is_sdown": self.down, "is_odown": self.down, "num-other-sentinels": 2}
        return {"tr": {"ip": "127.0.0.1", "port": self.port, **flags}}

    async def aclose(self) -> None:
        self.closed += 1


async def test_sentinels_that_are_asked_many_times_at_once_are_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    sentinels = Sentinels(parse_url("redis+sentinel://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/tr"))
    late, second, third = clients = (_Sentinel(1, down=True), _Sentinel(2, down=False), _Sentinel(3, down=False))
    monkeypatch.setattr(sentinels, "_clients", clients)

    async def ports() -> set[int]:
        return {found.port for found in await asyncio.gather(*(sentinels.primary() for _ in range(10)))}

    assert await ports() == {2}
    second.down = None
    assert await ports() == {3}
    late.down, third.down = False, True
    assert await ports() == {1}, "the first one was forgotten"
    late.down = None
    with pytest.raises(BusUnavailable):
        await sentinels.primary()
    await sentinels.close()
    assert [each.closed for each in clients] == [1, 1, 1]
