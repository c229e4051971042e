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

from adapters.websocket import protocol
from adapters.websocket.outbound import Attachment, Outbound
from gateway.auth.principals import ApiKeyHolder
from gateway.observe.tasks import Tasks
from gateway.services.feeds import Feed, Reader, Signal
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


class _Log:
    """Feeds of one log in memory, as far as a reader needs them."""

    def __init__(self) -> None:
        self.feed = Feed("s" * 36)
        self.events: list[bytes] = []

    def add(self, size: int = 100) -> None:
        head = b'{"seq":%d,' % (len(self.events) + 1)
        self.events.append(head + b'"x":"' + b"x" * size + b'"}')
        self.feed.receive(b"E" + self.events[-1])

    async def replay(self, session_id: str, after: int, count: int = 200) -> list[Any]:
        from gateway.bus.log import Entry

        await asyncio.sleep(0)
        return [Entry(seq, event) for seq, event in enumerate(self.events, 1) if seq > after][:count]

    def drop(self, feed: Feed, reader: Reader) -> None:
        feed.readers.discard(reader)


class _Peer:
    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.open = asyncio.Event()
        self.open.set()

    async def take(self, frame: bytes) -> None:
        await self.open.wait()
        self.frames.append(json.loads(frame))


def _attach(log: _Log, outbound: Outbound, position: int, signals: list[Signal]) -> Attachment:
    attachment = Attachment("s" * 36, ApiKeyHolder("k", "k", None), "")
    reader = Reader(log, log.feed, position, deltas=True, on_ready=lambda: outbound.ready(attachment))  # type: ignore
    log.feed.readers.add(reader)
    attachment.reader = reader
    return attachment


async def test_deltas_go_first_then_the_reader_is_moved_on() -> None:
    tasks, peer, log = Tasks(), _Peer(), _Log()
    outbound = Outbound(peer.take, lambda _a, _s: None, tasks)
    attachment = _attach(log, outbound, 0, [])
    writer = tasks.spawn("websocket.writer", outbound.run())
    outbound.start(attachment)
    log.add()
    await until(lambda: len(peer.frames) == 1)
    peer.open.clear()
    for number in range(3_000):
        log.feed.receive(b'D{"message_id":"m","part":%d,"text":"%b"}' % (number, b"d" * 200))
    log.add()
    peer.open.set()
    await until(lambda: peer.frames[-1].get("event", {}).get("seq") == 2)
    deltas = [frame for frame in peer.frames if "delta" in frame]
    assert deltas[-1]["delta"]["part"] == 2_999
    assert sum(len(json.dumps(frame)) for frame in deltas) < 600 * 1024
    assert [frame["event"]["seq"] for frame in peer.frames if "event" in frame] == [1, 2]
    peer.open.clear()
    for _ in range(60):
        log.add(50_000)
    outbound.answer(protocol.keepalive("t"))
    peer.open.set()
    await until(lambda: any("reset" in frame for frame in peer.frames))
    assert attachment.sent == 62
    log.add()
    await until(lambda: peer.frames[-1].get("event", {}).get("seq") == 63)
    outbound.finish()
    await writer
    await tasks.aclose()


async def test_a_right_that_ended_stops_events_under_way() -> None:
    tasks, peer, log = Tasks(), _Peer(), _Log()
    ended: list[str] = []

    def on_signal(attachment: Attachment, signal: Signal) -> None:
        ended.append(signal.kind)
        outbound.forget(attachment)

    outbound = Outbound(peer.take, on_signal, tasks)
    for _ in range(10):
        log.add()
    attachment = _attach(log, outbound, 0, [])
    peer.open.clear()
    writer = tasks.spawn("websocket.writer", outbound.run())
    outbound.start(attachment)
    await asyncio.sleep(0.01)
    log.feed.receive(b"Xtoken abc")
    assert ended == ["token"], "at once, though the writer waits for its peer"
    outbound.answer(protocol.closed("s" * 36, "token_revoked"))
    peer.open.set()
    await until(lambda: any("closed" in frame for frame in peer.frames))
    assert len(peer.frames) <= 2, "one event was on its way"
    outbound.finish()
    await writer
    await tasks.aclose()


async def test_answers_go_before_events() -> None:
    tasks, peer, log = Tasks(), _Peer(), _Log()
    outbound = Outbound(peer.take, lambda _a, _s: None, tasks)
    for _ in range(50):
        log.add()
    attachment = _attach(log, outbound, 0, [])
    peer.open.clear()
    writer = tasks.spawn("websocket.writer", outbound.run())
    outbound.start(attachment)
    await asyncio.sleep(0.01)
    outbound.answer(protocol.ok(1, b"{}"))
    peer.open.set()
    await until(lambda: len(peer.frames) == 51)
    assert "id" in peer.frames[1]
    outbound.finish()
    await writer
    await tasks.aclose()


async def test_what_does_not_go_at_once_goes_by_the_writer() -> None:
    """While nothing waits a frame goes in the turn in which it came; a peer that takes no more loses nothing."""
    tasks, peer, log = Tasks(), _Peer(), _Log()
    at_once = 0

    def send_now(frame: bytes) -> bool:
        nonlocal at_once
        if not at_once:
            return False
        at_once -= 1
        peer.frames.append(json.loads(frame))
        return True

    outbound = Outbound(peer.take, lambda _a, _s: None, tasks)
    outbound.send_now = send_now
    attachment = _attach(log, outbound, 0, [])
    writer = tasks.spawn("websocket.writer", outbound.run())
    outbound.start(attachment)
    await asyncio.sleep(0)  # the writer waits
    at_once = 3
    log.add()
    outbound.answer(protocol.ok(7, b"{}"))
    assert [frame.get("id") or frame["event"]["seq"] for frame in peer.frames] == [1, 7], "no turn of the loop between"
    assert outbound.bytes_waiting == 0
    # Three events in one push: one goes, the writer sends the others, and none of them twice.
    log.feed.receive(b"E" + b"\n".join(b'{"seq":%d,"type":"custom"}' % seq for seq in (2, 3, 4)))
    assert attachment.sent == 2
    outbound.answer(protocol.ok(8, b"{}"))
    await until(lambda: attachment.sent == 4)
    assert [frame.get("id") or frame["event"]["seq"] for frame in peer.frames] == [1, 7, 2, 8, 3, 4]
    outbound.finish()
    await writer
    await tasks.aclose()


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
    assert each < 8 * 1024, each
    assert len(warm) + len(more) == len(node.sockets)
