"""Events that go to a stream in the turn in which they come: one chunk for all readers, nothing lost where it waits."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from adapters.http.ask import Ask
from adapters.http.stream import EventStream
from gateway.observe.tasks import Tasks
from gateway.services.feeds import Feed, Reader
from tests.doubles.http_node import Node
from tests.doubles.sse_reader import open_stream
from tests.http.conftest import Talk

PATIENCE_S = 10.0


class _Client:
    """One stream's server side: what went at once (``chunks``), and what its task sent (``sent``)."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.sent: list[bytes] = []
        self.takes = True

    def send_now(self, chunks: bytes) -> bool:
        if self.takes:
            self.chunks.append(chunks)
        return self.takes

    async def send(self, message: Any) -> None:
        self.sent.append(message.get("body", b""))

    async def receive(self) -> Any:
        await asyncio.Event().wait()


@asynccontextmanager
async def _streams(feed: Feed, count: int) -> AsyncGenerator[list[_Client]]:
    """Streams of one session whose tasks wait for what comes."""
    tasks = Tasks()
    streams = SimpleNamespace(remove=feed.readers.discard)
    http = SimpleNamespace(tasks=tasks, streams=streams, heartbeat_s=60.0, write_s=5.0)
    clients = [_Client() for _ in range(count)]
    for client in clients:
        scope = {"extensions": {"toolrelay.send_now": client.send_now}}
        ask = SimpleNamespace(http=http, scope=scope, receive=client.receive, principal=None, session_id="s")
        reader = Reader(cast(Any, None), feed, 0, deltas=True)
        feed.readers.add(reader)
        tasks.spawn("test.stream", EventStream(cast(Ask, ask), reader, None).write(client.send))
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not all(len(client.sent) == 2 for client in clients):
                await asyncio.sleep(0)
            await asyncio.sleep(0)  # the tasks wait
        yield clients
    finally:
        await tasks.aclose()


async def test_streams_of_a_session_share_one_chunk() -> None:
    feed = Feed("s")
    async with _streams(feed, 3) as clients:
        feed.receive(b'E{"seq":1,"type":"custom"}\n{"seq":2,"type":"custom"}')
        feed.receive(b'D{"message_id":"m"}')
        assert len({tuple(map(id, client.chunks)) for client in clients}) == 1, "the same bytes for all, at once"
        frames = b'id: 1\ndata: {"seq":1,"type":"custom"}\n\nid: 2\ndata: {"seq":2,"type":"custom"}\n\n'
        delta = b'event: delta\ndata: {"message_id":"m"}\n\n'
        assert clients[0].chunks == [b"%x\r\n%b\r\n" % (len(body), body) for body in (frames, delta)]
        assert all(len(client.sent) == 2 for client in clients), "no task was needed"


async def test_what_does_not_go_at_once_goes_by_the_task_in_its_order() -> None:
    feed = Feed("s")
    async with _streams(feed, 1) as (client,):
        feed.receive(b'E{"seq":1,"type":"custom"}')
        client.takes = False
        feed.receive(b'E{"seq":2,"type":"custom"}')
        client.takes = True
        feed.receive(b'E{"seq":3,"type":"custom"}')  # behind what the task has to send
        assert len(client.chunks) == 1
        async with asyncio.timeout(PATIENCE_S):
            while b"id: 3" not in client.sent[-1]:
                await asyncio.sleep(0)
        assert b"".join(client.sent[2:]).count(b"id: ") == 2
        await asyncio.sleep(0)
        feed.receive(b'E{"seq":4,"type":"custom"}')
        assert b"id: 4" in client.chunks[-1], "and at once again"


async def test_many_events_are_the_tasks() -> None:
    feed = Feed("s")
    async with _streams(feed, 1) as (client,):
        feed.receive(b"E" + b"\n".join(b'{"seq":%d,"type":"custom"}' % seq for seq in range(1, 101)))
        async with asyncio.timeout(PATIENCE_S):
            while b"id: 100" not in client.sent[-1]:
                await asyncio.sleep(0)
        assert client.chunks == []


async def test_a_request_behind_an_open_stream_disturbs_no_chunk(node: Node, talk: Talk) -> None:
    """It is not answered before the stream ends; what comes meanwhile goes by the stream's own answer."""
    async with open_stream(node.port, f"{talk.path}/events/stream", talk.token) as stream:
        await stream.frame()
        await stream.frame()
        await node.append(talk.id, 1)
        assert (await stream.event())["seq"] == 2
        stream.writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await stream.writer.drain()
        for seq in range(3, 8):
            await node.append(talk.id, 1, seq)
            assert (await stream.event())["seq"] == seq
