"""The child waits no longer: its client hears within 100 ms, and nothing more is written for that id (bridge 7;
known failures C7, C9)."""

import asyncio
import time
from collections.abc import Callable

import pytest

from adapters.stdio import run_calls
from adapters.stdio.pipes import InputPipe
from tests.doubles.agent_world import SAY, Event, Talk, World, call, tool

HEARD_S = 0.1
"""What is promised, on a machine whose Redis answers within a tenth of it."""


async def heard_within(talk: Talk) -> float:
    """The bound on this machine as it is now, in seconds."""
    slowest = 0.0
    for _ in range(5):
        began = time.monotonic()
        await talk.open_calls()
        slowest = max(slowest, time.monotonic() - began)
    return max(HEARD_S, 10 * slowest)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All that goes to children's stdin."""
    kept: list[bytes] = []
    put = InputPipe._put

    def record(self: InputPipe, data: bytes | bytearray) -> int:
        taken = put(self, data)
        kept.append(bytes(data[:taken]))
        return taken

    monkeypatch.setattr(InputPipe, "_put", record)
    return kept


@pytest.fixture
def cancels(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, str]]:
    """When a cancel's frame was read, and its reason."""
    kept: list[tuple[float, str]] = []
    cancel = run_calls.RunCalls.cancel

    def record(self: run_calls.RunCalls, event: object) -> None:
        kept.append((time.monotonic(), event.reason))  # pyright: ignore
        cancel(self, event)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(run_calls.RunCalls, "cancel", record)
    return kept


async def _cancel(talk: Talk) -> None:
    await talk.cancel()


async def _nothing(_: Talk) -> None:
    pass


CASES = {
    "cancelled": ({}, _cancel, "run_gone"),
    "timeout": ({}, _nothing, "result_timeout"),
    "run_finished": ({"abandon": True}, _nothing, "run_gone"),
}


@pytest.mark.parametrize("reason", CASES)
async def test_a_cancel_reaches_the_client_and_nothing_follows_it(
    world: World,
    written: list[bytes],
    cancels: list[tuple[float, str]],
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
):
    more, act, told = CASES[reason]
    monkeypatch.setattr(run_calls, "call_budget_ms", _longer(run_calls.call_budget_ms))
    talk = await world.talk()
    await talk.register(tool("x", timeout_ms=3_000))
    run_id = await talk.say({**call(), **more}, {"sleep_s": 0.5, "text": "after"})
    (dispatched,) = await talk.dispatched()
    await world.gateway.answers.ack(talk.id, dispatched["client_id"], dispatched["call_id"])
    bound = await heard_within(talk)
    failing = asyncio.ensure_future(talk.event("client_tool_failed", call_id=dispatched["call_id"]))
    await act(talk)
    failed = await failing
    heard = time.monotonic()
    ((read, given),) = cancels
    assert given == reason
    assert heard - read < bound
    assert failed["reason"] == told
    mark = len(written)
    await _late(talk, dispatched)
    await talk.end(run_id)
    assert dispatched["call_id"].encode() not in b"".join(written[mark:])
    assert dispatched["call_id"].encode() not in b"".join(written)


def _longer(budget: Callable[[int, int], int]) -> Callable[[int, int], int]:
    return lambda timeout_ms, margin_ms: budget(timeout_ms, margin_ms) + 60_000


async def _late(talk: Talk, dispatched: Event) -> None:
    with pytest.raises(Exception, match=r"conflict|settled|contradicts|run_gone|result_timeout|already"):
        await talk.answer(dispatched, "too late")


async def test_a_shutdown_with_a_call_open_tells_its_client(world: World, written: list[bytes]):
    talk = await world.talk()
    await talk.register()
    run_id = await talk.say(call(), SAY)
    (dispatched,) = await talk.dispatched()
    runner = world.gateway.owners._runners.pop(talk.id)
    bound = await heard_within(talk)
    began = time.monotonic()
    closing = asyncio.ensure_future(runner.close())
    failed = await talk.event("client_tool_failed", call_id=dispatched["call_id"])
    assert time.monotonic() - began < 2 * bound
    assert failed["reason"] == "run_gone"
    await closing
    assert (await talk.end(run_id))["error"].startswith("stopped: ")
    assert dispatched["call_id"].encode() not in b"".join(written)


async def test_an_answer_is_written_once_however_often_it_comes(world: World, written: list[bytes]):
    talk = await world.talk()
    await talk.register()
    run_id = await talk.say(call(), SAY)
    (dispatched,) = await talk.dispatched()
    await talk.answer(dispatched, "once")
    await talk.answer(dispatched, "once")
    await talk.end(run_id)
    assert b"".join(written).count(dispatched["call_id"].encode()) == 1
