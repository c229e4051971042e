"""Runs of a session: their order, their ends, what of them is logged (bridge 8; stdio protocol, Run events)."""

import asyncio
import json
import time

import pytest

from adapters.stdio.frames import ERROR_CODES
from gateway.bus.sessions import NO_KEY
from gateway.model.errors import Code, Refusal
from tests.doubles.agent_world import SAY, Talk, World, answering, call, tool


async def test_inputs_run_in_their_order_and_one_at_a_time(world: World):
    talk = await world.talk()
    runs = [await talk.say({"sleep_s": 0.1}, {"text": str(number)}) for number in range(4)]
    await talk.end(runs[-1])
    told = [(event["type"], event["run_id"]) for event in talk.of("run_started", "run_completed")]
    assert told == [(kind, run) for run in runs for kind in ("run_started", "run_completed")]


async def test_a_cancel_ends_the_active_run_then_the_oldest_that_waits(world: World):
    talk = await world.talk()
    active, waiting, last = [await talk.say({"sleep_s": 30}, {"text": "x"}) for _ in range(3)]
    await talk.event("run_started", run_id=active)
    began = time.monotonic()
    assert await talk.cancel() == active
    assert time.monotonic() - began < 15
    assert (await talk.end(active))["type"] == "run_cancelled"
    await talk.event("run_started", run_id=waiting)
    assert await talk.cancel() == waiting
    assert await talk.cancel() == last
    assert (await talk.end(last))["type"] == "run_cancelled"
    assert await talk.cancel() is None


@pytest.mark.parametrize("character", ["x", "é", "\u2028", "😀"])
async def test_a_prompt_at_the_bound_goes_and_one_byte_more_is_refused(world: World, character: str):
    talk = await world.talk()
    size = len(character.encode())
    text = "echo " + character * ((16_384 - 5) // size)
    text += "y" * (16_384 - len(text.encode()))
    ended = await talk.end(await talk.say(text))
    assert ended["type"] == "run_completed"
    before = len(talk.events)
    for refused in (text + "y", "  \n "):
        with pytest.raises(Refusal) as info:
            await world.gateway.conversations.submit(talk.id, refused, NO_KEY)
        assert info.value.code is Code.INVALID_REQUEST
    assert len(talk.events) == before


@pytest.mark.parametrize("persistence", ["durable", "degraded", "not_started"])
async def test_a_failed_run_says_its_code_and_what_is_durable(world: World, persistence: str):
    talk = await world.talk()
    run_id = await talk.say({"fail": {"code": "persistence_failed", "persistence": persistence}})
    assert (await talk.end(run_id))["error"] == "persistence_failed: the agent's run failed"
    shown = [event["payload"] for event in talk.of("custom", kind="persistence")]
    assert shown == ([] if persistence == "durable" else [{"run_id": run_id, "persistence": persistence}])
    assert len(talk.of("message_user")) == 1


async def test_every_error_code_of_a_run_reaches_the_log(world: World):
    talk = await world.talk()
    runs: dict[str, str] = {}
    for codes in (sorted(ERROR_CODES)[at : at + 16] for at in range(0, len(ERROR_CODES), 16)):
        for code in codes:
            runs[code] = await talk.say({"fail": {"code": code}})
        await talk.end(runs[codes[-1]])
    for code, run_id in runs.items():
        (failed,) = talk.of("run_failed", run_id=run_id)
        assert failed["error"].startswith(f"{code}: ")


async def test_an_unknown_code_of_a_run_fails_closed(world: World):
    talk = await world.talk()
    before = await talk.run("echo first")
    assert before == "first"
    pid = talk.child.pid
    ended = await talk.end(await talk.say({"fail": {"code": "bad_weather"}}))
    assert ended["error"] == "unknown_error_code: the agent broke its protocol"
    assert await talk.run("echo next") == "next"
    assert talk.child.pid != pid


async def test_messages_of_several_parts_and_segments_are_logged_whole_and_in_order(world: World):
    talk = await world.talk()
    await talk.register()
    long = "0123456789" * 2_000
    async with answering(talk, lambda _: "r"):
        await talk.run({**call(), "text": "0123456789", "repeat": 2_000}, {**call(), "text": "second"}, SAY)
    kinds = [event["type"] for event in talk.of("message_assistant", "tool_call", "tool_result")]
    assert kinds == ["message_assistant", "message_assistant", "tool_call", "tool_result"] * 2 + ["message_assistant"]
    texts = [
        block["data"]["text"]
        for event in talk.of("message_assistant")
        for block in event["message"]["content"]
        if block["type"] == "text"
    ]
    assert texts == [long, "second", 'It said: ["r", "r"]']


async def test_deltas_with_a_hole_leave_a_number_out(world: World):
    talk = await world.talk()

    def delta(part: int, text: str) -> dict[str, object]:
        data = {"message_id": "m", "part": part, "text": text}
        return {"raw_event": {"event": "message.delta", "data": data}, "sleep_s": 0.05}

    await talk.run(*[delta(part, f"piece {part}.\n\n") for part in (0, 1, 3, 4)], {"text": "end"})
    async with asyncio.timeout(10):
        while not any(delta["text"] == "end" for delta in talk.deltas):
            await talk._pull()
    parts = [delta["part"] for delta in talk.deltas if delta["message_id"] == "m"]
    assert parts == sorted(parts)
    assert len(parts) < parts[-1] + 1, "the hole can be seen"
    text = "".join(delta["text"] for delta in talk.deltas if delta["message_id"] == "m")
    assert [number in text for number in "0134"] == [True, True, False, True], "it goes on behind a blank line"


async def test_a_cancelled_run_keeps_what_it_said(world: World):
    talk = await world.talk()
    run_id = await talk.say({"text": "word " * 200, "chunk": 10, "chunk_s": 0.05})
    await talk.event("message_user")
    await asyncio.wait_for(_delta(talk), 10)
    await talk.cancel()
    assert (await talk.end(run_id))["type"] == "run_cancelled"
    assert talk.said().startswith("word word")
    assert len(talk.of("message_assistant")) == 1


async def _delta(talk: Talk) -> None:
    while not talk.deltas:
        await talk._pull()


async def test_activities_and_diagnostics_are_logged_redacted(world: World):
    talk = await world.talk()
    secret = "ghp_" + "a1B2" * 9
    await talk.run(
        {"activity": {"name": f"bash export TOKEN={secret}"}},
        {"activity": {"name": "context", "kind": "compaction"}},
        {"diagnostic": {"code": "execution_notice", "summary": f"retried with {secret}"}},
        {"text": "done"},
    )
    shown = [event["payload"] for event in talk.of("custom", kind="activity")]
    assert [(one["kind"], one["state"]) for one in shown] == [
        ("tool", "started"),
        ("tool", "completed"),
        ("compaction", "started"),
        ("compaction", "completed"),
    ]
    assert talk.of("custom", kind="diagnostic")[0]["payload"]["code"] == "execution_notice"
    assert secret not in json.dumps(talk.events)


async def test_cards_are_logged_once_when_they_begin_and_once_when_they_end_and_never_for_client_tools(world: World):
    talk = await world.talk()
    await talk.register()
    async with answering(talk, lambda _: "x"):
        await talk.run({"activity": {"name": "bash ls"}}, call(), {"text": "done"})
    cards = [event["payload"]["card"] for event in talk.of("custom", kind="card")]
    assert [(card["title"], card["state"], card["outcome"]) for card in cards] == [
        ("bash ls", "running", None),
        ("bash ls", "finished", "success"),
    ]


# Approvals.

ASK = {"approval": {"summary": "run rm -r?"}}


async def approve(talk: Talk, decision: str) -> None:
    asked = await talk.event("approval_requested")
    await talk.world.gateway.conversations.approve(talk.id, asked["call_id"], decision, None, "backend", NO_KEY)  # pyright: ignore[reportArgumentType]


async def test_an_approval_that_is_allowed_lets_the_run_go_on(world: World):
    talk = await world.talk()
    run_id = await talk.say(ASK, {"text": "allowed"})
    await approve(talk, "allow")
    assert (await talk.end(run_id))["type"] == "run_completed"
    (asked,) = talk.of("approval_requested")
    assert (asked["server"], asked["tool"], asked["arguments"]) == ("agent", "approval", {"summary": "run rm -r?"})
    (resolved,) = talk.of("approval_resolved")
    assert resolved["decision"] == "allow"
    assert talk.of("tool_result", call_id=asked["call_id"])[0]["is_error"] is False


async def test_a_denied_approval_fails_the_run_and_a_second_answer_is_a_conflict(world: World):
    talk = await world.talk()
    run_id = await talk.say(ASK, {"text": "never"})
    await approve(talk, "deny")
    with pytest.raises(Refusal) as info:
        await approve(talk, "allow")
    assert info.value.code is Code.CONFLICT
    assert (await talk.end(run_id))["error"].startswith("execution_failed: ")
    assert len(talk.of("approval_resolved")) == 1


async def test_an_approval_that_nobody_answers_is_denied_in_time(world: World):
    talk = await world.talk()
    run_id = await talk.say({"approval": {"summary": "now?", "expires_in_ms": 300}}, {"text": "never"})
    assert (await talk.end(run_id))["error"].startswith("execution_failed: ")
    (resolved,) = talk.of("approval_resolved")
    assert resolved["decision"] == "deny"


async def test_the_end_of_a_run_resolves_its_approval_as_denied(world: World):
    talk = await world.talk()
    run_id = await talk.say(ASK, {"text": "never"})
    await talk.event("approval_requested")
    await talk.cancel()
    assert (await talk.end(run_id))["type"] == "run_cancelled"
    assert talk.of("approval_resolved")[0]["decision"] == "deny"


# Delegated calls.


async def test_sixteen_calls_of_subagents_are_each_answered_to_the_right_one(world: World):
    talk = await world.talk()
    await talk.register(tool("x", {"type": "object", "properties": {"n": {"type": "integer"}}}))

    def leaf(number: int) -> dict[str, object]:
        script = {"steps": [call(arguments={"n": number}), {"text": "{{results}}"}]}
        return {"intent": f"leaf {number}", "context": json.dumps(script)}

    def branch(number: int) -> dict[str, object]:
        tasks = [leaf(4 * number + n) for n in range(4)]
        step = {"calls": [{"name": "subagents", "arguments": {"intent": "b", "tasks": tasks}}]}
        return {"intent": f"branch {number}", "context": json.dumps({"steps": [step, {"text": "{{results}}"}]})}

    tasks = [branch(number) for number in range(4)]
    run_id = await talk.say({"calls": [{"name": "subagents", "arguments": {"intent": "a", "tasks": tasks}}]}, SAY)
    found = await talk.dispatched(16)
    assert await talk.open_calls() == 16
    for dispatched in sorted(found, key=lambda event: -event["arguments"]["n"]):
        await talk.answer(dispatched, f"answer-{dispatched['arguments']['n']}-")
    assert (await talk.end(run_id))["type"] == "run_completed"
    said = talk.said()
    positions = [said.index(f"answer-{n}-") for n in range(16)]
    assert positions == sorted(positions), "each answer stands in its own task's output"
