"""A whole node with the demo agent: runs, their order, their ends (bridge 8, 9)."""

import asyncio

import pytest

from tests.doubles.nodes import Node, alive, wait_until
from tests.doubles.nodes_session import calls, conversation, tool

ROW = tool("highlight_row", {"type": "object", "properties": {"row_id": {"type": "string"}}, "required": ["row_id"]})
HIGHLIGHT = calls("client__web__highlight_row", {"row_id": "3"})
SAY = {"text": "It said: {{results}}"}


async def test_a_call_goes_round(node: Node):
    async with conversation(node) as talk:
        client = await talk.register("web", ROW)
        async with client.serve(lambda name, given: f"{name} {given['row_id']}"):
            assert "highlight_row 3" in await talk.run(HIGHLIGHT, SAY)
        types = [event["type"] for event in talk.events]
        assert types == [
            "session_created",
            "client_registered",
            "run_queued",
            "run_started",
            "message_user",
            "message_assistant",
            "tool_call",
            "client_tool_dispatched",
            "tool_result",
            "message_assistant",
            "run_completed",
        ]
        (dispatched,) = talk.of("client_tool_dispatched")
        (result,) = talk.of("tool_result")
        assert result["call_id"] == dispatched["call_id"] == talk.of("tool_call")[0]["call_id"]
        assert not result["is_error"]


async def test_two_inputs_run_in_their_order(node: Node):
    async with conversation(node) as talk:
        first = await talk.say({"sleep_s": 0.3}, {"text": "one"})
        second = await talk.say({"text": "two"})
        end = await talk.end(second)
        ends = [event["run_id"] for event in talk.of("run_completed")]
        assert ends == [first, second]
        assert talk.of("run_started", run_id=second)[0]["seq"] > talk.of("run_completed", run_id=first)[0]["seq"]
        assert talk.said(end["seq"]) == "two"


async def test_the_33rd_waiting_input_is_refused(node: Node):
    async with conversation(node) as talk:
        active = await talk.say({"sleep_s": 60}, {"text": "slow"})
        await talk.event("run_started", run_id=active)
        for _ in range(32):
            await talk.say({"text": "waits"})
        refused = await talk.ask("POST", "/events", {"type": "input", "text": "one more"})
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "too_many_requests"
        assert int(refused.headers["Retry-After"]) >= 1
        assert (await talk.logged()).count("run_queued") == 33
        await talk.done("POST", "/cancel")
        assert (await talk.end(active))["type"] == "run_cancelled"
        await talk.say({"text": "there is room again"})


async def test_a_cancel_ends_the_active_run_and_leaves_the_queue(node: Node):
    async with conversation(node) as talk:
        client = await talk.register("web", ROW)
        active = await talk.say(HIGHLIGHT, SAY)
        (call,) = await client.dispatched()
        waiting = await talk.say({"text": "next"})
        assert (await talk.done("POST", "/cancel"))["run_id"] == active
        assert (await talk.end(active))["type"] == "run_cancelled"
        assert talk.of("client_tool_failed")[0]["reason"] == "run_gone"
        late = await client.post(call, "result", {"text": "too late"})
        assert late.status_code == 409
        assert "run_gone" in late.json()["error"]["message"]
        assert (await talk.end(waiting))["type"] == "run_completed"


async def test_a_cancel_without_an_active_run(node: Node):
    async with conversation(node) as talk:
        assert (await talk.done("POST", "/cancel"))["run_id"] is None
        await talk.run({"text": "done"})
        assert (await talk.done("POST", "/cancel"))["run_id"] is None


@pytest.mark.parametrize(("agent", "code"), [("broken", "configuration_invalid"), ("dying", "child_exited")])
async def test_a_child_that_will_not_start_fails_its_run_alone(node: Node, agent: str, code: str):
    async with conversation(node, agent) as talk:
        end = await talk.end(await talk.say("hello"))
        assert end["type"] == "run_failed"
        assert end["error"].startswith(f"{code}: ")
        assert "stderr: eee" in end["error"]
        assert [event["type"] for event in talk.events][-2:] == ["message_user", "run_failed"]
    async with conversation(node) as talk:
        assert await talk.run("echo hello") == "hello"


async def test_a_child_that_dies_in_a_run_fails_it_and_the_next_input_starts_another(node: Node):
    async with conversation(node) as talk:
        client = await talk.register("web", ROW)
        run_id = await talk.say(
            calls("client__web__highlight_row", {"row_id": "3"}, abandon=True), {"sleep_s": 0.2, "die": {"exit": 3}}
        )
        end = await talk.end(run_id)
        assert end["type"] == "run_failed"
        assert end["error"].startswith("child_exited: ")
        (call,) = await client.dispatched()
        assert (await talk.event("client_tool_failed", call_id=call["call_id"]))["reason"] == "run_gone"
        assert await talk.run("echo again") == "again"


async def test_an_idle_child_is_stopped_and_its_session_goes_on(node: Node):
    async with conversation(node, "drowsy") as talk:
        assert await talk.run("echo one") == "one"
        (before,) = [pid for pid in node.children() if talk.id in _cwd(pid)]
        await asyncio.to_thread(wait_until, lambda: not alive(before), 15, "the idle child's end")
        pid_step = {"report": ["pid"]}
        assert str(before) not in await talk.run(pid_step, SAY)
        assert not talk.of("error", "run_failed")


def _cwd(pid: int) -> str:
    import os

    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""
