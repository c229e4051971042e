"""Registrations and calls over HTTP: registering, pinging, acks, answers, refusals, ends."""

import asyncio
import json
import uuid
from typing import Any

import pytest

from tests.doubles.http_node import Node, http_node
from tests.doubles.sse_reader import open_stream
from tests.http.conftest import Talk

TOOL: dict[str, Any] = {
    "name": "highlight_row",
    "description": "Highlight a row.",
    "parameters": {"type": "object", "properties": {"row_id": {"type": "string"}}, "required": ["row_id"]},
}


async def register(talk: Talk, **more: Any) -> dict[str, Any]:
    body = {"name": "web", "lifetime": {"type": "ttl", "data": {"seconds": 60}}, "tools": [TOOL], **more}
    answer = await talk.page.post(f"{talk.path}/clients", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_registration_with_its_counter_and_its_events(node: Node, talk: Talk) -> None:
    first, second = await register(talk), await register(talk)
    never = await register(talk, name="worker", lifetime={"type": "never"}, tools=None)
    assert (first["name"], second["name"], never["name"]) == ("web", "web-2", "worker")
    assert first["expires_at"].endswith("Z")
    assert never["expires_at"] is None
    log = (await talk.page.get(f"{talk.path}/events", params={"order": "asc"})).json()["items"]
    assert [event["type"] for event in log] == ["session_created"] + ["client_registered"] * 3
    assert log[1] == {
        "seq": 2,
        "type": "client_registered",
        "client_id": first["id"],
        "name": "web",
        "lifetime": {"type": "ttl", "data": {"seconds": 60}},
        "tools": [TOOL],
    }
    assert (await talk.page.delete(f"{talk.path}/clients/{first['id']}")).status_code == 204
    assert (await register(talk))["name"] == "web"
    listed = (await talk.page.get(f"{talk.path}/clients")).json()
    assert [(c["name"], c["state"], c["key"]) for c in listed["items"]] == [
        ("web-2", "online", None),
        ("worker", "online", None),
        ("web", "online", None),
    ]
    assert listed["items"][0]["tools"] == [TOOL]


async def test_pings_put_the_lapse_off(node: Node, talk: Talk) -> None:
    client = await register(talk)
    await asyncio.sleep(0.01)
    ping = await talk.page.post(f"{talk.path}/clients/{client['id']}/ping", headers={"Idempotency-Key": "p"})
    assert ping.status_code == 200
    assert set(ping.json()) == {"expires_at"}
    assert ping.json()["expires_at"] > client["expires_at"]
    for missing in (str(uuid.uuid4()), "not-a-uuid", client["id"] + "0"):
        assert (await talk.page.post(f"{talk.path}/clients/{missing}/ping")).status_code == 404


async def test_a_call_is_dispatched_acked_answered(node: Node, talk: Talk) -> None:
    client = await register(talk)
    base = f"{talk.path}/clients/{client['id']}/calls/call-1"
    async with open_stream(node.port, f"{talk.path}/events/stream", talk.token) as stream:
        await node.dispatch(talk.id, client["id"], "call-1", arguments=b'{"row_id":"3"}')
        dispatched = await stream.until("client_tool_dispatched")
        assert (dispatched["client_id"], dispatched["tool"], dispatched["arguments"]) == (
            client["id"],
            "highlight_row",
            {"row_id": "3"},
        )
        assert dispatched["remaining_ms"] <= 20_000
        listed = (await talk.page.get(f"{talk.path}/calls", params={"state": "open"})).json()["items"]
        assert [(c["call_id"], c["state"]) for c in listed] == [("call-1", "dispatched")]
        acks = [await talk.page.post(f"{base}/ack") for _ in range(2)]
        assert [a.status_code for a in acks] == [200, 200]
        assert acks[0].content == acks[1].content
        assert acks[0].json()["type"] == "client_tool_acked"
        answers = [await talk.page.post(f"{base}/result", json={"text": "Row 3."}) for _ in range(2)]
        assert [a.status_code for a in answers] == [204, 204]
        assert answers[0].content == b""
        assert (await stream.until("client_tool_acked")) == acks[0].json()
        result = await stream.until("tool_result")
        assert (result["content"], result["is_error"]) == ([{"type": "text", "data": {"text": "Row 3."}}], False)
    other = await talk.page.post(f"{base}/result", json={"text": "Row 4."})
    assert other.status_code == 409
    assert (await talk.page.post(f"{base}/ack")).status_code == 200
    settled = (await talk.page.get(f"{talk.path}/calls", params={"state": "settled"})).json()["items"]
    assert [(c["state"], c["outcome"]) for c in settled] == [("answered", "done")]
    assert (await talk.page.get(f"{talk.path}/calls", params={"state": "open"})).json()["items"] == []


async def test_ids_of_others_are_unknown(node: Node, talk: Talk) -> None:
    mine, other = await register(talk), await register(talk)
    await node.dispatch(talk.id, mine["id"], "call-1")
    for client_id, call_id in ((other["id"], "call-1"), (mine["id"], "call-2"), (str(uuid.uuid4()), "call-1")):
        base = f"{talk.path}/clients/{client_id}/calls/{call_id}"
        assert (await talk.page.post(f"{base}/ack")).status_code == 404
        assert (await talk.page.post(f"{base}/result", json={"text": "x"})).status_code == 404
    assert (await talk.page.get(f"{talk.path}/calls", params={"state": "open"})).json()["items"]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b'{"text": 3}', "text"),
        (b'{"is_error": false}', "text"),
        (b'{"text": "x", "is_error": "no"}', "is_error"),
        (b"not json", "not valid JSON"),
        (b'{"text": "x", "n": NaN}', "not valid JSON"),
        (b'{"text": "x", "text": "y"}', "twice"),
        (b"[]", "object"),
        (json.dumps({"text": "x" * 65_537}).encode(), "text"),
        (json.dumps({"text": "x", "structured": "y" * 65_536}).encode(), "structured"),
    ],
)
async def test_a_refused_answer_does_not_use_the_call_up(node: Node, talk: Talk, body: bytes, where: str) -> None:
    client = await register(talk)
    await node.dispatch(talk.id, client["id"], "call-1")
    base = f"{talk.path}/clients/{client['id']}/calls/call-1"
    headers = {"Content-Type": "application/json"}
    refused = await talk.page.post(f"{base}/result", content=body, headers=headers)
    assert refused.status_code == 400
    assert where in refused.json()["error"]["message"]
    assert "yyy" not in refused.text
    record = await node.calls.get(talk.id, "call-1")
    assert record is not None
    assert record.state == "dispatched"
    assert record.due_ms <= record.dispatched_ms + 10_500
    good = {"text": "😀" * 65_536, "is_error": None, "structured": None, "later": 1}
    assert (await talk.page.post(f"{base}/result", json=good)).status_code == 204


async def test_numbers_of_a_structured_result_pass_exactly(node: Node, talk: Talk) -> None:
    from gateway.services.answers import read_answer

    client = await register(talk)
    await node.dispatch(talk.id, client["id"], "call-1")
    numbers = b'{"id":9223372036854775807,"big":12345678901234567890123,"zero":-0,"float":1.10,"__proto__":{"a":1e2}}'
    body = b'{ "text": "x", "structured": ' + numbers.replace(b",", b" ,\n ") + b"}"
    answer = await talk.page.post(
        f"{talk.path}/clients/{client['id']}/calls/call-1/result",
        content=body,
        headers={"Content-Type": "application/json; charset=utf-8"},
    )
    assert answer.status_code == 204
    record = await node.calls.get(talk.id, "call-1")
    assert record is not None
    assert record.answer is not None
    assert read_answer(record.answer).structured == numbers


async def test_what_a_client_still_owed_fails_when_it_leaves(node: Node, talk: Talk) -> None:
    client = await register(talk)
    await node.dispatch(talk.id, client["id"], "call-1")
    async with open_stream(node.port, f"{talk.path}/events/stream", talk.token) as stream:
        await talk.page.delete(f"{talk.path}/clients/{client['id']}")
        failed = await stream.until("client_tool_failed")
        assert failed["reason"] == "client_gone"
        assert (await stream.until("tool_result"))["is_error"] is True
        assert (await stream.until("client_left"))["reason"] == "departed"
    late = await talk.page.post(f"{talk.path}/clients/{client['id']}/calls/call-1/result", json={"text": "x"})
    assert late.status_code in (404, 409)


async def test_a_late_answer_hears_why(node: Node, talk: Talk) -> None:
    client = await register(talk)
    await node.dispatch(talk.id, client["id"], "call-1", budget_ms=30)
    await asyncio.sleep(0.05)
    late = await talk.page.post(f"{talk.path}/clients/{client['id']}/calls/call-1/result", json={"text": "x"})
    assert late.status_code == 409
    assert "timeout" in late.json()["error"]["message"]


async def test_the_list_is_replaced_and_a_bad_one_changes_nothing(node: Node, talk: Talk) -> None:
    client = await register(talk)
    path = f"{talk.path}/clients/{client['id']}/tools"
    done = await talk.page.put(path, json={"tools": [TOOL, {**TOOL, "name": "b"}]})
    assert done.status_code == 200
    assert done.json()["type"] == "client_tools_updated"
    assert [tool["name"] for tool in done.json()["tools"]] == ["highlight_row", "b"]
    bad = await talk.page.put(path, json={"tools": [TOOL, {**TOOL, "name": "b!"}]})
    assert bad.status_code == 400
    assert "tools[1].name" in bad.json()["error"]["message"]
    assert "b!" not in bad.text
    listed = (await talk.page.get(f"{talk.path}/clients")).json()["items"]
    assert [tool["name"] for tool in listed[0]["tools"]] == ["highlight_row", "b"]
    assert (await talk.page.put(path, json={})).status_code == 400
    assert (await talk.page.put(f"{talk.path}/clients/{uuid.uuid4()}/tools", json={"tools": []})).status_code == 404


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"name": ""}, "name"),
        ({"name": "Web"}, "name"),
        ({"name": "w" * 33}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": 1}, "name"),
        ({"lifetime": {"type": "ttl", "data": {"seconds": 4}}}, "lifetime.data.seconds"),
        ({"lifetime": {"type": "ttl", "data": {"seconds": 3601}}}, "lifetime.data.seconds"),
        ({"lifetime": {"type": "ttl", "data": {"seconds": 5.5}}}, "lifetime.data.seconds"),
        ({"lifetime": {"type": "ttl"}}, "lifetime.data"),
        ({"lifetime": {"type": "always"}}, "lifetime"),
        ({"lifetime": None}, "lifetime"),
        ({"tools": "x"}, "tools"),
        ({"tools": [TOOL] * 65}, "tools"),
        ({"tools": [{**TOOL, "parameters": []}]}, "tools[0].parameters"),
        ({"tools": [TOOL, {**TOOL, "name": "b", "description": "x" * 4097}]}, "tools[1].description"),
        ({"key": "k"}, "key"),
        ({"key": "k" * 65}, "key"),
    ],
)
async def test_a_bad_registration_is_named_and_quotes_nothing(
    node: Node, talk: Talk, change: dict[str, Any], where: str
) -> None:
    body = {"name": "web", "lifetime": {"type": "never"}, "tools": [TOOL], **change}
    answer = await talk.page.post(f"{talk.path}/clients", json=body)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert where in message
    assert "always" not in message
    assert (await talk.page.get(f"{talk.path}/clients")).json()["items"] == []


async def test_at_most_32_live_clients(node: Node, talk: Talk) -> None:
    made = [await register(talk, tools=[]) for _ in range(32)]
    answer = await talk.page.post(f"{talk.path}/clients", json={"name": "x", "lifetime": {"type": "never"}})
    assert answer.status_code == 409
    await talk.page.delete(f"{talk.path}/clients/{made[0]['id']}")
    await register(talk)


async def test_a_replayed_registration_is_the_first_byte_for_byte(node: Node, redis_url: str, talk: Talk) -> None:
    body = {"name": "web", "lifetime": {"type": "never"}}
    async with http_node(redis_url) as second, second.client(talk.token) as there:
        calls = [
            client.post(f"{talk.path}/clients", json=body, headers={"Idempotency-Key": "one"})
            for client in (talk.page, there) * 4
        ]
        answers = await asyncio.gather(*calls)
        assert {a.status_code for a in answers} == {201}
        assert len({a.content for a in answers}) == 1
        conflict = await there.post(
            f"{talk.path}/clients", json={**body, "name": "other"}, headers={"Idempotency-Key": "one"}
        )
        assert conflict.status_code == 409
    assert len((await talk.page.get(f"{talk.path}/clients")).json()["items"]) == 1


async def test_executing_arguments_are_joined_in_while_a_call_is_open(node: Node, talk: Talk) -> None:
    client = await register(talk)
    await node.dispatch(
        talk.id, client["id"], "call-1", arguments=b'{"password":"[redacted:name]"}', executing=b'{"password":"s3"}'
    )

    async def seen() -> list[Any]:
        async with open_stream(node.port, f"{talk.path}/events/stream?after_seq=0", talk.token) as stream:
            streamed = (await stream.until("client_tool_dispatched"))["arguments"]
        items = (await talk.page.get(f"{talk.path}/events")).json()["items"]
        return [streamed, next(e["arguments"] for e in items if e["type"] == "client_tool_dispatched")]

    assert await seen() == [{"password": "s3"}] * 2
    await talk.page.post(f"{talk.path}/clients/{client['id']}/calls/call-1/result", json={"text": "x"})
    assert await seen() == [{"password": "[redacted:name]"}] * 2


async def test_pages_of_calls(node: Node, talk: Talk) -> None:
    client = await register(talk)
    for number in range(5):
        await node.dispatch(talk.id, client["id"], f"call-{number}")
    seen: list[str] = []
    params: dict[str, Any] = {"limit": 2}
    while True:
        body = (await talk.page.get(f"{talk.path}/calls", params=params)).json()
        seen += [call["call_id"] for call in body["items"]]
        if body["next_cursor"] is None:
            break
        params["after"] = body["next_cursor"]
    assert sorted(seen) == [f"call-{number}" for number in range(5)]
    assert (await talk.page.get(f"{talk.path}/calls", params={"state": "odd"})).status_code == 400
    assert (await talk.page.get(f"{talk.path}/calls", params={"after": "nobody"})).status_code == 400
