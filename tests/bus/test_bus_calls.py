"""Calls on the bus: one script each, settled once, in the order of the log."""

import asyncio

import pytest

from gateway.bus.calls import Dispatched, Undeliverable
from gateway.model.call import Event
from gateway.model.clean import LogText
from gateway.model.errors import Code, Refusal
from tests.doubles.bus import Bus


async def test_a_call_from_dispatch_to_answer(a: Bus, b: Bus) -> None:
    session_id, outbox = await a.owned()
    client_id = await b.client(session_id)
    reply = await a.dispatch(outbox, client_id, "c1")
    assert isinstance(reply, Dispatched)
    event = await b.calls.ack(session_id, client_id, "c1")
    assert b'"type":"client_tool_acked"' in event
    assert await b.calls.ack(session_id, client_id, "c1") == event
    await b.answer(session_id, client_id, "c1")
    await b.answer(session_id, client_id, "c1")
    with pytest.raises(Refusal) as refused:
        await b.answer(session_id, client_id, "c1", digest="another")
    assert refused.value.code is Code.CONFLICT
    assert (await a.types(session_id))[-4:] == [
        "tool_call",
        "client_tool_dispatched",
        "client_tool_acked",
        "tool_result",
    ]
    record = await a.calls.get(session_id, "c1")
    assert record is not None
    assert (record.state, record.outcome, record.answer, record.delivery) == ("answered", "done", b"answer", "pending")
    assert await a.calls.open(session_id) == {}


async def test_only_the_owner_of_a_call_may_speak_for_it(a: Bus, b: Bus) -> None:
    session_id, outbox = await a.owned()
    client_id, other = await b.client(session_id), await b.client(session_id)
    await a.dispatch(outbox, client_id, "c1")
    for attempt in (b.calls.ack(session_id, other, "c1"), b.answer(session_id, other, "c1")):
        with pytest.raises(Refusal) as refused:
            await attempt
        assert refused.value.code is Code.NOT_FOUND
    with pytest.raises(Refusal) as refused:
        await b.answer(session_id, client_id, "unknown")
    assert refused.value.code is Code.NOT_FOUND


async def test_two_answers_at_once_settle_it_once(a: Bus, b: Bus) -> None:
    session_id, outbox = await a.owned()
    client_id = await b.client(session_id)
    await a.dispatch(outbox, client_id, "c1")
    outcomes = await asyncio.gather(
        a.answer(session_id, client_id, "c1", "x"), b.answer(session_id, client_id, "c1", "y"), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", "Refusal"]
    assert (await a.types(session_id)).count("tool_result") == 1


async def test_a_client_that_leaves_fails_its_calls_and_no_others(a: Bus, b: Bus) -> None:
    session_id, outbox = await a.owned()
    client_id, other = await b.client(session_id), await b.client(session_id)
    await a.dispatch(outbox, client_id, "c1")
    await a.dispatch(outbox, other, "c2")
    await b.clients.leave(session_id, client_id)
    first, second = await a.calls.get(session_id, "c1"), await a.calls.get(session_id, "c2")
    assert first is not None
    assert second is not None
    assert (first.state, first.reason, first.outcome) == ("failed", "client_gone", "not_started")
    assert second.state == "dispatched"
    assert (await a.types(session_id))[-3:] == ["client_tool_failed", "tool_result", "client_left"]


async def test_take_over_by_key_moves_idempotent_calls_and_fails_the_rest(a: Bus, b: Bus) -> None:
    session_id, outbox = await a.owned()
    old = await b.client(session_id, key="tab")
    await a.dispatch(outbox, old, "again", idempotent=True, executing=b'{"a":2}')
    await a.dispatch(outbox, old, "once")
    await b.calls.ack(session_id, old, "again")
    await b.calls.ack(session_id, old, "once")
    new = await b.client(session_id, key="tab")
    moved, failed = await a.calls.get(session_id, "again"), await a.calls.get(session_id, "once")
    assert moved is not None
    assert failed is not None
    assert (moved.client_id, moved.attempt, moved.state) == (new, 2, "dispatched")
    assert (failed.reason, failed.outcome) == ("client_gone", "unknown")
    assert (await a.types(session_id))[-3:] == ["client_left", "client_registered", "client_tool_dispatched"]
    assert await a.calls.executing_arguments(session_id, ["again"]) == [b'{"a":2}']
    await b.answer(session_id, new, "again")
    assert await a.calls.executing_arguments(session_id, ["again"]) == [None]


async def test_a_list_that_changed_is_stale_and_a_client_that_left_is_gone(a: Bus, b: Bus) -> None:
    session_id, outbox = await a.owned()
    client_id = await b.client(session_id)
    assert await a.dispatch(outbox, client_id, "c1", revision=7) == Undeliverable("stale")
    await b.clients.leave(session_id, client_id)
    assert await a.dispatch(outbox, client_id, "c1") == Undeliverable("gone")
    assert "client_tool_dispatched" not in await a.types(session_id)


async def test_what_comes_too_late_finds_the_call_failed(a: Bus, b: Bus) -> None:
    session_id, outbox = await a.owned()
    client_id = await b.client(session_id)
    await a.dispatch(outbox, client_id, "c1", budget_s=0.03)
    await asyncio.sleep(0.05)  # the deadline itself is what is waited for
    with pytest.raises(Refusal) as refused:
        await b.answer(session_id, client_id, "c1")
    assert "ack_timeout" in refused.value.message
    record = await a.calls.get(session_id, "c1")
    assert record is not None
    assert (record.reason, record.outcome) == ("ack_timeout", "not_started")


async def test_the_end_of_a_run_leaves_no_call_open(a: Bus, b: Bus) -> None:
    session_id, outbox = await a.owned()
    client_id = await b.client(session_id)
    await a.dispatch(outbox, client_id, "c1")
    run_id = (await a.sessions.resumption(session_id)).run_id
    assert run_id is not None
    a.sessions.append(outbox, [], ends_run=run_id)
    assert await outbox.drained(5)
    record = await a.calls.get(session_id, "c1")
    assert record is not None
    assert record.reason == "run_gone"
    assert (await a.sessions.resumption(session_id)).run_id is None


async def test_a_refused_answer_can_be_corrected_until_it_is_due(a: Bus, b: Bus) -> None:
    session_id, outbox = await a.owned()
    client_id = await b.client(session_id)
    reply = await a.dispatch(outbox, client_id, "c1")
    assert isinstance(reply, Dispatched)
    due = await b.calls.refuse(session_id, client_id, "c1", LogText("why"))
    assert 0 < due < reply.due_ms
    await b.answer(session_id, client_id, "c1")
    assert await b.calls.refuse(session_id, client_id, "c1", LogText("why")) == 0


async def test_a_call_that_the_child_ends_is_told_to_the_client(a: Bus, b: Bus) -> None:
    session_id, outbox = await a.owned()
    client_id = await b.client(session_id)
    for call_id, event, reason in (("c1", Event.END, "run_gone"), ("c2", Event.TIMEOUT, "ack_timeout")):
        await a.dispatch(outbox, client_id, call_id)
        a.calls.end(outbox, call_id, event)
        assert await outbox.drained(5)
        record = await a.calls.get(session_id, call_id)
        assert record is not None
        assert record.reason == reason
