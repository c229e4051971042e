"""Slow peers, many sessions, a bus that stands still: what waits, who waits, and what it costs."""

import asyncio
import gc
import itertools
import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.doubles.socket_world import TOOL, TTL, Client, Node, World

PATIENCE_S = 20.0


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def _stalled(world: World, node: Node, session_id: str, token: str) -> Client:
    """A client whose socket takes little and that reads nothing more once it is attached."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", node.port))
    client = await world.client(node, sock=sock, max_queue=1)
    await client.ok("attach", session_id=session_id, token=token)
    client.connection.transport.pause_reading()
    return client


async def test_a_reader_that_stops_is_moved_on_and_slows_nobody(bus_world: World) -> None:
    node = await bus_world.node()
    session_id, token = await node.session()
    epoch = await node.own(session_id)
    lively = await bus_world.attached(node, session_id, token)
    stalled = await _stalled(bus_world, node, session_id, token)
    text = "x" * 50_000
    slowest = 0.0
    last = 0
    for _ in range(120):  # 6 MB: three times what may wait
        begun = time.perf_counter()
        last = await node.say(session_id, epoch, text)
        event = (await lively.push("event"))["event"]
        slowest = max(slowest, time.perf_counter() - begun)
        assert event["seq"] == last
    assert slowest < 1.0
    stalled.connection.transport.resume_reading()
    reset = await stalled.push("reset")
    before = [push["event"]["seq"] for push in stalled.pushes]
    assert before == list(range(2, 2 + len(before))), "what was sent had no gap"
    assert before[-1] < reset["reset"]["seq"] <= last
    await node.say(session_id, epoch, "after")
    stalled.pushes.clear()
    seqs = [(await stalled.push("event"))["event"]["seq"] for _ in range(last + 1 - reset["reset"]["seq"])]
    assert seqs == list(range(reset["reset"]["seq"] + 1, last + 2))


async def test_a_reader_that_stops_costs_less_than_three_mebibytes(bus_world: World) -> None:
    """All that the process allocates and keeps while its session goes on, twice what may wait and more."""
    import tracemalloc

    node = await bus_world.node()
    session_id, token = await node.session()
    epoch = await node.own(session_id)
    stalled = await _stalled(bus_world, node, session_id, token)
    await node.say(session_id, epoch, "x" * 50_000)
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(120):
            await node.say(session_id, epoch, "x" * 50_000)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 3 * 1024 * 1024, kept
    stalled.connection.transport.resume_reading()
    await stalled.push("reset")


async def test_a_short_stall_loses_nothing(bus_world: World) -> None:
    node = await bus_world.node()
    session_id, token = await node.session()
    epoch = await node.own(session_id)
    stalled = await _stalled(bus_world, node, session_id, token)
    for number in range(30):  # 1.5 MB
        await node.say(session_id, epoch, f"{number} " + "x" * 50_000)
    stalled.connection.transport.resume_reading()
    assert [(await stalled.push("event"))["event"]["seq"] for _ in range(30)] == list(range(2, 32))
    assert not stalled.pushes


async def test_a_peer_that_asks_and_never_reads_is_not_read_any_more(bus_world: World) -> None:
    node = await bus_world.node(sndbuf=8192, frames_per_second=1e9, burst=10**9)
    session_id, token = await node.session()
    stalled = await _stalled(bus_world, node, session_id, token)
    (sock,) = node.sockets.open

    async def flood() -> None:
        for number in itertools.count(10**300):  # an id is echoed, so the answers are as large as the questions
            await stalled.connection.send(json.dumps({"id": number, "op": "ping"}))
            await asyncio.sleep(0)

    flooding = asyncio.ensure_future(flood())
    await until(lambda: sock.outbound.bytes_waiting > 200_000)
    await asyncio.sleep(0.3)
    assert sock.outbound.bytes_waiting < 400_000
    flooding.cancel()
    stalled.connection.transport.abort()
    await until(lambda: len(node.sockets) == 0)


async def test_two_hundred_sessions_on_a_socket_and_a_bad_attach_among_them(bus_world: World) -> None:
    node, there = await bus_world.node(), await bus_world.node()
    sessions = [await node.session() for _ in range(200)]
    epochs = [await there.own(session_id) for session_id, _ in sessions]
    client = await bus_world.client(node)
    await client.ok("attach", session_id=sessions[0][0], token=sessions[0][1])
    tasks = len(node.tasks)
    sent = [await client.send("attach", session_id=sid, token=token) for sid, token in sessions[1:]]
    bad = await client.send("attach", session_id=sessions[0][0].replace("-", "x"), token="nonsense")
    for number in sent:
        assert "ok" in await client.answer(number)
    assert (await client.answer(bad))["error"]["code"] == "not_found"
    await until(lambda: len(node.tasks) <= tasks)
    clients = [
        await client.send("register", session_id=sid, name="web", lifetime=TTL, tools=[TOOL]) for sid, _ in sessions
    ]
    ids = [(await client.answer(number))["ok"]["client_id"] for number in clients]
    calls = [await there.dispatch(sid, epoch, one) for (sid, _), epoch, one in zip(sessions, epochs, ids, strict=True)]
    for (sid, _), one, call_id in zip(sessions, ids, calls, strict=True):
        dispatched = await client.push("event", type="client_tool_dispatched", call_id=call_id)
        assert dispatched["session_id"] == sid
        await client.send("result", client_id=one, call_id=call_id, text=sid)
    heard: set[str] = set()
    while len(heard) < len(sessions):
        push = await client.push("event", type="tool_result")
        assert push["event"]["content"][0]["data"]["text"] == push["session_id"]
        heard.add(push["session_id"])
    client.connection.transport.abort()
    await until(lambda: len(node.feeds) == 0)
    for sid, _ in sessions:
        async with asyncio.timeout(PATIENCE_S):
            while any(stored.held for stored in await there.clients.all(sid)):
                await asyncio.sleep(0.01)


async def test_more_sessions_than_a_socket_may_have(bus_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from gateway.model import limits

    monkeypatch.setattr(limits, "SOCKET_SESSIONS", 2)
    node = await bus_world.node()
    client = await bus_world.client(node)
    for expected in ("ok", "ok", "error"):
        session_id, token = await node.session()
        answer = await client.call("attach", session_id=session_id, token=token)
        assert expected in answer
    assert answer["error"]["code"] == "conflict"


async def test_many_slow_sessions_on_one_socket_take_few_pages(bus_world: World) -> None:
    node = await bus_world.node()
    sessions = [await node.session() for _ in range(20)]
    for sid, _ in sessions:
        epoch = await node.own(sid)
        for _ in range(20):
            await node.say(sid, epoch, "x" * 30_000)
    stalled = await _stalled(bus_world, node, *sessions[0])
    stalled.connection.transport.resume_reading()
    sent = [await stalled.send("attach", session_id=sid, token=token, after_seq=0) for sid, token in sessions[1:]]
    stalled.connection.transport.pause_reading()
    (sock,) = node.sockets.open
    await until(lambda: len(sock.attachments.by_session) == 20)
    await asyncio.sleep(0.3)
    pages = [a.page for a in sock.attachments.by_session.values() if a.page is not None]
    assert len(pages) <= 2
    stalled.connection.transport.resume_reading()
    for number in sent:
        assert "ok" in await stalled.answer(number)
    for sid, _ in sessions[1:]:
        seqs = [push["event"]["seq"] for push in stalled.pushes if push["session_id"] == sid]
        while len(seqs) < 21:
            await stalled.read_one()
            seqs = [push["event"]["seq"] for push in stalled.pushes if push["session_id"] == sid]
        assert seqs == list(range(1, 22))


# --- the writer by itself


async def test_an_idle_socket_is_small(bus_world: World) -> None:
    """What this side allocates for a socket that is attached and waits; the server's own connection is apart."""
    import tracemalloc

    node = await bus_world.node()
    session_id, token = await node.session()
    warm = [await bus_world.attached(node, session_id, token) for _ in range(10)]
    tracemalloc.start()
    try:
        gc.collect()
        here = tracemalloc.Filter(True, "*/adapters/websocket/*")
        feeds = tracemalloc.Filter(True, "*/gateway/services/*")

        def used() -> int:
            gc.collect()
            kept = tracemalloc.take_snapshot().filter_traces([here, feeds])
            return sum(stat.size for stat in kept.statistics("filename"))

        before = used()
        more = [await bus_world.attached(node, session_id, token) for _ in range(40)]
        await asyncio.sleep(0.1)
        each = (used() - before) / 40
    finally:
        tracemalloc.stop()
    print(f"{each:.0f} bytes a socket")
    assert each < 7 * 1024, each
    assert len(warm) + len(more) == len(node.sockets)
