"""HTTP protocol, every bound of a body, every field of an event, every clock: a case for each line."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.model import events
from gateway.model.clean import LogJson, LogText
from tests.conformance.http.conftest import Front, Session
from tests.doubles.http_node import KEY, SUPPORT

TOOL = {"name": "highlight_row", "description": "d", "parameters": {"type": "object"}}
NEVER = {"type": "never"}


def ttl(seconds: Any) -> dict[str, Any]:
    return {"type": "ttl", "data": {"seconds": seconds}}


def instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    assert found.tzinfo is not None, text
    return found


async def open_calls(session: Session) -> list[dict[str, Any]]:
    return (await session.ask("GET", "/calls?state=open")).json()["items"]


# --- Routes: bounds of bodies


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({}, 201),
        ({"display_name": "é" * 200}, 201),
        ({"display_name": "x" * 201}, 400),
        ({"display_name": 1}, 400),
        ({"vault_ids": [str(uuid.uuid4()) for _ in range(10)]}, 201),
        ({"vault_ids": [str(uuid.uuid4()) for _ in range(11)]}, 400),
        ({"vault_ids": ["x"]}, 400),
        ({"vault_ids": None, "display_name": None}, 201),
        ({"agent_id": str(uuid.uuid4())}, 404),
        ({"agent_id": None}, 400),
    ],
)
async def test_bodies_of_sessions(front: Front, more: dict[str, Any], status: int) -> None:
    answer = await front.ask("POST", "/v1/sessions", {"agent_id": SUPPORT.id, **more})
    assert answer.status_code == status
    if status == 201:
        body = answer.json()
        assert body["display_name"] == (more.get("display_name") or "")
        assert instant(body["created_at"]) < instant(body["session_token_expires_at"])


@pytest.mark.parametrize(("limit", "status"), [("1", 200), ("200", 200), ("0", 400), ("201", 400), ("x", 400)])
async def test_limits_of_pages(front: Front, session: Session, limit: str, status: int) -> None:
    for path in (f"{session.path}/events", "/v1/sessions", "/v1/agents", f"{session.path}/calls"):
        assert (await front.ask("GET", f"{path}?limit={limit}")).status_code == status, path


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"name": "a" * 32}, 201),
        ({"name": "a" * 33}, 400),
        ({"name": ""}, 400),
        ({"name": "Web"}, 400),
        ({"name": "web tab"}, 400),
        ({"name": "web\n"}, 400),
        ({"lifetime": NEVER}, 201),
        ({"lifetime": ttl(5)}, 201),
        ({"lifetime": ttl(3600)}, 201),
        ({"lifetime": ttl(4)}, 400),
        ({"lifetime": ttl(3601)}, 400),
        ({"lifetime": ttl(5.5)}, 400),
        ({"lifetime": {"type": "forever"}}, 400),
        ({"tools": None}, 201),
        ({"tools": [{**TOOL, "name": f"t{n}"} for n in range(64)]}, 201),
        ({"tools": [{**TOOL, "name": f"t{n}"} for n in range(65)]}, 400),
        ({"tools": [TOOL, TOOL]}, 400),
        ({"tools": [{**TOOL, "name": "A-z_9" + "x" * 59}]}, 201),
        ({"tools": [{**TOOL, "name": "x" * 65}]}, 400),
        ({"tools": [{**TOOL, "name": "a.b"}]}, 400),
        ({"tools": [{**TOOL, "description": "é" * 4096}]}, 201),
        ({"tools": [{**TOOL, "description": "x" * 4097}]}, 400),
        ({"tools": [{**TOOL, "parameters": True}]}, 400),
        ({"tools": [{**TOOL, "parameters": {"type": "nothing"}}]}, 400),
        ({"key": "k" * 65}, 400),
    ],
)
async def test_bodies_of_registrations(session: Session, change: dict[str, Any], status: int) -> None:
    body = {"name": "web", "lifetime": NEVER, "tools": [TOOL], **change}
    answer = await session.ask("POST", "/clients", body)
    assert answer.status_code == status, answer.text
    listed = (await session.ask("GET", "/clients")).json()["items"]
    assert len(listed) == (status == 201), "a refused registration leaves nothing"
    if status == 201:
        lapses = answer.json()["expires_at"]
        assert (lapses is None) == (body["lifetime"] == NEVER)
        assert lapses is None or instant(lapses)
        again = (await session.ask("POST", f"/clients/{answer.json()['id']}/ping")).json()
        assert set(again) == {"expires_at"}
        assert (again["expires_at"] is None) == (body["lifetime"] == NEVER)


async def test_at_most_32_live_clients(session: Session) -> None:
    clients = [await session.register() for _ in range(32)]
    refused = await session.ask("POST", "/clients", {"name": "web", "lifetime": NEVER})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    await session.ask("DELETE", f"/clients/{clients[0]['id']}")
    assert (await session.register())["name"] == "web"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"text": "é" * 65_536}, 204),
        ({"text": "x" * 65_537}, 400),
        ({"text": ""}, 204),
        ({"text": "x", "is_error": None}, 204),
        ({"text": "x", "is_error": True}, 204),
        ({"text": "x", "is_error": "yes"}, 400),
        ({}, 400),
        ({"text": None}, 400),
    ],
)
async def test_bodies_of_results(front: Front, session: Session, body: dict[str, Any], status: int) -> None:
    client = await session.register()
    await front.owner.dispatch(session.id, client["id"], "c1")
    answer = await session.ask("POST", f"/clients/{client['id']}/calls/c1/result", body)
    assert answer.status_code == status, answer.text
    assert len(await open_calls(session)) == (status == 400), "a refused answer does not use the call up"


@pytest.mark.parametrize(
    ("text", "status"), [("é" * 8_192, 200), ("é" * 8_192 + "x", 400), ("", 400), (" \n\t", 400), (None, 400)]
)
async def test_bodies_of_inputs(session: Session, text: Any, status: int) -> None:
    assert (await session.ask("POST", "/events", {"type": "input", "text": text})).status_code == status
    assert len(await session.log()) == (2 if status == 200 else 1)


# --- Events


async def test_events_of_runs_messages_and_approvals_have_their_fields(front: Front, session: Session) -> None:
    for _ in range(2):
        await session.ask("POST", "/events", {"type": "input", "text": "x"})
    run_id = await front.owner.begin_run(session.id)
    await front.owner.write(
        session.id,
        [
            events.message_user(LogText("x")),
            events.message_assistant_call("c0", "t", LogJson(b'{"a":1}')),
            events.tool_result("c0", LogText("done"), is_error=True),
            events.error(LogText("odd")),
            events.custom("activity", LogJson(b"{}")),
            events.approval_requested("a1", LogJson(b'{"summary":"rm"}'), "hash"),
        ],
        fields=[("@a1", "open")],
    )
    await front.ask("POST", f"{session.path}/approvals/a1", {"decision": "deny", "message": "no"})
    await front.owner.end_run(session.id, run_id)
    assert (await session.ask("POST", "/cancel")).status_code == 200  # the one that waits
    found: dict[str, dict[str, Any]] = {event["type"]: event for event in await session.log()}
    for kind, fields in (
        ("run_queued", {"run_id"}),
        ("run_started", {"run_id"}),
        ("run_completed", {"run_id"}),
        ("run_cancelled", {"run_id"}),
        ("message_user", {"message", "source"}),
        ("error", {"message"}),
        ("custom", {"kind", "payload"}),
        ("approval_requested", {"call_id", "server", "tool", "arguments", "args_hash"}),
        ("approval_resolved", {"call_id", "decision", "deny_message", "resolved_by"}),
    ):
        assert found[kind].keys() - {"seq", "type"} == fields, kind
    assert found["message_user"]["source"] in ("client", "steer", "external")
    user, assistant = found["message_user"]["message"], found["message_assistant"]["message"]
    assert (user["role"], user["content"]) == ("user", [{"type": "text", "data": {"text": "x"}}])
    assert (assistant["role"], assistant["content"][0]) == (
        "assistant", {"type": "tool_call", "data": {"id": "c0", "name": "t", "arguments": {"a": 1}}}
    )  # fmt: skip
    result = next(event for event in await session.log() if event["type"] == "tool_result")
    assert (result["content"], result["is_error"]) == ([{"type": "text", "data": {"text": "done"}}], True)


# --- Registrations: clocks


async def test_the_clocks_of_a_call(front: Front, session: Session) -> None:
    client = await session.register()
    before = datetime.now(UTC)
    await front.owner.dispatch(session.id, client["id"], "c1", budget_ms=400_000)
    async with asyncio.timeout(5):
        while not (due := await open_calls(session)):
            await asyncio.sleep(0.02)
    ack_in = instant(due[0]["due"]) - before
    assert timedelta(seconds=59) < ack_in < timedelta(seconds=70), "an ack within 60 s of the dispatch"
    dispatched = next(event for event in await session.log() if event["type"] == "client_tool_dispatched")
    assert instant(dispatched["ack_by"]) == instant(due[0]["due"])
    assert instant(dispatched["deadline"]) > instant(dispatched["ack_by"]) + timedelta(seconds=300)
    before = datetime.now(UTC)
    await session.ask("POST", f"/clients/{client['id']}/calls/c1/ack")
    result_in = instant((await open_calls(session))[0]["due"]) - before
    assert timedelta(seconds=299) < result_in < timedelta(seconds=310), "a result within 300 s of the ack"


# --- How the SDK behaves


async def test_a_refused_put_does_not_stop_the_answer(front: Front, session: Session) -> None:
    client = await session.register()
    at = f"/clients/{client['id']}"
    await front.owner.dispatch(session.id, client["id"], "c1")
    assert (await session.ask("POST", f"{at}/calls/c1/ack")).status_code == 200
    refused = await session.ask("PUT", f"{at}/tools", {"tools": [{**TOOL, "name": "not a name"}]})
    assert refused.status_code == 400
    assert "tools[0].name" in refused.json()["error"]["message"]
    assert (await session.ask("PUT", f"{at}/tools", {"tools": []})).status_code == 200
    assert (await session.ask("POST", f"{at}/calls/c1/result", {"text": "done"})).status_code == 204
    kinds = [event["type"] for event in await session.log()]
    assert kinds.count("client_tools_updated") == 1
    assert "client_tool_failed" not in kinds


async def test_requests_without_a_body_need_no_content_type(front: Front, session: Session) -> None:
    client = await session.register()
    await front.owner.dispatch(session.id, client["id"], "c1")
    for path, by in (
        ("/cancel", session.token),
        ("/tokens", KEY),
        (f"/clients/{client['id']}/ping", session.token),
        (f"/clients/{client['id']}/calls/c1/ack", session.token),
    ):
        answer = await session.ask("POST", path, by=by)
        assert "content-type" not in answer.request.headers
        assert answer.status_code in (200, 201), path
