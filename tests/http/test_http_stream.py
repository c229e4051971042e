"""The event stream: positions, the hand-over from replay to live, what ends it."""

import asyncio
import json
import uuid
from collections.abc import Callable

import pytest

from gateway.config.settings import Limits
from gateway.model import events
from gateway.model.clean import LogJson
from tests.doubles.http_node import KEY, Node, http_node, settings_for
from tests.doubles.sse_reader import open_stream
from tests.http.conftest import Talk, new_session


async def eventually(what: Callable[[], bool], wait_s: float = 5.0) -> None:
    async with asyncio.timeout(wait_s):
        while not what():
            await asyncio.sleep(0.01)


async def test_the_head_and_the_first_frames(node: Node, talk: Talk) -> None:
    async with open_stream(node.port, f"{talk.path}/events/stream", talk.token) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-accel-buffering"] == "no"
        first = await stream.frame()
        assert first is not None
        assert (first.id, first.data, first.event, first.retry) == ("1", None, None, None)
        second = await stream.frame()
        assert second is not None
        assert second.retry == 1000
        await node.append(talk.id, 2)
        seen = [await stream.event() for _ in range(2)]
        assert [event["seq"] for event in seen] == [2, 3]


@pytest.mark.parametrize(
    ("query", "header", "first"), [("?after_seq=0", None, 1), ("?after_seq=3", None, 4), ("?after_seq=0", "4", 5)]
)
async def test_positions(node: Node, talk: Talk, query: str, header: str | None, first: int) -> None:
    await node.append(talk.id, 5)
    headers = {"Last_Event_ID": header} if header is not None else {}
    async with open_stream(node.port, f"{talk.path}/events/stream{query}", talk.token, **headers) as stream:
        cursor = await stream.frame()
        assert cursor is not None
        assert cursor.id == str(first - 1)
        assert [(await stream.event())["seq"] for _ in range(7 - first)] == list(range(first, 7))


@pytest.mark.parametrize("bad", ["-1", "x", "1.0", "+1", "", " 1", "1e3", "99", "9007199254740993", "٣", "9" * 400])
async def test_positions_that_are_refused(node: Node, talk: Talk, bad: str) -> None:
    query = await talk.page.get(f"{talk.path}/events/stream", params={"after_seq": bad})
    assert query.status_code == 400
    assert query.json()["error"]["code"] == "invalid_request"
    if bad.isascii() and bad == bad.strip():
        header = await talk.page.get(f"{talk.path}/events/stream", headers={"Last-Event-ID": bad})
        assert header.status_code == 400
    assert len(node.services.streams) == 0


async def test_a_position_that_another_node_told_is_not_above_the_head(node: Node, redis_url: str, talk: Talk) -> None:
    async with open_stream(node.port, f"{talk.path}/events/stream", talk.token) as live:
        await live.frame()
        feed = node.feeds._feeds[talk.id]
        await node.append(talk.id, 1)
        await live.event()
        feed.head = 1  # as if the push were still on its way
        async with open_stream(node.port, f"{talk.path}/events/stream?after_seq=2", talk.token) as stream:
            assert stream.status == 200


async def test_events_come_once_and_in_order_over_reconnects_and_nodes(node: Node, redis_url: str, talk: Talk) -> None:
    async with http_node(redis_url) as second:
        total, seen = 400, [1]

        async def write() -> None:
            for batch in range(total // 4):
                await node.append(talk.id, 4, batch * 4)
                await asyncio.sleep(0.002)

        writing = node.tasks.spawn("test.write", write())
        turn = 0
        while seen[-1] < total + 1:
            which = (node, second)[turn % 2]
            turn += 1
            path = f"{talk.path}/events/stream"
            async with open_stream(which.port, path, talk.token, Last_Event_ID=str(seen[-1])) as stream:
                seen += [(await stream.event())["seq"] for _ in range(min(13, total + 1 - seen[-1]))]
        await writing
        assert seen == list(range(1, total + 2))
        assert turn > 25


async def test_heartbeats_are_comments(redis_url: str) -> None:
    async with http_node(redis_url, heartbeat_s=0.05) as node, node.client() as key:
        made = await new_session(key)
        path = f"/v1/sessions/{made['id']}/events/stream"
        async with open_stream(node.port, path, made["session_token"]) as stream:
            await stream.frame()
            await stream.frame()
            for _ in range(3):
                frame = await stream.frame(2)
                assert frame is not None
                assert frame.comments
                assert (frame.data, frame.id) == (None, None)


async def test_a_revoked_token_ends_its_stream_and_no_other(node: Node, talk: Talk) -> None:
    minted = {"Idempotency-Key": "a"}
    token = (await talk.key.post(f"{talk.path}/tokens", headers=minted)).json()["session_token"]
    token_id = (await talk.key.post(f"{talk.path}/tokens", headers=minted)).json()["id"]
    path = f"{talk.path}/events/stream"
    async with open_stream(node.port, path, token) as gone, open_stream(node.port, path, talk.token) as stays:
        await eventually(lambda: len(node.services.streams) == 2)
        assert (await talk.key.delete(f"{talk.path}/tokens/{token_id}")).status_code == 204
        await gone.ended(1.0)
        await node.append(talk.id, 1)
        assert (await stays.event())["seq"] == 2
    await eventually(lambda: len(node.services.streams) == 0)


async def test_an_expired_token_ends_its_stream(node: Node, talk: Talk) -> None:
    from gateway.auth.tokens import digest, mint_session_token
    from gateway.bus.sessions import NO_KEY

    token = mint_session_token(talk.id)
    await node.sessions.add_token(talk.id, digest(token), str(uuid.uuid4()), 600, NO_KEY)
    async with open_stream(node.port, f"{talk.path}/events/stream", token) as stream:
        assert stream.status == 200
        await stream.ended(2.0)
    async with open_stream(node.port, f"{talk.path}/events/stream", token) as stream:
        assert stream.status == 401


async def test_a_revocation_that_was_missed_is_found_after_a_gap(node: Node, talk: Talk) -> None:
    async with open_stream(node.port, f"{talk.path}/events/stream", talk.token) as stream:
        await stream.frame()
        keys = node.store.keys.session(talk.id)
        await node.store.call(keys.tag, "DEL", keys.tokens)
        node.topology.subscriber_for(keys.tag).reconnect()
        await stream.ended(5.0)


async def test_a_deleted_session_ends_its_streams(node: Node, talk: Talk) -> None:
    async with open_stream(node.port, f"{talk.path}/events/stream", KEY) as stream:
        await stream.frame()
        await talk.key.delete(talk.path)
        await stream.ended(2.0)
    async with open_stream(node.port, f"{talk.path}/events/stream", KEY) as stream:
        assert stream.status == 404


async def test_a_drain_ends_streams_with_a_retry(node: Node, talk: Talk) -> None:
    async with open_stream(node.port, f"{talk.path}/events/stream", talk.token) as stream:
        await stream.frame()
        await stream.frame()
        node.gateway.draining = True
        node.services.streams.drain()
        frames = await stream.ended(2.0)
        assert frames[-1].retry is not None
    refused = await talk.page.get(f"{talk.path}/events/stream")
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert (await talk.page.get(f"{talk.path}/events")).status_code == 200
    assert (await talk.page.post(f"{talk.path}/events", json={"type": "input", "text": "x"})).status_code == 503


async def test_places_are_bounded_and_given_back(redis_url: str) -> None:
    async with http_node(redis_url, settings_for(Limits(max_streams=2))) as node, node.client() as key:
        made = await new_session(key)
        path, token = f"/v1/sessions/{made['id']}/events/stream", made["session_token"]
        async with open_stream(node.port, path, token) as one, open_stream(node.port, path, token) as two:
            assert (one.status, two.status) == (200, 200)
            refused = await key.get(path)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) > 0
        await eventually(lambda: len(node.services.streams) == 0)
        for _ in range(5):  # gone before the first byte was read
            _, writer = await asyncio.open_connection("127.0.0.1", node.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            await writer.drain()
            writer.transport.abort()
        await eventually(lambda: len(node.services.streams) == 0)
        async with open_stream(node.port, path, token) as stream:
            assert stream.status == 200
        assert len(node.feeds) <= 1


async def test_a_client_that_does_not_read_is_cut(redis_url: str) -> None:
    async with http_node(redis_url, write_s=0.3) as node, node.client() as key:
        made = await new_session(key)
        path, token = f"/v1/sessions/{made['id']}/events/stream", made["session_token"]
        big = [events.custom("x", LogJson(json.dumps("y" * 60_000).encode()))] * 50
        async with open_stream(node.port, path, token):
            async with asyncio.timeout(20):
                while len(node.services.streams) == 1:
                    await node.write(made["id"], big)
                    await asyncio.sleep(0.05)
        assert len(node.services.streams) == 0


async def test_deltas_come_only_where_they_are_asked_for(node: Node, talk: Talk) -> None:
    path = f"{talk.path}/events/stream"
    async with (
        open_stream(node.port, f"{path}?deltas=1", talk.token) as asked,
        open_stream(node.port, path, talk.token) as plain,
    ):
        for stream in (asked, plain):
            await stream.frame()
            await stream.frame()
        node.sessions.publish_delta(talk.id, b'{"message_id":"m","part":0,"text":"a\\r\\nb"}')
        frame = await asked.frame()
        assert frame is not None
        assert (frame.event, frame.id) == ("delta", None)
        assert frame.json == {"message_id": "m", "part": 0, "text": "a\r\nb"}
        await node.append(talk.id, 1)
        event = await plain.frame()
        assert event is not None
        assert event.id == "2"


async def test_control_characters_break_no_frame(node: Node, talk: Talk) -> None:
    text = "a\r\nb\x00\u2028\u0085\u000b\x1b[0mdata: x\n\nid: 9"
    payload = events.custom("k", LogJson(json.dumps({text: text}).encode()))
    spaced = events.custom("k", LogJson(b'{"a":\r[1,\r2]}'))
    async with open_stream(node.port, f"{talk.path}/events/stream", talk.token) as stream:
        await node.write(talk.id, [payload, spaced])
        assert (await stream.event())["payload"] == {text: text}
        assert (await stream.event())["payload"] == {"a": [1, 2]}


async def test_what_is_trimmed_is_said(redis_url: str) -> None:
    async with http_node(redis_url, settings_for(Limits(log_events=1000))) as node, node.client() as key:
        made = await new_session(key)
        path = f"/v1/sessions/{made['id']}/events"
        for batch in range(8):
            await node.append(made["id"], 300, batch * 300)
        oldest = await node.log.oldest(made["id"])
        assert oldest > 1
        async with open_stream(node.port, f"{path}/stream?after_seq=0", KEY) as stream:
            assert stream.headers["toolrelay-oldest-seq"] == str(oldest)
            cursor = await stream.frame()
            assert cursor is not None
            assert cursor.id == str(oldest - 1)
            trimmed = await stream.frame()
            assert trimmed is not None
            assert trimmed.comments == [f"trimmed {oldest}"]
            assert (await stream.event())["seq"] == oldest
        async with open_stream(node.port, f"{path}/stream?after_seq={oldest - 1}", KEY) as stream:
            assert "toolrelay-oldest-seq" not in stream.headers
        asc = await key.get(path, params={"after_seq": 0, "order": "asc", "limit": 5})
        assert asc.headers["toolrelay-oldest-seq"] == str(oldest)
        assert asc.json()["items"][0]["seq"] == oldest
        newest = await key.get(path, params={"limit": 5})
        assert "toolrelay-oldest-seq" not in newest.headers
        below = await key.get(path, params={"before_seq": oldest})
        assert (below.json()["items"], below.headers["toolrelay-oldest-seq"]) == ([], str(oldest))
        last = await key.get(path, params={"before_seq": oldest + 3})
        assert [event["seq"] for event in last.json()["items"]] == [oldest + 2, oldest + 1, oldest]
        assert last.headers["toolrelay-oldest-seq"] == str(oldest)


async def test_a_stream_of_an_unknown_session_takes_no_place(node: Node, talk: Talk) -> None:
    answer = await talk.key.get(f"/v1/sessions/{uuid.uuid4()}/events/stream")
    assert answer.status_code == 404
    assert len(node.services.streams) == 0
