"""Failures that nobody waits for: whoever had to hear of a fault has, and the event loop reports nothing on top of it.

An asyncio future whose failure nobody reads is reported when it is collected: a node's log would show ``loop_error``.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import pytest

from gateway.bus.errors import BusUnavailable, Kind
from gateway.bus.index import SessionIndex
from gateway.bus.sessions import Owner
from gateway.bus.store import Fenced, Store
from gateway.bus.wire import Bounds, Sent, Wire
from gateway.model import events
from gateway.model.call import Event
from gateway.model.clean import LogText
from gateway.model.errors import Refusal
from tests.doubles.bus import NODE, Bus

ROUNDS = 20
SAID = events.error(LogText("said"))

Reports: TypeAlias = list[dict[str, Any]]


@pytest.fixture
async def reports() -> AsyncIterator[Reports]:
    """What the loop has to report; nothing at the end of a test."""
    found: Reports = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.append(context))
    yield found
    gc.collect()
    loop.set_exception_handler(None)
    assert not found


@pytest.mark.parametrize("writes", [1, 2, 50])
async def test_writes_on_their_way_when_the_session_is_deleted_elsewhere(
    a: Bus, b: Bus, reports: Reports, writes: int
) -> None:
    for _ in range(ROUNDS):
        session_id, outbox = await a.owned()
        client_id = await b.client(session_id)
        await a.dispatch(outbox, client_id, "call")
        await b.submit(session_id)
        await b.sessions.delete(session_id)
        for _ in range(writes):
            a.sessions.append(outbox, [SAID])
        a.calls.end(outbox, "call", Event.END)
        await asyncio.wait_for(a.was_lost.wait(), 5)
        a.was_lost.clear()
        outbox.close()
        await a.topology.all()[0].call("PING")  # what was on its way has been answered
    assert len(a.lost) == ROUNDS, "each loss is told once"
    assert all(isinstance(error, Refusal) for error in a.lost)


async def test_writes_on_their_way_when_another_node_has_taken_over(a: Bus, b: Bus, reports: Reports) -> None:
    for _ in range(ROUNDS):
        session_id, outbox = await a.owned()
        other = Owner("node-b", "incarnation-b", 0)
        assert await b.sessions.claim(session_id, NODE.incarnation, other, lost_run=LogText("gone"), home_wait_ms=1000)
        for _ in range(10):
            a.sessions.append(outbox, [SAID])
        await asyncio.wait_for(a.was_lost.wait(), 5)
        a.was_lost.clear()
        await a.topology.all()[0].call("PING")
    assert len(a.lost) == ROUNDS
    assert all(isinstance(error, Fenced) for error in a.lost)


async def test_writes_on_their_way_when_their_owner_leaves(a: Bus, b: Bus, reports: Reports) -> None:
    session_id, outbox = await a.owned()
    await b.sessions.delete(session_id)
    for _ in range(10):
        a.sessions.append(outbox, [SAID])
    outbox.close()
    await a.topology.all()[0].call("PING")
    assert not a.lost


async def test_many_commands_for_one_caller_when_the_bus_goes_away(a: Bus, reports: Reports) -> None:
    """One failure is raised to the caller; the others are no news."""
    session_id, outbox = await a.owned()
    clients = [await a.client(session_id) for _ in range(3)]
    calls = [f"call-{number}" for number in range(3)]
    for client_id, call_id in zip(clients, calls, strict=True):
        await a.dispatch(outbox, client_id, call_id)
    connection = a.topology.all()[0]
    for read in (
        lambda: a.calls.executing_arguments(session_id, calls),
        lambda: a.calls.page(session_id, None, 10),
        lambda: a.clients.all(session_id),
    ):
        for replies in range(3):  # the answers to so many of its commands come before the fault
            await connection.ready(5)
            reading = asyncio.ensure_future(read())
            for _ in range(replies):
                while not connection.pending:
                    await asyncio.sleep(0)
                before = connection.pending
                while connection.pending == before and not reading.done():
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
            connection._wire.abort(Kind.LOST)  # type: ignore[union-attr]  # pyright: ignore
            await asyncio.wait([reading], timeout=5)
            assert reading.done()
            assert reading.exception() is None or isinstance(reading.exception(), BusUnavailable)
            del reading
    await connection.ready(5)


async def test_sessions_are_read_together_and_a_failure_leaves_none_unread(a: Bus, reports: Reports) -> None:
    index = SessionIndex(Store(a.topology, a.store.keys, a.store.scripts, patience_s=0))
    ids = [await a.session() for _ in range(5)]
    connection = a.topology.all()[0]
    before = connection.pending
    reading = asyncio.ensure_future(index.page(["agent"], after=None, ascending=True, count=5))
    most = 0
    while not reading.done():
        most = max(most, connection.pending - before)
        await asyncio.sleep(0)
    assert {session.session_id for session in (await reading)[0]} == set(ids)
    assert most >= len(ids)
    connection.reconnect()
    with pytest.raises(BusUnavailable):
        await index.has_room(["agent", "other"], 1)
    await connection.ready(5)


async def test_a_delta_while_the_bus_is_away(a: Bus, reports: Reports) -> None:
    session_id = await a.session()
    a.sessions.publish_delta(session_id, b"{}")
    connection = a.topology.all()[0]
    connection.reconnect()
    a.sessions.publish_delta(session_id, b"{}")
    await connection.ready(5)


async def test_a_redirected_command_whose_server_goes_away(reports: Reports) -> None:
    loop = asyncio.get_running_loop()
    wire = Wire(loop, Bounds())
    sent = Sent(loop.create_future(), ("GET", "key"))
    wire.enqueue(sent, asking=True)
    wire.abort(Kind.LOST)
    with pytest.raises(BusUnavailable):
        await sent.future
