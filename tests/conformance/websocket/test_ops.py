"""A case per op (websocket protocol, "Frames"), with the socket on one node and the session's owner on another."""

import json
from typing import Any
from uuid import uuid4

import pytest

from gateway.bus.sessions import NO_KEY
from gateway.model import events, limits
from gateway.model.clean import LogJson
from tests.conformance.websocket.conftest import Pair
from tests.doubles.socket_world import AGENT, API_KEY, NEVER, ORIGIN, OTHER, TOOL, TTL, Client


async def _registered(pair: Pair, **fields: Any) -> tuple[str, int, Client, str]:
    session_id, token = await pair.here.session()
    epoch = await pair.there.own(session_id)
    client = await pair.client(session_id, token)
    given = {"name": "web", "lifetime": NEVER, "tools": [TOOL], **fields}
    made = await client.ok("register", session_id=session_id, **given)
    return session_id, epoch, client, made["client_id"]


async def test_attach_says_where_it_begins_and_what_the_session_does(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    epoch = await pair.there.own(session_id)
    client = await pair.client(session_id, token)
    run = await client.ok("input", session_id=session_id, text="go")
    assert (await pair.there.start_run(session_id, epoch)) is not None
    other = await pair.world.client(pair.there)
    assert await other.ok("attach", session_id=session_id, token=token) == {"seq": 3, "status": "active"}
    third = await pair.world.client(pair.there)
    assert (await third.ok("attach", session_id=session_id, token=token, after_seq=1))["seq"] == 1
    assert (await third.push("event"))["event"] == {"seq": 2, "type": "run_queued", "run_id": run["run_id"]}
    assert (await third.push("event"))["event"]["type"] == "run_started"


async def test_attach_again_keeps_the_place_and_a_place_given_is_taken(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    epoch = await pair.there.own(session_id)
    client = await pair.client(session_id, token)
    await pair.there.say(session_id, epoch, "one")
    assert (await client.push("event"))["event"]["seq"] == 2
    assert (await client.ok("attach", session_id=session_id, token=token))["seq"] == 2
    await pair.there.say(session_id, epoch, "two")
    assert (await client.push("event"))["event"]["seq"] == 3
    assert (await client.ok("attach", session_id=session_id, token=token, after_seq=0))["seq"] == 0
    assert [(await client.push("event"))["event"]["seq"] for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("after", [-1, 1.5, "1", 99, 10**20, True])
async def test_a_place_that_is_none_is_an_error_answer(pair: Pair, after: object) -> None:
    session_id, token = await pair.here.session()
    client = await pair.world.client(pair.here)
    refused = await client.error("attach", session_id=session_id, token=token, after_seq=after)
    assert refused["code"] == "invalid_request"
    assert "after_seq" in refused["message"]
    assert (await client.ok("attach", session_id=session_id, token=token))["seq"] == 1


async def test_detach_ends_events_and_what_was_held(pair: Pair) -> None:
    session_id, epoch, client, client_id = await _registered(pair, lifetime=TTL)
    assert await client.ok("detach", session_id=session_id) == {}
    assert await client.ok("detach", session_id=session_id) == {}
    await pair.there.say(session_id, epoch, "unheard")
    refused = await client.error("ack", session_id=session_id, client_id=client_id, call_id="x")
    assert refused["code"] == "not_found"
    assert not [push for push in client.pushes if push.get("event", {}).get("type") == "message_assistant"]
    (stored,) = await pair.there.clients.all(session_id)
    assert not stored.held
    assert stored.expires_ms is not None


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"name": "Web"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 33}, "name"),
        ({"name": "web\n"}, "name"),
        ({"lifetime": {"type": "ttl", "data": {"seconds": 4}}}, "seconds"),
        ({"lifetime": {"type": "ttl", "data": {"seconds": 3601}}}, "seconds"),
        ({"lifetime": {"type": "ttl"}}, "lifetime"),
        ({"lifetime": {"type": "other"}}, "lifetime"),
        ({"lifetime": None}, "lifetime"),
        ({"key": "x"}, "key"),
        ({"key": "x" * 65}, "key"),
        ({"tools": {}}, "tools"),
        ({"tools": [TOOL, {**TOOL, "name": "a b"}]}, "tools[1].name"),
        ({"tools": [{**TOOL, "name": f"t{n}"} for n in range(65)]}, "64"),
    ],
)
async def test_register_names_what_is_wrong(pair: Pair, fields: dict[str, Any], named: str) -> None:
    session_id, token = await pair.here.session()
    client = await pair.client(session_id, token)
    refused = await client.error("register", session_id=session_id, **{"name": "web", "lifetime": NEVER, **fields})
    assert refused["code"] == "invalid_request"
    assert named in refused["message"]
    assert await pair.there.clients.all(session_id) == []


async def test_register_hands_out_names_and_bounds_clients(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    client = await pair.client(session_id, token)
    names = [
        (await client.ok("register", session_id=session_id, name="web", lifetime=NEVER))["name"]
        for _ in range(limits.CLIENTS_PER_SESSION)
    ]
    assert names[:3] == ["web", "web-2", "web-3"]
    assert len(set(names)) == limits.CLIENTS_PER_SESSION
    refused = await client.error("register", session_id=session_id, name="web", lifetime=NEVER)
    assert refused["code"] == "conflict"
    assert "32" in refused["message"]


async def test_tools_ack_result_leave_answer_as_http_does(pair: Pair) -> None:
    session_id, epoch, client, client_id = await _registered(pair)
    updated = await client.ok("tools", client_id=client_id, tools=[{**TOOL, "name": "other"}])
    assert updated["type"] == "client_tools_updated"
    assert (await client.event("client_tools_updated")) == updated
    call_id = await pair.there.dispatch(session_id, epoch, client_id)
    event = await client.event("client_tool_dispatched")
    assert {"deadline", "ack_by", "remaining_ms", "attempt"} <= event.keys()
    acked = await client.ok("ack", client_id=client_id, call_id=call_id)
    assert acked == {
        "seq": event["seq"] + 1,
        "type": "client_tool_acked",
        "client_id": client_id,
        "call_id": call_id,
    }
    assert await client.ok("ack", client_id=client_id, call_id=call_id) == acked
    assert await client.ok("result", client_id=client_id, call_id=call_id, text="fine", is_error=None) == {}
    record = await pair.there.calls.get(session_id, call_id)
    assert record is not None
    assert (record.state, record.outcome) == ("answered", "done")
    assert await client.ok("leave", client_id=client_id) == {}
    assert (await client.error("leave", session_id=session_id, client_id=client_id))["code"] == "not_found"
    assert (await client.error("tools", session_id=session_id, client_id=client_id, tools=[]))["code"] == "not_found"


async def test_a_result_without_an_ack_counts_as_both(pair: Pair) -> None:
    session_id, epoch, client, client_id = await _registered(pair)
    call_id = await pair.there.dispatch(session_id, epoch, client_id)
    structured = {"n": 12345678901234567890, "x": [1.0, 1e2, None, "é"]}
    await client.ok("result", client_id=client_id, call_id=call_id, text="t", is_error=True, structured=structured)
    assert (await client.event("tool_result"))["is_error"] is True


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"text": "x" * 65_537}, "text"),
        ({"text": 5}, "text"),
        ({"text": None}, "text"),
        ({}, "text"),
        ({"text": "t", "is_error": "no"}, "is_error"),
        ({"text": "t", "structured": "x" * 65_536}, "structured"),
    ],
)
async def test_a_refused_answer_does_not_use_the_call_up(pair: Pair, fields: dict[str, Any], named: str) -> None:
    session_id, epoch, client, client_id = await _registered(pair)
    call_id = await pair.there.dispatch(session_id, epoch, client_id)
    await client.ok("ack", client_id=client_id, call_id=call_id)
    before = await pair.there.calls.get(session_id, call_id)
    refused = await client.error("result", client_id=client_id, call_id=call_id, **fields)
    assert refused["code"] == "invalid_request"
    assert named in refused["message"]
    after = await pair.there.calls.get(session_id, call_id)
    assert before is not None
    assert after is not None
    assert after.state == "acked"
    assert after.due_ms < before.due_ms
    assert await client.ok("result", client_id=client_id, call_id=call_id, text="x" * 65_536) == {}


async def test_results_of_others_and_of_no_call_are_not_found(pair: Pair) -> None:
    session_id, epoch, client, client_id = await _registered(pair)
    _, _, stranger, stranger_id = await _registered(pair)
    call_id = await pair.there.dispatch(session_id, epoch, client_id)
    for who, name in ((stranger, stranger_id), (client, str(uuid4())), (stranger, client_id)):
        for op, more in (("ack", {}), ("result", {"text": "t"})):
            refused = await who.error(op, session_id=session_id, client_id=name, call_id=call_id, **more)
            assert refused["code"] == "not_found"
    assert (await client.error("ack", client_id=client_id, call_id="call-none"))["code"] == "not_found"
    record = await pair.there.calls.get(session_id, call_id)
    assert record is not None
    assert record.state == "dispatched"


async def test_session_id_may_be_left_out_where_it_is_clear(pair: Pair) -> None:
    first, token = await pair.here.session()
    second, token2 = await pair.here.session()
    http = await pair.client(second, token2)
    foreign = await http.ok("register", session_id=second, name="web", lifetime=NEVER)
    client = await pair.client(second, token2, there=True)
    assert (await client.ok("tools", client_id=foreign["client_id"], tools=[]))["client_id"] == foreign["client_id"]
    await client.ok("attach", session_id=first, token=token)
    refused = await client.error("tools", client_id=foreign["client_id"], tools=[])
    assert refused["code"] == "invalid_request"
    assert "session_id" in refused["message"]
    assert "type" in await client.ok("tools", session_id=second, client_id=foreign["client_id"], tools=[])
    own = await client.ok("register", session_id=first, name="web", lifetime=NEVER)
    assert "type" in await client.ok("tools", client_id=own["client_id"], tools=[])


async def test_resume_takes_up_a_registration_with_its_open_calls(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    epoch = await pair.there.own(session_id)
    first = await pair.client(session_id, token)
    made = await first.ok("register", session_id=session_id, name="web", lifetime=TTL, tools=[TOOL])
    call_id = await pair.there.dispatch(session_id, epoch, made["client_id"])
    acked_id = await pair.there.dispatch(session_id, epoch, made["client_id"])
    await first.ok("ack", client_id=made["client_id"], call_id=acked_id)
    first.connection.transport.abort()
    second = await pair.client(session_id, token, there=True)
    head = (await second.ok("attach", session_id=session_id, token=token))["seq"]
    resumed = await second.ok(
        "resume", session_id=session_id, client_id=made["client_id"], resume_key=made["resume_key"]
    )
    assert resumed["name"] == "web"
    assert resumed["expires_at"] is None
    assert {call["call_id"] for call in resumed["calls"]} == {call_id, acked_id}
    for call in resumed["calls"]:
        assert call["type"] == "client_tool_dispatched"
        assert call["arguments"] == {"row": 3}
        assert 0 < call["remaining_ms"] <= 300_000
    for one in (call_id, acked_id):
        assert await second.ok("result", client_id=made["client_id"], call_id=one, text="t") == {}
    assert (await second.push("event"))["event"]["seq"] == head + 1, "resuming writes no event"


@pytest.mark.parametrize("wrong", ["key", "client", "empty"])
async def test_resume_needs_the_key(pair: Pair, wrong: str) -> None:
    session_id, token = await pair.here.session()
    first = await pair.client(session_id, token)
    made = await first.ok("register", session_id=session_id, name="web", lifetime=TTL)
    fields = {"client_id": made["client_id"], "resume_key": made["resume_key"]}
    fields |= {"key": {"resume_key": "trr_x"}, "client": {"client_id": str(uuid4())}, "empty": {"resume_key": ""}}[
        wrong
    ]
    second = await pair.client(session_id, token, there=True)
    assert (await second.error("resume", session_id=session_id, **fields))["code"] == "not_found"


async def test_approve(pair: Pair) -> None:
    for agent, credential, allowed in ((AGENT, "", False), (OTHER, "", True), (AGENT, API_KEY, True)):
        session_id, token = await pair.here.session(agent)
        epoch = await pair.there.own(session_id)
        client = await pair.client(session_id, credential or token)
        requested = events.approval_requested("appr-1", LogJson(b'{"summary":"s"}'), "h")
        await pair.there.append(session_id, epoch, [requested])
        keys = pair.there.store.keys.session(session_id)
        await pair.there.store.call(keys.tag, "HSET", keys.approvals, "appr-1", "open")
        await pair.there.store.call(keys.tag, "PEXPIRE", keys.approvals, 60_000)
        fields = {"session_id": session_id, "call_id": "appr-1"}
        bad = await client.error("approve", **fields, decision="perhaps")
        assert bad["code"] == "invalid_request"
        assert "perhaps" not in bad["message"]
        assert (await client.error("approve", **fields, decision="allow", message="m"))["code"] == "invalid_request"
        if not allowed:
            assert (await client.error("approve", **fields, decision="allow"))["code"] == "forbidden"
            continue
        event = await client.ok("approve", **fields, decision="deny", message="no")
        assert (event["type"], event["decision"], event["deny_message"]) == ("approval_resolved", "deny", "no")
        missing = await client.error("approve", session_id=session_id, call_id="appr-2", decision="allow")
        assert missing["code"] == "not_found"


async def test_cancel_does_not_hold_up_answers(pair: Pair) -> None:
    session_id, epoch, client, client_id = await _registered(pair)
    call_id = await pair.there.dispatch(session_id, epoch, client_id)
    run = await client.ok("input", session_id=session_id, text="go")
    assert await pair.there.start_run(session_id, epoch) is not None
    cancel = await client.send("cancel", session_id=session_id)
    assert await client.ok("result", client_id=client_id, call_id=call_id, text="t") == {}
    await pair.there.append(session_id, epoch, [events.run_cancelled(run["run_id"])], ends_run=run["run_id"])
    assert (await client.answer(cancel))["ok"] == {"run_id": run["run_id"]}


async def test_input_is_queued_in_the_order_of_its_frames(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    client = await pair.client(session_id, token)
    numbers = [await client.send("input", session_id=session_id, text=f"{n}") for n in range(10)]
    runs = [(await client.answer(number))["ok"]["run_id"] for number in numbers]
    queued = [(await client.event("run_queued"))["run_id"] for _ in runs]
    assert queued == runs


async def test_ping_and_ids_of_any_size(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    client = await pair.client(session_id, token)
    for number in (0, -5, 2**63, 10**30):
        await client.raw(json.dumps({"id": number, "op": "ping"}))
        assert (await client.answer(number))["ok"]["time"].endswith("Z")


async def test_an_unknown_op_is_an_error_answer(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    client = await pair.client(session_id, token)
    refused = await client.error("frobnicate", session_id=session_id)
    assert refused["code"] == "invalid_request"
    assert "frobnicate" not in refused["message"]
    await client.ok("ping", more="fields are ignored")


async def test_over_http_registered_over_the_socket_answered(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    epoch = await pair.there.own(session_id)
    client_id = str(uuid4())
    await pair.there.clients.register(
        session_id,
        client_id,
        name="http",
        ttl_s=60,
        lifetime=b'{"type":"never"}',
        tools=b"\x90",
        registered=events.client_registered(client_id, LogJson(b"{}"), LogJson(b"[]")),
        idempotency=NO_KEY,
    )
    client = await pair.client(session_id, token)
    call_id = await pair.there.dispatch(session_id, epoch, client_id)
    assert await client.ok("result", client_id=client_id, call_id=call_id, text="t") == {}


async def test_a_header_and_a_subprotocol_carry_a_credential_too(pair: Pair) -> None:
    import base64

    session_id, token = await pair.here.session()
    header = await pair.world.client(pair.here, additional_headers={"Authorization": f"Bearer {token}"})
    await header.ok("attach", session_id=session_id)
    key = await pair.world.client(pair.here, additional_headers={"Authorization": f"Bearer {API_KEY}"})
    await key.ok("attach", session_id=session_id)
    offered = "bearer." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    browser = await pair.world.client(pair.there, subprotocols=["toolrelay.v1", offered], origin=ORIGIN)
    assert browser.connection.subprotocol == "toolrelay.v1"
    await browser.ok("attach", session_id=session_id)
