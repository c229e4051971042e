"""Places for children: who waits longest is next, and no place is lost when one is given up in the same moment."""

import asyncio
import random

import pytest

from gateway.model.errors import Code, Refusal
from gateway.services.capacity import Capacity

LONG_S = 30.0


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_place_goes_to_who_has_waited_longest() -> None:
    places = Capacity(1)
    await places.take("first", wait_s=LONG_S)
    got: list[str] = []

    async def take(holder: str) -> None:
        await places.take(holder, wait_s=LONG_S)
        got.append(holder)

    waiting = [asyncio.create_task(take(name)) for name in ("a", "b")]
    await turns()
    late = asyncio.create_task(take("late"))  # it asks before "a" has heard of its place
    places.free("first")
    await turns()
    assert got == ["a"]
    assert places.taken == 1
    for name in ("a", "b", "late"):
        places.free(name)
        await turns()
    assert got == ["a", "b", "late"]
    await asyncio.gather(*waiting, late)
    assert places.taken == 0


async def test_a_place_that_comes_to_one_who_is_cancelled_goes_to_the_next() -> None:
    for order in ("freed first", "cancelled first"):
        places = Capacity(1)
        await places.take("first", wait_s=LONG_S)
        cancelled = asyncio.create_task(places.take("cancelled", wait_s=LONG_S))
        following = asyncio.create_task(places.take("following", wait_s=LONG_S))
        await turns()
        if order == "freed first":
            places.free("first")
            cancelled.cancel()
        else:
            cancelled.cancel()
            places.free("first")
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await asyncio.wait_for(following, 5)
        assert places.taken == 1


async def test_a_place_that_comes_with_the_end_of_the_wait_is_not_lost() -> None:
    places = Capacity(1)
    await places.take("first", wait_s=LONG_S)
    loop = asyncio.get_running_loop()
    at = loop.time() + 0.05
    slow = asyncio.create_task(places.take("slow", wait_s=0.05))
    following = asyncio.create_task(places.take("following", wait_s=LONG_S))
    await turns()
    loop.call_at(at + 0.02, places.free, "first")
    while loop.time() < at + 0.03:  # both are due when the loop goes on
        pass
    outcome = (await asyncio.gather(slow, return_exceptions=True))[0]
    if outcome is None:
        places.free("slow")
    else:
        assert isinstance(outcome, Refusal)
        assert outcome.code is Code.NO_CAPACITY
    await asyncio.wait_for(following, 5)
    assert places.taken == 1


async def test_who_has_stopped_waiting_costs_no_idle_child() -> None:
    places = Capacity(1)
    await places.take("first", wait_s=LONG_S)
    with pytest.raises(Refusal):
        await places.take("second", wait_s=0)
    asked: list[str] = []
    places.idle("first", lambda: asked.append("first"))
    assert asked == []
    waiting = asyncio.create_task(places.take("third", wait_s=LONG_S))
    await turns()
    assert asked == ["first"]
    places.free("first")
    await waiting


@pytest.mark.parametrize("seed", range(20))
async def test_no_place_is_lost_in_a_crowd(seed: int) -> None:
    """Holders come, wait, give up and leave in random moments: never too many at once, and whoever waits is served."""
    chance = random.Random(seed)
    places = Capacity(3)
    holding: set[str] = set()
    served = 0

    async def one(name: str) -> None:
        nonlocal served
        await turns(chance.randrange(20))
        try:
            await places.take(name, wait_s=chance.choice((0, 0.0005, LONG_S)))
        except Refusal:
            return
        holding.add(name)
        served += 1
        assert len(holding) <= places.most
        try:
            await turns(chance.randrange(5))
        finally:
            holding.remove(name)
            places.free(name)

    crowd = [asyncio.create_task(one(f"holder-{number}")) for number in range(60)]
    for _ in range(20):
        await turns(chance.randrange(4))
        chance.choice(crowd).cancel()
    async with asyncio.timeout(10):
        outcomes = await asyncio.gather(*crowd, return_exceptions=True)
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert served
    assert places.taken == 0
