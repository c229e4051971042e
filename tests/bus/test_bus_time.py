"""The bus clock as the nodes agree on it: who decides on a shift, who follows, what a script goes by."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from gateway.bus.clock import STEP_MS, Clock, Sample, monotonic
from gateway.bus.nodes import NodeInfo, Nodes
from gateway.bus.topology import Topology
from tests.doubles.bus import Bus

HOUR_MS = 3_600_000


class Member:
    """A node with a lease. Its monotonic clock can be moved, which is how a step of Redis' clock looks from there."""

    def __init__(self, bus: Bus, name: str) -> None:
        self.bus = bus
        self.clock: Clock = bus.topology.clock_for("nodes")
        self.nodes = Nodes(bus.store, f"{name}-{uuid4().hex[:6]}")
        self._info = NodeInfo(name, ("edge",))
        self._moved_s = 0.0
        self.clock._monotonic = lambda: monotonic() + self._moved_s  # pyright: ignore[reportPrivateUsage]

    async def renew(self) -> None:
        await self.nodes.renew(self._info)

    def stood_still(self, ms: int) -> None:
        """This node alone did, all of its clocks with it: Redis' clock seems to have been set."""
        self._moved_s -= ms / 1000


async def set_server(ms: int, *members: Member) -> None:
    """Redis' clock goes ahead, or back: the other way round, each node's clock and what it has stamped."""
    for member in members:
        member.stood_still(ms)
    bus = members[0].bus
    await bus.topology.for_partition("nodes").call("DEL", bus.store.keys.leases)


async def _stored(member: Member) -> tuple[int, int] | None:
    value = await member.bus.topology.for_partition("nodes").call("GET", member.bus.store.keys.clock)
    if value is None:
        return None
    generation, shift, _ = bytes(value).split()  # type: ignore[arg-type]
    return int(generation), int(shift)


@pytest.fixture
async def pair(a: Bus, b: Bus) -> tuple[Member, Member]:
    """Two nodes that have agreed: there is no shift."""
    members = Member(a, "a"), Member(b, "b")
    for member in members:
        await member.renew()
    assert [member.clock.shift_ms for member in members] == [0, 0]
    assert await _stored(members[0]) is None
    return members


@pytest.mark.parametrize("step", [600_000, -600_000, HOUR_MS, -HOUR_MS])
async def test_nodes_that_see_the_same_step_agree_on_one_shift(pair: tuple[Member, Member], step: int):
    a, b = pair
    await set_server(step, a, b)
    before = a.clock.now_ms()
    await a.renew()  # sees it
    assert a.clock.shift_ms == pytest.approx(step, abs=50)
    assert await _stored(a) is None
    await a.renew()  # says it
    assert await _stored(a) == (1, a.clock.shift_ms)
    await b.renew()  # sees it, and that it was said
    await a.renew()
    assert await _stored(a) == (1, b.clock.shift_ms)
    assert a.clock.shift_ms == b.clock.shift_ms
    for member in pair:
        assert -50 <= member.clock.now_ms() - before < 5_000, "the bus clock went on"
        assert sorted(node.info.name for node in member.nodes.living()) == ["a", "b"]


async def test_who_comes_later_follows(pair: tuple[Member, Member], b: Bus):
    a, _ = pair
    await set_server(HOUR_MS, a)
    await a.renew()
    await a.renew()
    young = Member(b, "c")
    young.clock.agreed, young.clock.shift_ms = False, 0
    assert young.clock.stamp() == b""
    await young.renew()
    assert young.clock.shift_ms == a.clock.shift_ms != 0
    assert young.clock.stamp().endswith(b" %d" % a.clock.shift_ms)
    assert young.nodes.lives(a.nodes.incarnation)


async def test_a_node_that_stood_still_moves_nobodys_clock(pair: tuple[Member, Member]):
    a, b = pair
    a.stood_still(60_000)
    await b.renew()
    await a.renew()
    assert a.clock.shift_ms == pytest.approx(60_000, abs=50)
    await b.renew()
    await a.renew()
    assert a.clock.shift_ms == 0, "others are ahead of it: it was its own clock"
    assert await _stored(b) is None
    await b.renew()
    assert b.clock.shift_ms == 0


async def test_of_two_who_say_it_the_first_is_heard(pair: tuple[Member, Member]):
    a, b = pair
    b.stood_still(100)
    await set_server(600_000, a, b)
    for member in (a, b):
        await member.renew()
    await b.renew()
    generation, shift = await _stored(b) or (0, 0)
    await a.renew()
    assert (generation, shift) == await _stored(a) == (1, a.clock.shift_ms)


async def test_a_shift_that_a_failover_lost_is_said_again(pair: tuple[Member, Member]):
    a, b = pair
    for _ in range(2):
        await set_server(600_000, a)
        await a.renew()
        await a.renew()
    keys = a.bus.store.keys
    generation, shift = await _stored(a) or (0, 0)
    assert generation == 2
    for older in (None, "1 600000 1"):
        connection = b.bus.topology.for_partition("nodes")
        await (connection.call("SET", keys.clock, older) if older else connection.call("DEL", keys.clock))
        await a.renew()
        found = await _stored(a)
        assert found is not None
        assert found[0] > generation or older is None
        assert found[1] == pytest.approx(shift, abs=50)
        assert a.clock.shift_ms == found[1]


async def test_a_shift_is_taken_back_by_a_thousandth(pair: tuple[Member, Member]):
    a, _ = pair
    await set_server(-600_000, a)
    await a.renew()
    await a.renew()
    generation, shift = await _stored(a) or (0, 0)
    long_ago = a.clock.now_ms() - 100_000
    await a.bus.topology.for_partition("nodes").call("SET", a.bus.store.keys.clock, f"{generation} {shift} {long_ago}")
    await a.renew()
    assert await _stored(a) == (generation, shift + 100)
    assert a.clock.shift_ms == shift + 100


async def test_a_step_that_is_followed(pair: tuple[Member, Member]):
    """Of less than a second: as a clock that is being disciplined moves."""
    a, _ = pair
    await set_server(STEP_MS - 200, a)
    await a.renew()
    await a.renew()
    assert a.clock.shift_ms == 0
    assert await _stored(a) is None


async def _dispatched_ms(bus: Bus) -> int:
    session_id, outbox = await bus.owned()
    client = await bus.client(session_id)
    await bus.dispatch(outbox, client, "c1")
    keys = bus.store.keys.session(session_id)
    return int(bytes(await bus.store.call(keys.tag, "HGET", keys.call("c1"), "dispatched")))  # type: ignore[arg-type]


def _moved(clock: Clock, ms: int) -> Callable[[], float]:
    taken = clock._monotonic  # pyright: ignore[reportPrivateUsage]
    return lambda: taken() + ms / 1000


@pytest.mark.parametrize("ms", [HOUR_MS, -HOUR_MS, 0])
async def test_a_script_goes_by_the_estimate_where_the_servers_clock_is_far_from_it(a: Bus, ms: int):
    clock = a.topology.clock_for("p00")
    clock._monotonic = _moved(clock, ms)  # pyright: ignore[reportPrivateUsage]
    stamped = await _dispatched_ms(a)
    assert -STEP_MS <= clock.now_ms() - stamped < 5_000


async def test_a_script_goes_by_the_servers_clock_less_the_shift(a: Bus):
    """An estimate that is a little off does not matter: one clock stamps and checks."""
    clock = a.topology.clock_for("p00")
    clock.agree(HOUR_MS)
    clock._monotonic = _moved(clock, STEP_MS - 300)  # pyright: ignore[reportPrivateUsage]
    assert clock.now_ms() - await _dispatched_ms(a) == pytest.approx(STEP_MS - 300, abs=250)
    clock.agreed = False
    assert await _dispatched_ms(a) - clock.now_ms() > HOUR_MS - 10_000, "nobody has told it of a shift"


class Servers:
    """A Cluster of two whose clocks differ, as one node sees it."""

    def __init__(self, *ahead_ms: int) -> None:
        self.clocks = [Clock(None) for _ in ahead_ms]  # type: ignore[arg-type]
        for clock, ms in zip(self.clocks, ahead_ms, strict=True):
            now = clock.ms()
            clock.take(Sample(now, now, 1e12 + now + ms))


def test_the_servers_of_a_cluster_have_one_bus_clock():
    """One that was set, or that comes with a clock of its own, is shifted to where the others are."""
    first, near, far = Servers(0, 300, 30_000).clocks
    first.agree(0)
    for other in (near, far):
        other.align(first)
    assert (near.shift_ms, near.agreed) == (0, True)
    assert far.shift_ms == pytest.approx(30_000, abs=2)
    assert far.now_ms() == pytest.approx(first.now_ms(), abs=5)
    first.agree(10_000)
    far.align(first)
    assert far.shift_ms == pytest.approx(40_000, abs=5)


def test_topologies_have_a_clock_for_the_nodes_key(a: Bus):
    assert isinstance(a.topology, Topology)
    assert a.topology.clock_for(a.store.keys.nodes_tag) is a.topology.clock_for("p00")
