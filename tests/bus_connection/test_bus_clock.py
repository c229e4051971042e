"""The bus clock: the estimator against made-up clocks, the service against a real server."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bus.clock import Clock, Offset, Sample
from gateway.bus.connection import Connection
from gateway.bus.errors import BusUnavailable
from tests.doubles.valkey_servers import Server, until


@given(
    offset=st.floats(-1e12, 1e12),
    trips=st.lists(st.tuples(st.floats(0.01, 500), st.floats(0, 1)), min_size=1, max_size=40),
)
def test_the_estimate_is_never_further_off_than_its_bound(offset: float, trips: list[tuple[float, float]]) -> None:
    """Any round trips, however lopsided, on clocks that run alike: no step is seen and the bound holds."""
    estimate = Offset()
    now = 1000.0
    for trip, share in trips:
        sample = Sample(now, now + trip, now + trip * share + offset)
        assert estimate.add(sample) == 0
        now += trip + 5000
    assert estimate.ms is not None
    assert estimate.radius_ms is not None
    assert abs(estimate.ms - offset) <= estimate.radius_ms + 0.01


def test_the_smallest_round_trip_wins_until_it_is_old() -> None:
    estimate = Offset()
    estimate.add(Sample(0, 1, 1000.5))
    estimate.add(Sample(5000, 5100, 6100))  # lopsided: 50 ms off, within its own bound
    assert estimate.ms == 1000
    for n in range(2, 14):
        estimate.add(Sample(n * 5000, n * 5000 + 10, n * 5000 + 1006))
    assert estimate.ms == pytest.approx(1001)


@given(step=st.one_of(st.floats(20, 1e9), st.floats(-1e9, -20)))
def test_a_clock_that_was_set_is_noticed_once(step: float) -> None:
    estimate = Offset()
    for n in range(3):
        assert estimate.add(Sample(n * 5000, n * 5000 + 2, n * 5000 + 1001)) == 0
    assert estimate.add(Sample(15_000, 15_002, 16_001 + step)) == pytest.approx(step)
    assert estimate.ms == pytest.approx(1000 + step)
    assert estimate.add(Sample(20_000, 20_002, 21_001 + step)) == 0


def test_two_clocks_that_drift_apart_are_not_a_step() -> None:
    estimate = Offset()
    for n in range(200):
        now = n * 5000.0
        assert estimate.add(Sample(now, now + 1, (now + 0.5) * 1.0001 + 7)) == 0
    assert estimate.ms is not None
    assert abs(estimate.ms - (7 + 199 * 5000 * 0.0001)) < 1.5


async def test_it_follows_a_real_server_and_goes_on_over_a_step() -> None:
    async with Server() as server, Connection(server.endpoint) as bus:
        jump = 0.0
        clock = Clock(bus, every_s=0.05, monotonic=lambda: time.monotonic() + jump)
        with pytest.raises(BusUnavailable):
            clock.now_ms()
        await clock.start()
        began = clock.now_ms()
        assert abs(began - time.time() * 1000) < 100
        assert clock.stamp() == b"", "before the nodes agree it has no say"
        clock.agree(0)
        assert clock.stamp().isdigit()
        jump = -90.0  # as if the server's clock had been set by 90 s
        await until(lambda: clock.steps)
        assert clock.shift_ms == pytest.approx(90_000, abs=100)
        assert abs(clock.now_ms() - (time.time() - 90) * 1000) < 100, "the bus clock goes on as it was"
        now, shift = clock.stamp().split()
        assert int(now) - began < 10_000
        assert int(shift) == clock.shift_ms
        await asyncio.sleep(0)
        await clock.close()
