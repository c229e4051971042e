"""Background tasks: none is lost, none fails in silence, all end."""

import asyncio
import contextlib
from collections.abc import Callable
from itertools import pairwise

import pytest

from gateway.observe import metrics
from gateway.observe.tasks import Tasks


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # there is no event for what is asked here
            await asyncio.sleep(0.001)


def sample(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"toolrelay_{name}", labels) or 0.0


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_result_is_there_for_who_awaits() -> None:
    async def seven() -> int:
        return 7

    tasks = Tasks()
    assert await tasks.spawn("seven", seven()) == 7
    await until(lambda: len(tasks) == 0)


async def test_a_failure_is_counted_and_taken() -> None:
    async def fails() -> None:
        raise ValueError

    before, open_before = sample("task_failures_total"), sample("tasks")
    tasks = Tasks()
    task = tasks.spawn("fails", fails())
    await asyncio.wait([task])
    await until(lambda: len(tasks) == 0)
    assert sample("task_failures_total") == before + 1
    assert sample("tasks") == open_before


async def test_names_are_bounded_words() -> None:
    tasks = Tasks()
    for name in ("", "Session", "a b", "call.550e8400"):
        with pytest.raises(RuntimeError):
            tasks.spawn(name, forever())  # pyright: ignore[reportArgumentType]
    assert len(tasks) == 0


async def test_the_limit_holds() -> None:
    tasks = Tasks(limit=2)
    tasks.spawn("a", forever())
    tasks.spawn("a", forever())
    with pytest.raises(RuntimeError, match="2 are open"):
        tasks.spawn("a", forever())
    assert await tasks.aclose() == []
    assert len(tasks) == 0


async def test_supervision_starts_again_with_growing_waits() -> None:
    started: list[float] = []
    failures = 0
    loop = asyncio.get_running_loop()

    async def pump() -> None:
        started.append(loop.time())
        if len(started) < 4:
            raise OSError
        await forever()

    def failed() -> None:
        nonlocal failures
        failures += 1

    before = sample("task_restarts_total", task="pump.a")
    tasks = Tasks()
    tasks.supervise("pump.a", pump, backoff_min_s=0.02, backoff_max_s=0.1, on_failure=failed)
    await until(lambda: len(started) == 1)
    assert tasks.degraded == ["pump.a"]
    await until(lambda: len(started) == 4)
    waits = [later - earlier for earlier, later in pairwise(started)]
    assert [wait >= least for wait, least in zip(waits, (0.015, 0.03, 0.06), strict=True)] == [True] * 3
    assert failures == 3
    assert sample("task_restarts_total", task="pump.a") == before + 3
    await until(lambda: tasks.degraded == [])  # it has held
    assert tasks.names == ["pump.a"]
    await tasks.aclose()


async def test_a_cancel_from_inside_is_a_failure_like_any_other() -> None:
    runs = 0

    async def pump() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise asyncio.CancelledError
        await forever()

    tasks = Tasks()
    tasks.supervise("pump", pump, backoff_min_s=0.001)
    await until(lambda: runs == 2)
    await tasks.aclose()
    assert len(tasks) == 0


async def test_a_normal_return_ends_supervision() -> None:
    async def once() -> None:
        return

    tasks = Tasks()
    await tasks.supervise("once", once)
    await until(lambda: len(tasks) == 0)
    assert tasks.degraded == []


async def test_close_ends_a_task_in_its_wait() -> None:
    async def fails() -> None:
        raise OSError

    tasks = Tasks()
    tasks.supervise("fails", fails, backoff_min_s=60, backoff_max_s=60)
    await until(lambda: tasks.degraded == ["fails"])
    assert await tasks.aclose() == []
    assert tasks.degraded == []


async def test_close_names_what_does_not_end() -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    tasks = Tasks()
    task = tasks.spawn("stubborn", stubborn())
    await asyncio.sleep(0)
    assert await tasks.aclose(timeout_s=0.02) == ["stubborn"]
    with pytest.raises(RuntimeError, match="closed"):
        tasks.spawn("late", forever())
    release.set()
    await task


async def test_a_task_may_close_its_own_group() -> None:
    tasks = Tasks()
    tasks.spawn("other", forever())

    async def ends() -> list[str]:
        return await tasks.aclose()

    assert await tasks.spawn("ends", ends()) == []
    await until(lambda: len(tasks) == 0)
