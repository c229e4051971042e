"""Each close code, how a socket gets in, and what belongs to one attachment alone."""

import asyncio
import base64
import contextlib
import json
from typing import Any
from uuid import uuid4

import pytest
from websockets.exceptions import InvalidStatus

from gateway.config.settings import Limits, Server, Settings
from gateway.model import limits
from gateway.model.errors import Refusal
from tests.conformance.websocket.conftest import Pair
from tests.doubles.socket_world import AGENT, API_KEY, NEVER, ORIGIN, OTHER, World


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        "7",
        "null",
        "{}",
        '{"id":1}',
        '{"op":"ping"}',
        '{"id":1,"op":7}',
        '{"id":"1","op":"ping"}',
        '{"id":1.5,"op":"ping"}',
        '{"id":true,"op":"ping"}',
        '{"id":null,"op":"ping"}',
        '{"id":1,"op":"ping"} {}',
        '{"id":1,"op":"ping","op":"ping"}',
        '{"id":1,"op":"ping","n":NaN}',
        '{"id":1,"op":"ping","n":1e400}',
        '\ufeff{"id":1,"op":"ping"}',
        '{"id":1,"op":"ping","x":' + "[" * 128 + "]" * 128 + "}",
        b'{"id":1,"op":"ping"}',
    ],
)
@pytest.mark.parametrize("attached", [False, True])
async def test_4400_for_a_frame_that_is_malformed(bus_world: World, text: str | bytes, attached: bool) -> None:
    node = await bus_world.node()
    session_id, token = await node.session()
    client = await (bus_world.attached(node, session_id, token) if attached else bus_world.client(node))
    await client.raw(text)
    assert await client.closed() == (4400, "malformed frame")


async def test_a_nesting_within_the_bound_is_fine(bus_world: World) -> None:
    node = await bus_world.node()
    client = await bus_world.client(node)
    await client.raw('{"id":1,"op":"ping","x":' + "[" * 127 + "]" * 127 + "}")
    assert "ok" in await client.answer(1)


async def test_4401_when_nobody_attaches_in_time(bus_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SOCKET_ATTACH_S", 0.3)
    node = await bus_world.node()
    session_id, token = await node.session()
    idle = await bus_world.client(node)
    busy = await bus_world.client(node)
    await busy.ok("ping")
    stays = await bus_world.attached(node, session_id, token)
    assert await idle.closed() == (4401, "no token in time")
    assert await busy.closed() == (4401, "no token in time")
    await stays.ok("ping")


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "https://app.example.evil.example",
        "https://sub.app.example",
        "http://app.example",
        "https://app.example:444",
        "https://APP.example",
        "https://app.example/",
    ],
)
async def test_4403_for_a_page_that_the_agent_does_not_list(pair: Pair, origin: str) -> None:
    session_id, token = await pair.here.session()
    client = await pair.world.client(pair.there, origin=origin)
    await client.send("attach", session_id=session_id, token=token)
    assert await client.closed() == (4403, "origin not allowed")


async def test_the_origin_counts_for_every_session_and_later_only_as_an_error(pair: Pair) -> None:
    allowed, token = await pair.here.session()
    other, other_token = await pair.here.session(OTHER)
    client = await pair.world.client(pair.there, origin=ORIGIN)
    await client.ok("attach", session_id=allowed, token=token)
    refused = await client.error("attach", session_id=other, token=other_token)
    assert refused["code"] == "forbidden"
    await client.ok("register", session_id=allowed, name="web", lifetime=NEVER)


async def _is_good(pair: Pair, token: str) -> bool:
    """Whether the node that is asked lets it in: its clock is its own estimate of the bus's."""
    try:
        await pair.there.authenticator.authenticate(token)
    except Refusal:
        return False
    return True


async def _refusals(pair: Pair) -> list[dict[str, Any]]:
    session_id, token = await pair.here.session()
    foreign, foreign_token = await pair.here.session()
    gone_token, gone = await pair.here.token(session_id)
    await pair.here.sessions.revoke_token(session_id, gone)
    expired, _ = await pair.here.token(session_id, ttl_s=0.001)
    async with asyncio.timeout(5):
        while await _is_good(pair, expired):
            await asyncio.sleep(0.01)
    unknown = str(uuid4())
    return [
        {"session_id": session_id, "token": foreign_token},
        {"session_id": session_id, "token": "nonsense"},
        {"session_id": session_id, "token": token[:-1] + ("0" if token[-1] != "0" else "1")},
        {"session_id": session_id, "token": gone_token},
        {"session_id": session_id, "token": expired},
        {"session_id": session_id, "token": ""},
        {"session_id": session_id},
        {"session_id": unknown, "token": token},
        {"session_id": unknown, "token": API_KEY},
        {"session_id": unknown, "token": "nonsense"},
        {"session_id": "no uuid", "token": token},
        {"session_id": foreign, "token": token},
    ]


async def test_4404_when_the_first_attach_is_refused_alike_for_every_reason(pair: Pair) -> None:
    for fields in await _refusals(pair):
        client = await pair.world.client(pair.there)
        await client.send("attach", **fields)
        closed = await client.closed()
        assert closed == (4404, "attach refused"), fields
        assert not client.pushes


async def test_a_later_refusal_is_an_error_answer_and_disturbs_nobody(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    epoch = await pair.here.own(session_id)
    client = await pair.client(session_id, token, there=True)
    told = [await client.error("attach", **fields) for fields in await _refusals(pair)]
    assert all(answer == told[0] for answer in told), told
    assert told[0]["code"] == "not_found"
    await pair.here.say(session_id, epoch, "still here")
    assert (await client.event("message_assistant"))["seq"] == 2


async def test_before_the_first_attach_only_attach_and_ping_are_served(bus_world: World) -> None:
    node = await bus_world.node()
    session_id, token = await node.session()
    client = await bus_world.client(node)
    refused = await client.error("register", session_id=session_id, name="web", lifetime=NEVER)
    assert refused["code"] == "unauthorized"
    await client.ok("ping")
    await client.ok("attach", session_id=session_id, token=token)


@pytest.mark.parametrize("max_size", [4 * 1024 * 1024, 64 * 1024 * 1024])
async def test_4413_beyond_the_bound_before_and_after_the_first_attach(bus_world: World, max_size: int) -> None:
    node = await bus_world.node(max_size=max_size)
    session_id, token = await node.session()

    def ping(size: int) -> str:
        head = '{"id":1,"op":"ping","x":"'
        return head + "x" * (size - len(head) - 2) + '"}'

    small = await bus_world.client(node)
    await small.raw(ping(8 * 1024))
    assert "ok" in await small.answer(1)
    await small.raw(ping(8 * 1024 + 1))
    assert await small.closed() == (4413, "frame too large")
    large = await bus_world.attached(node, session_id, token)
    await large.raw(ping(4 * 1024 * 1024))
    assert "ok" in await large.answer(1)
    await large.raw(ping(4 * 1024 * 1024 + 1))
    assert await large.closed() == (4413, "frame too large")


async def test_what_http_lets_a_client_send_fits_however_it_is_escaped(pair: Pair) -> None:
    from tests.doubles.socket_world import TOOL

    session_id, token = await pair.here.session()
    epoch = await pair.there.own(session_id)
    client = await pair.client(session_id, token)
    made = await client.ok("register", session_id=session_id, name="web", lifetime=NEVER, tools=[TOOL])
    call_id = await pair.there.dispatch(session_id, epoch, made["client_id"])
    text = "\U0001f600" * 65_536
    await client.ok("result", client_id=made["client_id"], call_id=call_id, text=text)  # json.dumps escapes it
    assert (await client.event("tool_result"))["content"][0]["data"]["text"] == text


async def test_4429_for_a_flood_and_for_too_many_tries(bus_world: World) -> None:
    node = await bus_world.node(frames_per_second=1, burst=20)
    session_id, token = await node.session()
    client = await bus_world.attached(node, session_id, token)
    other = await bus_world.attached(node, session_id, token)
    for _ in range(30):
        await client.send("ping")
    assert await client.closed() == (4429, "too many frames")
    await other.ok("ping")
    calm = await bus_world.node()
    early = await bus_world.client(calm)
    for _ in range(40):
        await early.send("ping")
    assert await early.closed() == (4429, "too many frames")


async def test_4429_for_an_address_that_is_refused_too_often(bus_world: World) -> None:
    settings = Settings(server=Server(), agents=(AGENT,), limits=Limits(auth_failures_per_minute=2))
    node = await bus_world.node(settings=settings)
    session_id, token = await node.session()
    wrong = {"session_id": session_id, "token": "nonsense"}
    stays = await bus_world.attached(node, session_id, token)
    for expected in ((4404, "attach refused"), (4404, "attach refused"), (4429, "too many refused credentials")):
        client = await bus_world.client(node)
        await client.send("attach", **wrong)
        assert await client.closed() == expected
    told = await stays.error("attach", **wrong)
    assert told["code"] == "too_many_requests"
    none = await bus_world.client(node)
    await none.send("attach", session_id=session_id)
    assert await none.closed() == (4404, "attach refused"), "no credential is no guess"
    good = await bus_world.attached(node, session_id, token)
    await good.ok("ping")
    await stays.ok("ping")


async def test_4408_when_no_pong_comes(bus_world: World) -> None:
    node = await bus_world.node(ping_s=0.2)
    session_id, token = await node.session()
    epoch = await node.own(session_id)
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(
        b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    frame = json.dumps({"id": 1, "op": "attach", "session_id": session_id, "token": token}).encode()
    writer.write(b"\x81" + bytes([0x80 | 126]) + len(frame).to_bytes(2, "big") + b"\0\0\0\0" + frame)
    lively = await bus_world.attached(node, session_id, token)
    async with asyncio.timeout(5):
        came = await reader.read(-1)
    assert (4408).to_bytes(2, "big") + b"no pong" in came
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    await node.say(session_id, epoch, "x")
    await lively.event("message_assistant")


async def test_1012_when_the_node_goes_away_and_nothing_is_lost(bus_world: World) -> None:
    from tests.doubles.socket_world import TOOL, TTL

    here, there = await bus_world.node(), await bus_world.node()
    session_id, token = await here.session()
    epoch = await there.own(session_id)
    client = await bus_world.attached(here, session_id, token)
    waits = await bus_world.client(here)
    made = await client.ok("register", session_id=session_id, name="web", lifetime=TTL, tools=[TOOL])
    call_id = await there.dispatch(session_id, epoch, made["client_id"])
    await here.sockets.drain()
    assert len(here.sockets) == 0
    assert await client.closed() == (1012, "this node is going away")
    assert await waits.closed() == (1012, "this node is going away")
    with pytest.raises(InvalidStatus) as refused:
        await bus_world.client(here)
    assert refused.value.response.status_code == 503
    elsewhere = await bus_world.attached(there, session_id, token)
    resumed = await elsewhere.ok(
        "resume", session_id=session_id, client_id=made["client_id"], resume_key=made["resume_key"]
    )
    assert [call["call_id"] for call in resumed["calls"]] == [call_id]
    await elsewhere.ok("result", client_id=made["client_id"], call_id=call_id, text="t")


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"subprotocols": ["other.v1"]}, 400),
        ({"subprotocols": ["bearer.YQ"]}, 400),
        ({"subprotocols": ["toolrelay.v1", "bearer.YQ", "bearer.YQ"]}, 400),
        ({"subprotocols": ["toolrelay.v1", "bearer.Y"]}, 401),
        ({"additional_headers": {"Authorization": "Basic YTpi"}}, 401),
        ({"additional_headers": {"Authorization": "Bearer "}}, 401),
    ],
)
async def test_a_handshake_that_is_refused(bus_world: World, options: dict[str, Any], status: int) -> None:
    node = await bus_world.node()
    with pytest.raises(InvalidStatus) as refused:
        await bus_world.client(node, **options)
    assert refused.value.response.status_code == status
    body = json.loads(refused.value.response.body or b"")
    assert body["error"]["code"] in ("invalid_request", "unauthorized")


async def test_no_subprotocol_is_offered_none_is_picked(bus_world: World) -> None:
    node = await bus_world.node()
    session_id, token = await node.session()
    client = await bus_world.client(node, subprotocols=None)
    assert client.connection.subprotocol is None
    await client.ok("attach", session_id=session_id, token=token)


async def test_the_token_is_never_echoed(bus_world: World) -> None:
    node = await bus_world.node()
    _, token = await node.session()
    offered = "bearer." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    client = await bus_world.client(node, subprotocols=[offered, "toolrelay.v1"])
    response = client.connection.response
    assert response is not None
    assert response.headers["Sec-WebSocket-Protocol"] == "toolrelay.v1"
    assert "bearer" not in str(response.headers)
