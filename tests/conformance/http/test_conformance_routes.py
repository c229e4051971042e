"""HTTP protocol, "Routes", "Errors", "Tokens": a case for each line."""

import asyncio
import uuid
from typing import Any

import pytest

from tests.conformance.http.conftest import Front, Session
from tests.doubles.http_node import OTHER_ORIGIN, SUPPORT, SUPPORT_ORIGIN

INPUT = {"type": "input", "text": "hello"}


def is_uuid(text: object) -> bool:
    return isinstance(text, str) and str(uuid.UUID(text)) == text


# --- Routes


async def test_create_session_201_then_200_without_the_token(front: Front) -> None:
    key = str(uuid.uuid4())
    body = {"agent_id": SUPPORT.id, "display_name": None, "vault_ids": [str(uuid.uuid4())]}
    first, again = [await front.ask("POST", "/v1/sessions", body, key=key) for _ in range(2)]
    assert (first.status_code, again.status_code) == (201, 200)
    made, receipt = first.json(), again.json()
    assert made.keys() - receipt.keys() == {"session_token"}
    assert receipt.keys() - made.keys() == {"session_token_id"}
    assert all(made[name] == receipt[name] for name in made.keys() & receipt.keys())
    assert "created_by" not in made
    assert is_uuid(receipt["session_token_id"])


async def test_one_key_on_many_nodes_at_once_makes_one_session(front: Front) -> None:
    key = str(uuid.uuid4())
    asked = [front.ask("POST", "/v1/sessions", {"agent_id": SUPPORT.id}, key=key) for _ in range(12)]
    answers = await asyncio.gather(*asked)
    assert sorted(answer.status_code for answer in answers) == [200] * 11 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len({answer.content for answer in answers if answer.status_code == 200}) == 1


async def test_list_sessions(front: Front) -> None:
    made = [(await front.session()).id for _ in range(3)]
    page = (await front.ask("GET", "/v1/sessions?limit=2")).json()
    assert [item["id"] for item in page["items"]] == made[:0:-1]
    assert page["next_cursor"] == made[1]
    rest = (await front.ask("GET", f"/v1/sessions?limit=1&after={page['next_cursor']}")).json()
    assert rest["items"][0]["id"] == made[0]
    oldest = (await front.ask("GET", f"/v1/sessions?order=asc&after={made[1]}")).json()
    assert [item["id"] for item in oldest["items"]] == [made[2]]
    assert oldest["next_cursor"] is None


async def test_get_session(front: Front, session: Session) -> None:
    body = (await session.ask("GET")).json()
    assert set(body) == {
        "id", "agent_id", "agent_version_id", "workspace_id", "display_name", "status", "created_at", "created_by"
    }  # fmt: skip
    assert set(body["created_by"]) == {"type", "api_key_id", "label"}
    assert all(is_uuid(body[name]) for name in ("id", "agent_id", "agent_version_id", "workspace_id"))
    assert body["status"] == "idle"
    created = (await session.log())[0]
    assert (created["agent_id"], created["agent_version_id"]) == (body["agent_id"], body["agent_version_id"])


async def test_delete_session_204(front: Front, session: Session) -> None:
    assert (await front.ask("DELETE", session.path)).status_code == 204
    assert (await front.ask("GET", session.path)).status_code == 404
    assert (await session.ask("GET", "/events")).status_code in (401, 404)


async def test_mint_token_201_then_200(front: Front, session: Session) -> None:
    first, again = [await front.ask("POST", f"{session.path}/tokens", key="mint") for _ in range(2)]
    assert (first.status_code, set(first.json())) == (201, {"session_token", "expires_at"})
    assert (again.status_code, set(again.json())) == (200, {"id", "session_id", "expires_at"})
    assert again.json()["session_id"] == session.id
    assert (await session.ask("GET", by=first.json()["session_token"])).status_code == 200
    assert (await session.ask("GET")).status_code == 200, "tokens already issued stay"


async def test_list_events_newest_first_when_order_is_omitted(front: Front, session: Session) -> None:
    await front.owner.append(session.id, 4)
    for query, seqs, cursor in (
        ("limit=2", [5, 4], 4),
        ("limit=2&before_seq=4", [3, 2], 2),
        ("before_seq=2", [1], None),
        ("order=asc&limit=3", [1, 2, 3], 3),
        ("order=asc&after_seq=3", [4, 5], None),
        ("order=desc&after_seq=2&before_seq=5", [4, 3], None),
        ("order=asc&after_seq=5", [], None),
        ("limit=200", [5, 4, 3, 2, 1], None),
        ("limit=5", [5, 4, 3, 2, 1], None),
    ):
        body = (await session.ask("GET", f"/events?{query}")).json()
        assert ([event["seq"] for event in body["items"]], body["next_cursor"]) == (seqs, cursor), query


async def test_post_input_200(front: Front, session: Session) -> None:
    answers = await asyncio.gather(*(session.ask("POST", "/events", INPUT, key="one") for _ in range(8)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    body = answers[0].json()
    assert (body["outcome"], is_uuid(body["run_id"])) == ("new_run", True)
    assert [event["type"] for event in await session.log()].count("run_queued") == 1


async def test_cancel_200_with_null_where_nothing_runs(session: Session) -> None:
    answer = await session.ask("POST", "/cancel")
    assert (answer.status_code, answer.json()) == (200, {"run_id": None})
    run_id = (await session.ask("POST", "/events", INPUT)).json()["run_id"]
    answer = await session.ask("POST", "/cancel", key="c")
    assert answer.json() == {"run_id": run_id}
    assert (await session.ask("POST", "/cancel", key="c")).content == answer.content


async def test_a_message_beside_allow_is_400(front: Front, session: Session) -> None:
    path = f"{session.path}/approvals/a1"
    for body, status in (
        ({"decision": "allow", "message": "x"}, 400),
        ({"decision": "allow", "message": None}, 400),
        ({"decision": "deny", "message": 5}, 400),
        ({"decision": "perhaps"}, 400),
        ({}, 400),
        ({"decision": "allow"}, 404),
        ({"decision": "deny", "message": None}, 404),
        ({"decision": "deny", "message": "no"}, 404),
    ):
        assert (await front.ask("POST", path, body)).status_code == status, body


async def test_an_approval_is_answered_once(front: Front, session: Session) -> None:
    from gateway.model import events
    from gateway.model.clean import LogJson

    asked = events.approval_requested("a1", LogJson(b'{"summary":"rm"}'), "hash")
    await front.owner.write(session.id, [asked], fields=[("@a1", "open")])
    path = f"{session.path}/approvals/a1"
    first, again = [await front.ask("POST", path, {"decision": "deny", "message": "no"}, key="k") for _ in range(2)]
    assert (first.status_code, first.content) == (200, again.content)
    event = first.json()
    assert (event["type"], event["call_id"], event["decision"], event["deny_message"]) == (
        "approval_resolved", "a1", "deny", "no"
    )  # fmt: skip
    assert event in await session.log()
    assert (await front.ask("POST", path, {"decision": "allow"})).status_code == 409


async def test_register_ping_put_leave(session: Session) -> None:
    client = await session.register()
    assert set(client) == {"id", "name", "expires_at"}
    at = f"/clients/{client['id']}"
    pings = [await session.ask("POST", f"{at}/ping", key="p") for _ in range(2)]
    assert [ping.status_code for ping in pings] == [200, 200]
    assert set(pings[0].json()) == {"expires_at"}
    put = await session.ask("PUT", f"{at}/tools", {"tools": []})
    assert (put.status_code, put.json()["type"]) == (200, "client_tools_updated")
    assert put.json() in await session.log()
    assert (await session.ask("DELETE", at)).status_code == 204
    assert (await session.ask("DELETE", at)).status_code == 404
    assert (await session.ask("POST", f"{at}/ping")).status_code == 404


async def test_ack_and_result(front: Front, session: Session) -> None:
    client = await session.register()
    await front.owner.dispatch(session.id, client["id"], "call_1_0")
    at = f"/clients/{client['id']}/calls/call_1_0"
    acks = await asyncio.gather(*(session.ask("POST", f"{at}/ack", key="a") for _ in range(6)))
    assert {ack.status_code for ack in acks} == {200}
    assert len({ack.content for ack in acks}) == 1
    assert acks[0].json() in await session.log()
    results = await asyncio.gather(*(session.ask("POST", f"{at}/result", {"text": "x"}) for _ in range(6)))
    assert {result.status_code for result in results} == {204}
    log = await session.log()
    assert [event["type"] for event in log].count("tool_result") == 1
    assert (await session.ask("POST", f"{at}/result", {"text": "x", "is_error": True})).status_code == 409


async def test_agents_in_the_sdks_shape(front: Front) -> None:
    body = (await front.ask("GET", "/v1/agents")).json()
    assert {item["id"] for item in body["items"]} >= {SUPPORT.id}
    assert all(set(item) == {"id", "name", "workspace_id", "created_at"} for item in body["items"])


@pytest.mark.parametrize("path", ["/v1/vaults", "/v1/skills", "/v1/agents/x", "/v1/me", "/v1/organization"])
async def test_routes_that_are_not_ours(front: Front, path: str) -> None:
    answer = await front.ask("GET", path)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


# --- Errors


async def test_the_envelope_and_its_codes(front: Front, session: Session) -> None:
    seen: dict[int, Any] = {}
    for answer in (
        await session.ask("GET", by="wrong"),
        await session.ask("DELETE"),
        await session.ask("GET", "/nothing"),
        await session.ask("POST", "/clients", {}),
    ):
        assert set(answer.json()) == {"error"}
        assert set(answer.json()["error"]) == {"code", "message"}
        seen[answer.status_code] = answer.json()["error"]["code"]
    assert seen == {401: "unauthorized", 403: "forbidden", 404: "not_found", 400: "invalid_request"}


async def test_the_same_key_with_another_request_is_409(front: Front, session: Session) -> None:
    await session.ask("POST", "/events", INPUT, key="k")
    other = await session.ask("POST", "/events", {**INPUT, "text": "other"}, key="k")
    assert (other.status_code, other.json()["error"]["code"]) == (409, "conflict")
    await session.ask("POST", "/clients", {"name": "a", "lifetime": {"type": "never"}}, key="k")
    other = await session.ask("POST", "/clients", {"name": "b", "lifetime": {"type": "never"}}, key="k")
    assert other.status_code == 409
    key = str(uuid.uuid4())
    assert (await front.ask("POST", "/v1/sessions", {"agent_id": SUPPORT.id}, key=key)).status_code == 201
    other = await front.ask("POST", "/v1/sessions", {"agent_id": SUPPORT.id, "display_name": "y"}, key=key)
    assert other.status_code == 409


async def test_too_many_says_when(session: Session) -> None:
    answers = [await session.ask("POST", "/events", INPUT) for _ in range(33)]
    assert [answer.status_code for answer in answers] == [200] * 32 + [429]
    assert answers[-1].json()["error"]["code"] == "too_many_requests"
    assert answers[-1].headers["retry-after"].isdecimal()


# --- Tokens


async def test_a_token_reaches_its_own_session_only(front: Front, session: Session) -> None:
    other = await front.session()
    for path in ("", "/events", "/clients", "/calls"):
        assert (await other.ask("GET", path, by=session.token)).status_code == 404
        assert (await session.ask("GET", path)).status_code == 200
    for method, path in (("POST", "/v1/sessions"), ("GET", "/v1/sessions"), ("GET", "/v1/agents")):
        assert (await front.ask(method, path, by=session.token)).status_code == 403
    for method, path in (("POST", "/tokens"), ("DELETE", "")):
        assert (await session.ask(method, path)).status_code == 403


async def test_a_revoked_token_is_refused_on_every_node(front: Front, session: Session) -> None:
    token = (await front.ask("POST", f"{session.path}/tokens", key="r")).json()["session_token"]
    token_id = (await front.ask("POST", f"{session.path}/tokens", key="r")).json()["id"]
    assert [(await session.ask("GET", by=token)).status_code for _ in range(2)] == [200, 200]
    assert (await front.ask("DELETE", f"{session.path}/tokens/{token_id}")).status_code == 204
    async with asyncio.timeout(1.0):  # every node hears of it
        while {(await session.ask("GET", by=token)).status_code for _ in front.nodes} != {401}:
            await asyncio.sleep(0.01)


async def test_cors_below_a_session_only(front: Front, session: Session) -> None:
    allowed = await session.ask("GET", Origin=SUPPORT_ORIGIN)
    assert allowed.headers["access-control-allow-origin"] == SUPPORT_ORIGIN
    assert "access-control-allow-origin" not in (await session.ask("GET", Origin=OTHER_ORIGIN)).headers
    above = await front.ask("GET", "/v1/agents", Origin=SUPPORT_ORIGIN)
    assert "access-control-allow-origin" not in above.headers
    preflight = {"Origin": SUPPORT_ORIGIN, "Access-Control-Request-Method": "POST"}
    passed = await session.ask("OPTIONS", "/clients", by="nobody", **preflight)
    names = passed.headers["access-control-allow-headers"].lower().split(", ")
    assert names == [
        "authorization", "idempotency-key", "last-event-id", "subako-user-agent", "kikuvi-workspace", "content-type"
    ]  # fmt: skip
