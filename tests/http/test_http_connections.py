"""Below the requests: heads that are too long, too slow or no HTTP, and what a connection may carry."""

import asyncio
import json
import re
import resource

import pytest

from gateway.server import raise_open_files
from gateway.web import protocol
from tests.doubles.http_node import KEY, Node

GOOD = f"GET /v1/agents HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n".encode()


async def talk_raw(node: Node, *parts: bytes, pause_s: float = 0.0) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    try:
        async with asyncio.timeout(10):
            for part in parts:
                writer.write(part)
                await asyncio.sleep(pause_s)
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("junk", [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n", GOOD + b"a\x7f: \x00\r\n\r\n"])
async def test_what_is_no_http_is_told_so(node: Node, junk: bytes) -> None:
    answer = await talk_raw(node, junk)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "invalid_request"


async def test_a_head_has_a_bound_in_bytes(node: Node) -> None:
    line = b"X-Pad: " + b"x" * 8_000 + b"\r\n"
    answer = await talk_raw(node, GOOD, *[line] * 40, pause_s=0.001)
    assert not answer or answer.startswith(b"HTTP/1.1 431 ")
    fits = await talk_raw(node, GOOD + line * 4 + b"Connection: close\r\n\r\n")
    assert fits.startswith(b"HTTP/1.1 200 ")


async def test_a_head_has_a_bound_in_time(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.1)
    assert await talk_raw(node, GOOD) == b""
    assert await talk_raw(node, b"") == b""
    whole = await talk_raw(node, GOOD + b"Connection: close\r\n\r\n")
    assert whole.startswith(b"HTTP/1.1 200 ")


async def test_pipelined_requests_are_answered_in_order(node: Node) -> None:
    body = b'{"x":1}'
    post = (
        b"POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
        + KEY.encode()
        + b"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    answer = await talk_raw(node, GOOD + b"\r\n" + post + GOOD + b"Connection: close\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200", b"400", b"200"]


async def test_garbage_hurts_nobody_else(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.5)  # empty lines are no fault of HTTP's, and wait for a request
    await asyncio.gather(*(talk_raw(node, bytes([n % 256]) * 100 + b"\r\n\r\n") for n in range(100)))
    assert (await talk_raw(node, GOOD + b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


def test_a_node_may_open_as_many_connections_as_its_system_allows() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
        raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(before[1], 1 << 20), before[1])
        raise_open_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_trailers_have_a_bound_and_are_not_kept(node: Node) -> None:
    head = GOOD.replace(b"GET /v1/agents", b"POST /v1/sessions") + b"Content-Type: application/json\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    few = await talk_raw(node, chunked + b"X-Few: y\r\n\r\n" + GOOD + b"Connection: close\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+) ", few) == [b"400", b"200"]
    many = b"".join(b"X-%d: y\r\n" % number for number in range(8_000))
    for endless in (many, b"X-Long: " + b"y" * 80_000):
        answer = await talk_raw(node, chunked, endless, endless, pause_s=0.05)  # it ends though we do not
        assert re.findall(rb"HTTP/1.1 (\d+) ", answer) in ([], [b"431"]), answer[:500]


async def test_no_socket_is_opened_behind_a_request_without_an_answer(node: Node) -> None:
    async with node.client() as key:
        agent = (await key.get("/v1/agents")).json()["items"][0]["id"]
        made = (await key.post("/v1/sessions", json={"agent_id": agent})).json()
    upgrade = (
        b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    stream = GOOD.replace(b"/v1/agents", f"/v1/sessions/{made['id']}/events/stream".encode()) + b"\r\n"
    answer = await talk_raw(node, stream, upgrade, pause_s=0.2)
    assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200"]
    async with asyncio.timeout(5):
        while len(node.services.streams):
            await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    async with asyncio.timeout(10):
        writer.write(GOOD + b"\r\n")
        await reader.readuntil(b"}")
        writer.write(upgrade)
        await reader.readuntil(b"HTTP/1.1 101 ")
    writer.transport.abort()
