"""What nobody honest sends: requests inside requests, absurd paths, foreign ids, connections that only hold on.

Each case says what must come of it, and that the next honest request is served.
"""

import asyncio
import json
import re
import uuid
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from adapters.http.routes import OPERATIONS
from gateway.web import protocol
from tests.doubles.http_node import KEY, SUPPORT, Node
from tests.http.conftest import Talk, new_session

JSON = {"Content-Type": "application/json"}
AUTH = f"Host: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n"
INNER = f"GET /v1/agents HTTP/1.1\r\n{AUTH}\r\n"


async def raw(node: Node, request: str | bytes, wait_s: float = 10.0) -> bytes:
    """Everything that the other end says until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    try:
        writer.write(request.encode("latin-1") if isinstance(request, str) else request)
        async with asyncio.timeout(wait_s):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


async def served(node: Node) -> None:
    async with node.client() as key:
        assert (await key.get("/v1/agents")).status_code == 200


# --- one request that looks like two


@pytest.mark.parametrize(
    "lines",
    [
        f"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{INNER}",
        f"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n{INNER}",
        f"Content-Length: 0\r\nContent-Length: 90\r\n\r\n{INNER}",
        f"Content-Length: 0, 90\r\n\r\n{INNER}",
        f"Content-Length: +0\r\n\r\n{INNER}",
        f"Content-Length: -1\r\n\r\n{INNER}",
        f"Content-Length: 0x0\r\n\r\n{INNER}",
        f"Content-Length: 99999999999999999999999\r\n\r\n{INNER}",
        f"Content-Length : 0\r\n\r\n{INNER}",
        f"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{INNER}",
        f"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{INNER}",
        f"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{{}}{INNER}",
        f"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{{}}\r\n0\r\n\r\n{INNER}",
        f"Transfer-Encoding: chunked\r\n\r\n-2\r\n{{}}\r\n0\r\n\r\n{INNER}",
        f"Transfer-Encoding: chunked\r\n\r\n2\n{{}}\n0\n\n{INNER}",
        f"X-A: b\rContent-Length: 90\r\n\r\n{INNER}",
        f" folded: x\r\nContent-Length: 0\r\n\r\n{INNER}",
        f"X-A: b\x00\r\n\r\n{INNER}",
        f": nameless\r\n\r\n{INNER}",
    ],
)
async def test_a_request_inside_another_is_not_served(node: Node, lines: str) -> None:
    answer = await raw(node, f"POST /v1/sessions HTTP/1.1\r\n{AUTH}Content-Type: application/json\r\n{lines}")
    assert statuses(answer) in ([400], [400, 400], [413]), answer
    assert b'"items"' not in answer, "the inner request was served"
    await served(node)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("CONNECT 127.0.0.1:80 HTTP/1.1", 400),
        ("OPTIONS * HTTP/1.1", 404),
        ("TRACE /v1/agents HTTP/1.1", 405),
        ("PATCH /v1/agents HTTP/1.1", 405),
        ("get /v1/agents HTTP/1.1", 400),
        ("FOO /v1/agents HTTP/1.1", 400),
        ("GET /v1/agents\x01 HTTP/1.1", 400),
        ("GET /v1/\xff HTTP/1.1", 400),
        ("GET http://127.0.0.1/v1/agents HTTP/1.1", 200),
        ("GET http://evil.example/v1/agents HTTP/1.1", 200),  # the one Host header decides, as it does for everybody
        ("GET //v1/agents HTTP/1.1", 404),
        ("GET /v1/agents/../agents HTTP/1.1", 404),
        ("GET /v1/%61gents HTTP/1.1", 200),
        ("GET /v1%2Fagents HTTP/1.1", 404),
        ("GET /v1/sessions/%00 HTTP/1.1", 404),
        ("GET /v1/sessions/%ff%fe/events HTTP/1.1", 404),
        ("GET /v1/sessions/" + "x" * 60_000 + " HTTP/1.1", 404),
    ],
)
async def test_lines_of_requests(node: Node, head: str, status: int) -> None:
    answer = await raw(node, f"{head}\r\n{AUTH}Connection: close\r\n\r\n")
    assert statuses(answer) == [status], answer[:200]
    if status >= 400:
        assert set(json.loads(answer.partition(b"\r\n\r\n")[2])) == {"error"}
    await served(node)


async def test_an_upgrade_that_is_not_ours_is_an_ordinary_request(node: Node) -> None:
    lines = f"{AUTH}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
    last = f"GET /v1/agents HTTP/1.1\r\n{AUTH}Connection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(f"GET /v1/agents HTTP/1.1\r\n{lines}".encode())
    async with asyncio.timeout(10):
        assert (await reader.readline()).split()[1] == b"200"
        writer.write(last.encode())
        assert statuses(await reader.read()) == [200]
    writer.close()


async def test_head_has_no_body_and_no_route(node: Node, talk: Talk) -> None:
    for path in ("/v1/agents", talk.path, f"{talk.path}/events/stream"):
        answer = await raw(node, f"HEAD {path} HTTP/1.1\r\n{AUTH}Connection: close\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert (statuses(head), body) == ([405], b"")
        assert b"allow: " in head


# --- paths and ids


async def test_an_encoded_slash_parts_nothing(node: Node, talk: Talk) -> None:
    for path in (f"/v1/sessions/{talk.id}%2Fevents", f"{talk.path}%2Fclients", f"{talk.path}/events%2Fstream"):
        assert (await talk.page.get(path)).status_code == 404
    made = await talk.page.post(f"{talk.path}/clients", json={"name": "web", "lifetime": {"type": "never"}})
    call = f"{talk.path}/clients/{made.json()['id']}/calls"
    await talk.page.put(
        f"{talk.path}/clients/{made.json()['id']}/tools",
        json={"tools": [{"name": "highlight_row", "description": "", "parameters": {}}]},
    )
    await node.dispatch(talk.id, made.json()["id"], "a/b?c", revision=2)
    acked = await talk.page.post(f"{call}/a%2Fb%3Fc/ack")
    assert (acked.status_code, acked.json().get("call_id")) == (200, "a/b?c")
    assert (await talk.page.post(f"{call}/a/b?c/ack")).status_code == 404


def _paths_of(talk: Talk, session_id: str, client_id: str) -> list[tuple[str, str]]:
    fill = {"sid": session_id, "cid": client_id, "call_id": "call-1", "token_id": str(uuid.uuid4())}
    return [
        (operation.method, re.sub(r"{(\w+)}", lambda found: fill[found[1]], operation.path))
        for operation in OPERATIONS
        if "{sid}" in operation.path
    ]


async def test_another_session_looks_like_none(node: Node, talk: Talk) -> None:
    """With every route: a foreign session, an unknown one and no uuid at all are the same bytes."""
    other = await new_session(talk.key)
    async with node.client(other["session_token"]) as page:
        client = await page.post(
            f"/v1/sessions/{other['id']}/clients", json={"name": "x", "lifetime": {"type": "never"}}
        )
    client_id = client.json()["id"]
    foreign, unknown, none = (
        _paths_of(talk, session_id, client_id) for session_id in (other["id"], str(uuid.uuid4()), "x")
    )
    for asked in zip(foreign, unknown, none, strict=True):
        answers = [await talk.page.request(method, path, json={}) for method, path in asked]
        assert {answer.status_code for answer in answers} == {404}, asked[0]
        assert len({answer.content for answer in answers}) == 1, asked[0]
    for method, path in _paths_of(talk, talk.id, client_id):
        if client_id in path:
            body = {"text": "x", "tools": []}
            assert (await talk.page.request(method, path, json=body)).status_code == 404, path


# --- values


BAD_NUMBERS = ["-1", "0", "1e400", "-0.0", "5.5", "1" + "0" * 400, "null", "true", '"60"', "[60]", "{}"]


@pytest.mark.parametrize("number", BAD_NUMBERS)
async def test_lifetimes_are_whole_seconds(talk: Talk, number: str) -> None:
    body = b'{"name":"web","lifetime":{"type":"ttl","data":{"seconds":%b}}}' % number.encode()
    answer = await talk.page.post(f"{talk.path}/clients", content=body, headers=JSON)
    assert answer.status_code == 400
    assert (await talk.page.get(f"{talk.path}/clients")).json()["items"] == []


@pytest.mark.parametrize("number", ["-1", "0", "1e400", "5.5", "1" + "0" * 400, "true", '"60"', "[]"])
async def test_timeouts_of_tools_are_whole_milliseconds(talk: Talk, number: str) -> None:
    tool = b'{"name":"t","description":"","parameters":{},"timeout_ms":%b}' % number.encode()
    body = b'{"name":"web","lifetime":{"type":"never"},"tools":[%b]}' % tool
    answer = await talk.page.post(f"{talk.path}/clients", content=body, headers=JSON)
    assert answer.status_code == 400
    assert "tools[0].timeout_ms" in answer.text or "not valid JSON" in answer.text


@pytest.mark.parametrize(
    "query", ["after=%00", "after=" + "x" * 5000, "after=%ff", "after=*", "state=%00", "limit=%00"]
)
async def test_cursors_that_nobody_gave(talk: Talk, query: str) -> None:
    answer = await talk.page.get(f"{talk.path}/calls?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(query.partition("=")[0])


async def test_a_body_is_as_deep_as_it_may_be_and_no_deeper(node: Node, talk: Talk) -> None:
    for depth, status in ((127, 200), (128, 400), (1_000, 400), (100_000, 400)):
        pad = b"[" * depth + b"]" * depth
        body = b'{"type":"input","text":"x","pad":' + pad + b"}"
        answer = await talk.page.post(f"{talk.path}/events", content=body, headers=JSON)
        assert answer.status_code == status, depth


ODD = ["\x00", "\ud800", "\udfff\ud800", "\u0085", "\u2028", "\ufeff", "\U0010ffff", "a\x1b[31mb", "\x7f"]


@pytest.mark.parametrize("odd", ODD)
async def test_odd_characters_anywhere_are_taken_or_refused(node: Node, talk: Talk, odd: str) -> None:
    def sent(body: dict[str, Any]) -> dict[str, Any]:
        return {"content": json.dumps(body).encode(), "headers": JSON}

    made = await talk.key.post("/v1/sessions", **sent({"agent_id": SUPPORT.id, "display_name": f"a{odd}", odd: odd}))
    assert made.status_code == 201
    tool = {"name": "t", "description": odd, "parameters": {"description": odd, "properties": {odd: {"const": odd}}}}
    body = {"name": "web", "lifetime": {"type": "never"}, "tools": [tool], "key": f"k{odd}"}
    client = await talk.page.post(f"{talk.path}/clients", **sent(body))
    assert client.status_code in (201, 400)
    for path, body in (
        ("/events", {"type": "input", "text": f"a{odd}"}),
        ("/approvals/x", {"decision": "deny", "message": odd}),
        ("/model", {"provider": odd, "model": odd}),
        (f"/clients/{uuid.uuid4()}/calls/x/result", {"text": odd, "structured": {odd: odd}}),
    ):
        answer = await talk.key.request("PUT" if path == "/model" else "POST", talk.path + path, **sent(body))
        assert answer.status_code in (200, 400, 404, 409), path
    async with asyncio.timeout(5):
        for path in ("/events", "/clients", "/calls", "/catalog"):
            page = await talk.page.get(talk.path + path)
            assert page.status_code == 200
            json.loads(page.content.decode("utf-8", "strict"))


@pytest.mark.parametrize(
    "kind", ["", "multipart/form-data; boundary=x", "text/json", "application/jsonp", "application/x-json", "*/*"]
)
async def test_other_content_types(talk: Talk, kind: str) -> None:
    answer = await talk.page.post(
        f"{talk.path}/events", content=b'{"type":"input","text":"x"}', headers={"Content-Type": kind}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "invalid_request")


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("Authorization", "Bearer " + "x" * 30_000, 401),
        ("Authorization", "Bearer \xff\xfe", 401),
        ("Authorization", "Basic dXNlcjpwYXNz", 401),
        ("Authorization", "Bearer", 401),
        ("Idempotency-Key", "\xe9", 400),
        ("Last-Event-ID", "\xb2", 400),
        ("Origin", "\xff", 403),
        ("Content-Type", "\xff", 415),
    ],
)
async def test_odd_headers(node: Node, talk: Talk, name: str, value: str, status: int) -> None:
    path = f"{talk.path}/events/stream" if name == "Last-Event-ID" else f"{talk.path}/events"
    method = "GET" if name == "Last-Event-ID" else "POST"
    lines = [] if name == "Authorization" else [f"Authorization: Bearer {talk.token}"]
    lines += [] if name == "Content-Type" else ["Content-Type: application/json"]
    head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, f"{name}: {value}"])
    body = '{"type":"input","text":"x"}' if method == "POST" else ""
    answer = await raw(node, f"{head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}")
    assert statuses(answer) == [status], answer[:300]


# --- connections that only hold on


async def test_a_body_that_nobody_reads_ends_too(node: Node, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "BODY_S", 0.3)
    endless = f"{AUTH}Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
    for line in (f"POST {talk.path}/cancel HTTP/1.1", "GET /v1/agents HTTP/1.1", "POST /nothing HTTP/1.1"):
        answer = await raw(node, f"{line}\r\n{endless}x", 5)  # an answer, then the end, though nobody closed
        assert len(statuses(answer)) == 1
    async with node.client() as key:  # what came whole is not hurried
        await key.post(f"{talk.path}/cancel")
        await asyncio.sleep(0.5)
        assert (await key.post(f"{talk.path}/cancel")).status_code == 200


async def test_a_socket_has_no_body_to_wait_for(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "BODY_S", 0.2)
    address = node.url.replace("http", "ws") + "/v1/ws"
    async with connect(address, subprotocols=["toolrelay.v1"], proxy=None) as socket:  # type: ignore[list-item]
        await asyncio.sleep(0.5)
        async with asyncio.timeout(10):
            await (await socket.ping())


async def test_many_idle_connections_of_one_address_hurt_nobody(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 3.0)
    opened = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", node.port) for _ in range(300)))
    try:
        for number, (_, writer) in enumerate(opened):
            writer.write(b"" if number % 2 else b"POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow:")
        await served(node)
        async with asyncio.timeout(15):
            await asyncio.gather(*(reader.read() for reader, _ in opened), return_exceptions=True)
    finally:
        for _, writer in opened:
            writer.transport.abort()
    await served(node)


async def test_one_session_takes_no_stream_of_another(node: Node, talk: Talk) -> None:
    node.services.streams._per_session = 3
    other = await new_session(talk.key)

    async def streams(made_id: str, client: httpx.AsyncClient, count: int) -> list[int]:
        found: list[int] = []
        for _ in range(count):
            request = client.build_request("GET", f"/v1/sessions/{made_id}/events/stream")
            answer = await client.send(request, stream=True)
            found.append(answer.status_code)
            if answer.status_code == 429:
                await answer.aread()
                assert "this session" in answer.text
        return found

    async with node.client() as key:
        assert await streams(talk.id, key, 5) == [200, 200, 200, 429, 429]
        assert await streams(other["id"], key, 1) == [200]
    async with asyncio.timeout(5):
        while len(node.services.streams):
            await asyncio.sleep(0.01)
    assert not node.services.streams._taken
