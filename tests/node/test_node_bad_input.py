"""Bad input of every kind at one node, while a neighbour's run goes on and does not notice."""

import asyncio
import contextlib
import json

import pytest
from websockets.asyncio.client import connect

from tests.doubles.nodes import Node
from tests.doubles.nodes_session import calls, conversation, tool

READ = tool("read")
SAY = {"text": "{{results}}"}


@contextlib.asynccontextmanager
async def untouched(node: Node):
    """A run with a call open for as long as the block; it must end as if nothing had been."""
    async with conversation(node) as talk:
        client = await talk.register("web", READ)
        run = await talk.say(calls("client__web__read"), SAY)
        (call,) = await client.dispatched()
        yield
        await client.answer(call, "untouched")
        assert (await talk.end(run))["type"] == "run_completed"
        assert json.loads(talk.said()) == ["untouched"]
        assert (await talk.http.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"type":"input"}', 400),
        (b'{"type":"input","text":"  "}', 400),
        (b'{"type":"input","text":"' + b"x" * 16_385 + b'"}', 400),
        (b'{"type":"steer","text":"x"}', 400),
        (b"[" * 100_000, 400),
        (b'{"type":"input","text":"\xff"}', 400),
        (b"x" * (4 * 1024 * 1024 + 1), 413),
    ],
    ids=["empty", "half", "list", "no_text", "blank", "too_long", "type", "deep", "no_utf8", "too_large"],
)
async def test_bodies(node: Node, body: bytes, status: int):
    async with untouched(node), conversation(node) as talk:
        answer = await talk.http.post(f"{talk.path}/events", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"code", "message"}
        assert await talk.logged() == ["session_created"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": "Web"}, "name"),
        ({"name": "w" * 33}, "name"),
        ({"lifetime": {"type": "ttl", "data": {"seconds": 4}}}, "seconds"),
        ({"lifetime": {"type": "ttl", "data": {"seconds": 3601}}}, "seconds"),
        ({"tools": [tool("bad name")]}, "tools[0]"),
        ({"tools": [READ, tool("x" * 65)]}, "tools[1]"),
        ({"tools": [READ, READ]}, "tools[1]"),
        ({"tools": [tool(f"t{n}") for n in range(65)]}, "tools"),
        ({"tools": [{**READ, "description": "d" * 4097}]}, "tools[0]"),
        ({"tools": [{**READ, "parameters": {"$ref": "https://example.com/schema"}}]}, "tools[0]"),
        ({"tools": [{**READ, "parameters": {"type": "banana"}}]}, "tools[0]"),
        ({"tools": [{**READ, "parameters": []}]}, "tools[0]"),
    ],
)
async def test_registrations(node: Node, change: dict[str, object], named: str):
    async with untouched(node), conversation(node) as talk:
        body = {"name": "web", "lifetime": {"type": "never"}, "tools": [READ], **change}
        answer = await talk.ask("POST", "/clients", body)
        assert answer.status_code == 400, answer.text
        assert named in answer.json()["error"]["message"]
        assert not talk.of("client_registered")


async def test_the_33rd_client_is_refused(node: Node):
    async with untouched(node), conversation(node) as talk:
        for _ in range(32):
            await talk.register("web")
        body = {"name": "web", "lifetime": {"type": "never"}}
        assert (await talk.ask("POST", "/clients", body)).status_code == 409


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x00\x01", 4400),
        ("{", 4400),
        ("[]", 4400),
        ('{"id":1}', 4400),
        ('{"id":1,"op":"attach","session_id":"' + "x" * 9_000 + '"}', 4413),
        ('{"id":1,"op":"attach","session_id":"00000000-0000-4000-8000-000000000000","token":"no"}', 4404),
    ],
    ids=["binary", "half", "list", "no_op", "too_large", "no_session"],
)
async def test_frames(node: Node, frame: str | bytes, code: int):
    url = node.url.replace("http", "ws") + "/v1/ws"
    async with untouched(node), connect(url, subprotocols=["toolrelay.v1"]) as link:  # type: ignore[list-item]
        await link.send(frame)
        await asyncio.wait_for(link.wait_closed(), 10)
        assert link.close_code == code


@pytest.mark.parametrize(
    "step",
    [
        {"noise": "no frame at all"},
        {"raw_hex": "fffe0a"},
        {"oversize": 70_000},
        {"raw_frame": {"event": "never.heard.of"}},
        {"raw_frame": {"seq": 1}},
        {"die": {"signal": "SIGSEGV"}},
        {"stderr_bytes": 300_000},
        {"grandchild": {"seconds": 60}},
    ],
    ids=["noise", "bytes", "oversize", "event", "seq", "segv", "stderr", "grandchild"],
)
async def test_children(node: Node, step: dict[str, object]):
    """Whatever a child does, its run gets an end, the next one works, and the neighbour does not notice."""
    async with untouched(node), conversation(node) as talk:
        run = await talk.say(step, {"text": "said"})
        assert (await talk.end(run))["type"] in ("run_completed", "run_failed")
        assert await talk.run("echo next") == "next"
