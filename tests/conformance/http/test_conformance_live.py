"""HTTP protocol, "The stream", "Events", "Registrations", "How the SDK behaves": a case for each line."""

import asyncio
import json
from typing import Any

import pytest

from gateway.model import events
from gateway.model.clean import LogJson, LogText
from tests.conformance.http.conftest import Front, Session
from tests.doubles.http_node import KEY

# --- The stream


async def test_the_cursor_comes_first_with_the_headers(session: Session) -> None:
    async with session.stream() as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        frame = await stream.frame()
        assert (frame.id, frame.data) == ("1", None)


async def test_what_happens_after_the_headers_is_on_the_stream(front: Front, session: Session) -> None:
    async with session.stream() as stream:
        client = await session.register()
        await front.owner.dispatch(session.id, client["id"], "call-1")
        seen = [await stream.event() for _ in range(3)]
        assert [event["type"] for event in seen] == ["client_registered", "tool_call", "client_tool_dispatched"]
        assert [event["seq"] for event in seen] == [2, 3, 4]


async def test_the_header_wins_over_the_query(front: Front, session: Session) -> None:
    await front.owner.append(session.id, 4)
    path = f"{session.path}/events/stream?after_seq=0"
    from tests.doubles.sse_reader import open_stream

    async with open_stream(front.port, path, session.token, Last_Event_ID="3") as stream:
        cursor = await stream.frame()
        assert cursor is not None
        assert cursor.id == "3"
        assert (await stream.event())["seq"] == 4
    async with open_stream(front.port, path, session.token) as stream:
        assert [(await stream.event())["seq"] for _ in range(5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("bad", ["6", "-1", "one", "1.5"])
async def test_positions_that_are_400(front: Front, session: Session, bad: str) -> None:
    await front.owner.append(session.id, 4)
    async with session.stream(Last_Event_ID=bad) as stream:
        assert stream.status == 400
        assert json.loads(await stream.body())["error"]["code"] == "invalid_request"


async def test_a_thousand_events_over_a_hundred_reconnects(front: Front, session: Session) -> None:
    total, seen, streams = 1_000, [1], 0

    async def write() -> None:
        for batch in range(total // 10):
            await front.owner.append(session.id, 10, batch * 10)

    writing = front.owner.tasks.spawn("test.write", write())
    async with asyncio.timeout(60):
        while seen[-1] < total + 1:
            async with session.stream(Last_Event_ID=str(seen[-1])) as stream:
                streams += 1
                cursor = await stream.frame()
                assert cursor.id == str(seen[-1])
                seen += [(await stream.event())["seq"] for _ in range(min(9, total + 1 - seen[-1]))]
    await writing
    assert seen == list(range(1, total + 2))
    assert streams >= 100


async def test_data_frames_are_whole_events_on_one_line(front: Front, session: Session) -> None:
    text = "".join(chr(code) for code in range(1, 160)) + "\u2028\u2029"
    await front.owner.write(session.id, [events.custom("odd", LogJson(json.dumps({"text": text}).encode()))])
    async with session.stream(Last_Event_ID="1") as stream:
        event = await stream.event()
        assert event["payload"]["text"] == text
        assert event == (await session.log())[1]


async def test_every_reader_on_every_node_sees_the_same_bytes(front: Front, session: Session) -> None:
    async with session.stream() as one, session.stream() as two:
        await front.owner.append(session.id, 20)
        seen = [[await stream.event() for _ in range(20)] for stream in (one, two)]
        assert seen[0] == seen[1] == (await session.log())[1:]


# --- Events


async def test_numbers_rise_by_one_whoever_writes(front: Front, session: Session) -> None:
    async def register(number: int) -> None:
        await session.register(f"client-{number}")

    await asyncio.gather(*(register(n) for n in range(12)), front.owner.append(session.id, 12))
    assert [event["seq"] for event in await session.log()] == list(range(1, 26))


async def test_events_have_their_fields(front: Front, session: Session) -> None:
    client = await session.register()
    await front.owner.dispatch(session.id, client["id"], "c1", arguments=b'{"row":1}')
    await front.owner.dispatch(session.id, client["id"], "c2", budget_ms=30)
    await asyncio.sleep(0.05)
    at = f"/clients/{client['id']}/calls"
    await session.ask("POST", f"{at}/c1/ack")
    await session.ask("POST", f"{at}/c1/result", {"text": "done"})
    assert (await session.ask("POST", f"{at}/c2/ack")).status_code == 409
    await session.ask("DELETE", f"/clients/{client['id']}")
    message = events.message_assistant(LogText("hi"))
    await front.owner.write(session.id, [message, events.run_failed("r", LogText("broken: why"))])
    found: dict[str, set[str]] = {}
    for event in await session.log():
        found.setdefault(event["type"], set(event) - {"seq", "type"})
    assert found["session_created"] == {"agent_id", "agent_version_id"}
    assert found["client_registered"] == {"client_id", "name", "lifetime", "tools"}
    assert found["tool_call"] == {"call_id", "name", "arguments"}
    assert found["client_tool_dispatched"] == {
        "client_id", "call_id", "tool", "arguments", "attempt", "deadline", "ack_by", "remaining_ms"
    }  # fmt: skip
    assert found["client_tool_acked"] == {"client_id", "call_id"}
    assert found["client_tool_failed"] >= {"client_id", "call_id", "reason"}
    assert found["tool_result"] == {"call_id", "content", "is_error"}
    assert found["client_left"] == {"client_id", "reason"}
    assert found["message_assistant"] == {"message"}
    assert found["run_failed"] == {"run_id", "error"}


# --- Registrations


async def test_names_get_counters_and_delete_frees_them(front: Front, session: Session) -> None:
    first, second = await session.register(), await session.register()
    assert (first["name"], second["name"]) == ("web", "web-2")
    await session.ask("DELETE", f"/clients/{first['id']}")
    assert (await session.register())["name"] == "web"
    assert (await session.register())["name"] == "web-3"
    long = "x" * 32
    assert [(await session.register(long))["name"] for _ in range(2)] == [long, "x" * 30 + "-2"]


async def test_a_lapsed_name_stays_spent_and_its_ping_is_404(front: Front, session: Session) -> None:
    client = await session.register(lifetime={"type": "ttl", "data": {"seconds": 5}})
    keys = front.owner.store.keys.session(session.id)
    await front.owner.store.call(keys.tag, "HSET", keys.client(client["id"]), "expires", 1)
    await front.owner.store.call(keys.tag, "ZADD", keys.due, 1, f"r{session.id}:{client['id']}")
    async with session.stream(Last_Event_ID="2") as stream:
        left = await stream.until("client_left", 6)
        assert left["reason"] == "timed_out"
    assert (await session.ask("POST", f"/clients/{client['id']}/ping")).status_code == 404
    assert (await session.register())["name"] == "web-2"


async def test_put_replaces_the_whole_list(session: Session) -> None:
    client = await session.register()
    tool = {"name": "other", "description": "", "parameters": {"$defs": {"A": {"type": "string"}}, "type": "object"}}
    await session.ask("PUT", f"/clients/{client['id']}/tools", {"tools": [tool]})
    shown = (await session.ask("GET", "/clients")).json()["items"][0]["tools"]
    assert shown == [tool]


async def test_what_pydantic_prints_is_taken(session: Session) -> None:
    parameters: dict[str, Any] = {
        "$defs": {
            "Row": {
                "properties": {"id": {"format": "uuid", "title": "Id", "type": "string"}},
                "required": ["id"],
                "title": "Row",
                "type": "object",
            }
        },
        "properties": {
            "row": {"$ref": "#/$defs/Row"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Note"},
        },
        "required": ["row"],
        "title": "Arguments",
        "type": "object",
    }
    tool = {"name": "t", "description": "d", "parameters": parameters}
    await session.register(tools=[tool])
    assert (await session.ask("GET", "/clients")).json()["items"][0]["tools"] == [tool]


async def test_calls_belong_to_the_registration_never_to_its_name(front: Front, session: Session) -> None:
    first = await session.register()
    await front.owner.dispatch(session.id, first["id"], "call-1")
    await session.ask("DELETE", f"/clients/{first['id']}")
    second = await session.register()
    assert second["name"] == first["name"]
    answer = await session.ask("POST", f"/clients/{second['id']}/calls/call-1/result", {"text": "x"})
    assert answer.status_code == 404


async def test_a_key_takes_the_place_of_an_older_registration(front: Front, session: Session) -> None:
    first = await session.register(key="tab-1")
    second = await session.register(key="tab-1")
    assert (first["name"], second["name"]) == ("web", "web")
    listed = (await session.ask("GET", "/clients")).json()["items"]
    assert [(client["id"], client["key"]) for client in listed] == [(second["id"], "tab-1")]


# --- How the SDK behaves


@pytest.mark.parametrize("times", [200, pytest.param(10_000, marks=pytest.mark.nightly)])
async def test_a_settled_answer_repeated_often_has_no_effect(front: Front, session: Session, times: int) -> None:
    client = await session.register(lifetime={"type": "never"})
    await front.owner.dispatch(session.id, client["id"], "call-1")
    path = f"{session.path}/clients/{client['id']}/calls/call-1/result"
    body = {"text": "x"}
    assert (await front.ask("POST", path, body)).status_code == 204
    before = await session.log()
    async with front.nodes[-1].client(KEY) as again:
        for _ in range(times):
            answer = await again.post(path, json=body)
            if answer.status_code == 429:
                await asyncio.sleep(float(answer.headers["retry-after"]))
            else:
                assert answer.status_code == 204
    assert await session.log() == before
    assert len(front.owner.tasks) < 20
