"""How calls end when a client does not do its part, through a whole node (bridge 6, 7)."""

import asyncio
import json
from datetime import datetime, timedelta

import pytest

from tests.doubles.nodes import Node
from tests.doubles.nodes_session import Conversation, calls, conversation, tool

READ = tool("read")
CALL = calls("client__web__read")
SAY = {"text": "{{results}}"}


async def _seen(talk: Conversation, run: str) -> str:
    """The one result that the model saw; the run must complete."""
    end = await talk.end(run)
    assert end["type"] == "run_completed", end
    (result,) = json.loads(talk.said())
    return result


async def test_a_client_that_leaves_mid_call(node: Node):
    async with conversation(node) as talk:
        client = await talk.register("web", READ)
        run = await talk.say(CALL, SAY)
        (call,) = await client.dispatched()
        await client.leave()
        assert (await _seen(talk, run)).startswith("Error client_gone: ")
        (failed,) = talk.of("client_tool_failed")
        assert (failed["call_id"], failed["reason"]) == (call["call_id"], "client_gone")
        assert talk.of("client_left")[0]["reason"] == "departed"
        assert (await client.post(call, "result", {"text": "late"})).status_code == 404
        again = await talk.register("web")
        assert again.name == "web", "leaving frees the name"


async def test_a_client_that_lapses_mid_call(node: Node):
    async with conversation(node) as talk:
        client = await talk.register("web", READ, ttl=5)
        run = await talk.say(CALL, SAY)
        await client.dispatched()
        assert (await _seen(talk, run)).startswith("Error client_gone: ")
        assert talk.of("client_left")[0]["reason"] == "timed_out"
        assert (await talk.ask("POST", f"/clients/{client.id}/ping")).status_code == 404
        again = await talk.register("web")
        assert again.name == "web-2", "a lapsed name stays spent"


async def test_pings_keep_a_client(node: Node):
    async with conversation(node) as talk:
        client = await talk.register("web", READ, ttl=5)
        for _ in range(7):
            await asyncio.sleep(1)
            pinged = await talk.done("POST", f"/clients/{client.id}/ping")
            assert pinged["expires_at"]
        assert not talk.of("client_left")
        async with client.serve(lambda *_: "still here"):
            assert "still here" in await talk.run(CALL, SAY)


@pytest.mark.parametrize("acked", [False, True], ids=["never_acked", "never_answered"])
async def test_a_client_that_does_not_answer(node: Node, acked: bool):
    async with conversation(node) as talk:
        client = await talk.register("web", {**READ, "timeout_ms": 1000})
        run = await talk.say(CALL, SAY)
        (call,) = await client.dispatched()
        if acked:
            assert (await client.post(call, "ack")).json()["type"] == "client_tool_acked"
        seen = await _seen(talk, run)
        reason = "result_timeout" if acked else "ack_timeout"
        assert seen.startswith(f"Error {reason}: ")
        assert ("unknown" if acked else "not_started") in seen
        assert talk.of("client_tool_failed")[0]["reason"] == reason
        late = await client.post(call, "result", {"text": "late"})
        assert late.status_code == 409
        assert reason in late.json()["error"]["message"]


async def test_the_clocks_of_a_call(node: Node):
    """60 s for the ack; the child's clock less the margin ends it, before 300 s from the ack could."""
    async with conversation(node) as talk:
        client = await talk.register("web", READ)
        run = await talk.say(CALL, SAY)
        (call,) = await client.dispatched()
        ack_by, deadline = (datetime.fromisoformat(call[name]) for name in ("ack_by", "deadline"))
        assert 298_000 < call["remaining_ms"] <= 299_500
        began = deadline - timedelta(milliseconds=call["remaining_ms"])
        assert abs((ack_by - began).total_seconds() - 60) < 0.01
        assert (await client.post(call, "ack")).status_code == 200
        (item,) = (await talk.done("GET", "/calls"))["items"]
        assert item["call_id"] == call["call_id"]
        assert abs((datetime.fromisoformat(item["deadline"]) - deadline).total_seconds()) < 0.01
        await client.answer(call, "in time")
        assert await _seen(talk, run) == "in time"


async def test_the_same_answer_again_and_another_one(node: Node):
    async with conversation(node) as talk:
        client = await talk.register("web", READ)
        run = await talk.say(CALL, SAY)
        (call,) = await client.dispatched()
        for _ in range(2):
            await client.answer(call, "once")
        assert (await client.post(call, "result", {"text": "twice"})).status_code == 409
        assert await _seen(talk, run) == "once"
        assert len(talk.of("tool_result")) == 1


async def test_an_answer_of_somebody_else(node: Node):
    async with conversation(node) as talk, conversation(node) as other:
        client = await talk.register("web", READ)
        second = await talk.register("second", READ)
        stranger = await other.register("web", READ)
        run = await talk.say(CALL, SAY)
        (call,) = await client.dispatched()
        for wrong in (second, stranger):
            assert (await wrong.post(call, "result", {"text": "mine"})).status_code == 404
            assert (await wrong.post(call, "ack")).status_code == 404
        missing = await client.post({"call_id": "00000000-0000-4000-8000-000000000000"}, "result", {"text": "?"})
        assert missing.status_code == 404
        await client.answer(call, "right")
        assert await _seen(talk, run) == "right"


@pytest.mark.parametrize(
    "body",
    [
        {"text": "x" * 65_537},
        {"text": 7},
        {},
        {"text": "fine", "is_error": "yes"},
        {"text": "deep", "structured": "x" * 65_536},
    ],
    ids=["too_long", "no_text", "empty", "no_bool", "too_much_structure"],
)
async def test_a_refused_answer_may_be_corrected(node: Node, body: dict[str, object]):
    async with conversation(node) as talk:
        client = await talk.register("web", READ)
        run = await talk.say(CALL, SAY)
        (call,) = await client.dispatched()
        refused = await client.post(call, "result", body)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "invalid_request"
        await client.answer(call, "corrected")
        assert await _seen(talk, run) == "corrected"


async def test_a_refused_answer_that_nobody_corrects(node: Node):
    async with conversation(node) as talk:
        client = await talk.register("web", READ)
        run = await talk.say(CALL, SAY)
        (call,) = await client.dispatched()
        assert (await client.post(call, "result", {"text": "x" * 65_537})).status_code == 400
        end = await talk.end(run, within=20)
        assert end["type"] == "run_completed"
        (seen,) = json.loads(talk.said())
        assert seen.startswith("Error ")


async def test_a_tool_that_is_gone_answers_at_once(node: Node):
    async with conversation(node) as talk:
        client = await talk.register("web", READ, tool("go"))

        async def go(name: str, _: object) -> str:
            assert name == "go"
            await client.offer(tool("go"))
            return "gone there"

        async with client.serve(go):
            said = json.loads(await talk.run(calls("client__web__go"), CALL, SAY))
        assert said[0].startswith("gone there")
        assert "client__web__read" in said[0]
        assert said[1].startswith("Error tool_gone: ")


async def test_a_list_that_changes_between_runs_is_native_in_the_next(node: Node):
    async with conversation(node) as talk:
        client = await talk.register("web", READ)
        async with client.serve(lambda name, _: f"called {name}"):
            assert "called read" in await talk.run(CALL, SAY)
            await client.offer(tool("write"))
            assert "called write" in await talk.run(calls("client__web__write"), SAY)
            assert "called read" not in (await talk.run(CALL, SAY)).replace("tool_gone", "")


async def test_sixteen_calls_and_a_seventeenth(node: Node):
    async with conversation(node) as talk:
        client = await talk.register("web", READ)
        run = await talk.say(calls("client__web__read", *({} for _ in range(17)), parallel=True), SAY)
        opened = await client.dispatched(16)
        await asyncio.gather(*(client.answer(call, call["call_id"]) for call in opened))
        assert (await talk.end(run))["type"] == "run_completed"
        results = json.loads(talk.said())
        assert sorted(results[:16]) == sorted(call["call_id"] for call in opened)
        assert "client_tool_busy" in results[16]
        assert len(talk.of("client_tool_dispatched")) == 16


async def test_a_secret_in_an_answer_stays_out_of_the_log_and_the_model(node: Node):
    secret = "ghp_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAb3d"
    async with conversation(node) as talk:
        client = await talk.register("web", READ)
        async with client.serve(lambda *_: f"the token is {secret}."):
            said = await talk.run(CALL, SAY)
        assert "redacted" in said
        assert secret not in json.dumps(talk.events)
    assert secret not in node.everything()


async def test_long_results_are_whole_by_client_more(node: Node):
    text = "".join(f"line {number} of a long answer\n" for number in range(2200))
    async with conversation(node) as talk:
        client = await talk.register("web", READ)
        async with client.serve(lambda *_: text):
            first = json.loads(await talk.run(CALL, SAY))[0]
        call_id = talk.of("client_tool_dispatched")[0]["call_id"]
        parts = [first]
        while f'"part": {len(parts) + 1}' in parts[-1] or len(parts) < 2:
            more = calls("client__more", {"call_id": call_id, "part": len(parts) + 1})
            parts.append(json.loads(await talk.run(more, SAY))[0])
            if len(parts) > 4:
                break
        lines = [line for part in parts for line in part.splitlines() if line.startswith("line ")]
        assert lines[: len(text.splitlines())] == text.splitlines()
