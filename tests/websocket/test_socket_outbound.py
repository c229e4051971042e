"""The writer of a socket without a socket: what goes first, what goes at once, what is lost to a slow peer."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

from websockets.frames import Frame
from websockets.protocol import Protocol, Side

from adapters.websocket import protocol
from adapters.websocket.outbound import Attachment, Outbound
from gateway.auth.principals import ApiKeyHolder
from gateway.observe.tasks import Tasks
from gateway.services.feeds import Feed, Reader
from gateway.services.pushes import Signal

PATIENCE_S = 20.0


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


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
        self.asked = 0

    async def take(self, frame: bytes) -> None:
        self.asked += 1
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


async def _behind(tasks: Tasks, peer: _Peer, log: _Log, outbound: Outbound, events: int) -> asyncio.Task[None]:
    """A reader that is so many events behind, and the writer, which waits with the first for its peer."""
    for _ in range(events):
        log.add()
    attachment = _attach(log, outbound, 0, [])
    peer.open.clear()
    writer = tasks.spawn("websocket.writer", outbound.run())
    outbound.start(attachment)
    await until(lambda: peer.asked)
    return writer


async def test_a_right_that_ended_stops_events_under_way() -> None:
    tasks, peer, log = Tasks(), _Peer(), _Log()
    ended: list[str] = []

    def on_signal(attachment: Attachment, signal: Signal) -> None:
        ended.append(signal.kind)
        outbound.forget(attachment)

    outbound = Outbound(peer.take, on_signal, tasks)
    writer = await _behind(tasks, peer, log, outbound, 10)
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
    writer = await _behind(tasks, peer, log, outbound, 50)
    outbound.answer(protocol.ok(1, b"{}"))
    peer.open.set()
    await until(lambda: len(peer.frames) == 51)
    assert "id" in peer.frames[1]
    outbound.finish()
    await writer
    await tasks.aclose()


def _texts(frames: bytes) -> list[Any]:
    """What a client reads of whole text frames."""
    reader = Protocol(Side.CLIENT, max_size=None)
    reader.receive_data(frames)
    return [json.loads(bytes(cast(Frame, event).data)) for event in reader.events_received()]


async def test_what_does_not_go_at_once_goes_by_the_writer() -> None:
    """While nothing waits a frame goes in the turn in which it came; a peer that takes no more loses nothing."""
    tasks, peer, log = Tasks(), _Peer(), _Log()
    at_once = 0

    def send_now(frames: bytes) -> bool:
        nonlocal at_once
        if not at_once:
            return False
        at_once -= 1
        peer.frames.extend(_texts(frames))
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
    # Three events in one push, two of them large: one piece goes, the writer sends the others, and none of them twice.
    large = b"l" * 50_000
    pushed = [b'{"seq":%d,"type":"custom","payload":"%b"}' % (seq, large) for seq in (2, 3)]
    log.feed.receive(b"E" + b"\n".join([*pushed, b'{"seq":4,"type":"custom"}']))
    assert attachment.sent == 2
    outbound.answer(protocol.ok(8, b"{}"))
    await until(lambda: attachment.sent == 4)
    assert [frame.get("id") or frame["event"]["seq"] for frame in peer.frames] == [1, 7, 2, 8, 3, 4]
    outbound.finish()
    await writer
    await tasks.aclose()


async def test_readers_of_a_session_share_one_frame() -> None:
    """What a push holds is framed once and is one write for each reader, whatever their number (issue 4)."""
    tasks, log = Tasks(), _Log()
    sent: list[list[bytes]] = []
    for _ in range(3):
        mine: list[bytes] = []
        sent.append(mine)
        outbound = Outbound(_Peer().take, lambda _a, _s: None, tasks)
        outbound.send_now = lambda frames, mine=mine: mine.append(frames) is None
        attachment = _attach(log, outbound, 0, [])
        tasks.spawn("websocket.writer", outbound.run())
        outbound.start(attachment)
    await asyncio.sleep(0)  # the writers wait
    log.feed.receive(b'E{"seq":1,"type":"custom"}\n{"seq":2,"type":"custom"}')
    log.feed.receive(b'D{"message_id":"m","part":0,"text":"t"}')
    log.feed.receive(b'E{"seq":3,"type":"custom","payload":"%b"}' % (b"l" * 70_000))
    assert len({tuple(map(id, mine)) for mine in sent}) == 1, "the same bytes for all"
    first, delta, large = (_texts(frames) for frames in sent[0])
    assert [frame["event"]["seq"] for frame in first] == [1, 2]
    assert delta == [{"session_id": "s" * 36, "delta": {"message_id": "m", "part": 0, "text": "t"}}]
    assert [len(frame["event"]["payload"]) for frame in large] == [70_000]
    await tasks.aclose()
