"""A session whose child floods, stalls, dies, dribbles, repeats itself or leaves others behind (faults 14, 15, 18;
known failures C, F). The fixture asserts that nothing is left of any of them."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from adapters.stdio.frames import ToolCall
from adapters.stdio.run_calls import RunCalls
from gateway.model.events import EventPayload
from tests.doubles.agent_world import (
    SAY,
    World,
    agent_world,
    answering,
    call,
    demo_agent,
    eventually,
    settling_world,
)
from tests.doubles.python_child import state_of


async def test_a_flood_of_deltas_is_read_and_its_message_logged(redis_url: str, tmp_path: Path):
    # How soon a machine with more work than cores gives each process its turn is not what is asked here.
    agent = demo_agent(tmp_path, "flood", {"output_s": 60})
    async with settling_world(redis_url, [demo_agent(tmp_path), agent]) as world:
        talk, other = await world.talk("flood"), await world.talk()
        await talk.run("echo here")
        run_id = await talk.say({"flood": {"deltas": 100_000, "text": "x"}}, {"text": "after the flood"})
        assert await other.run("echo beside it") == "beside it"
        assert talk.runner._run is not None, "a neighbour waits for no flood"
        ended = await talk.end(run_id, within=240)
        assert ended["type"] == "run_completed", ended
        assert talk.said() == "after the flood"
        assert sum(len(delta["text"]) for delta in talk.deltas) <= 100_000 + len("here\n\nafter the flood")


async def test_a_child_that_does_not_write_is_not_ended_by_us_and_goes_on(world: World):
    talk = await world.talk()
    assert await talk.run({"stall": {"output": 3.0}}, {"text": "late"}) == "late"


async def test_a_child_that_stops_reading_fails_its_run_and_its_calls(world: World):
    talk, other = await world.talk(), await world.talk()
    await talk.register()
    await other.register()
    run_id = await talk.say({**call(), "calls": call()["calls"] * 8, "parallel": True, "stall": {"input": 60}}, SAY)
    for dispatched in await talk.dispatched(8):
        await talk.answer(dispatched, "y" * 32_000)
    ended = await talk.end(run_id)
    assert ended["type"] == "run_failed"
    assert ended["error"].startswith("child_stalled: ")
    async with answering(other, lambda _: "fine"):
        assert await other.run(call(), SAY) == 'It said: ["fine"]'
    assert await talk.run("echo again") == "again"


FRAMES_OF_A_LIFE = 14
"""initialize, create, admitted, persisted, activity, call, accepted, activity, deltas, reconciles, finished."""


@pytest.mark.parametrize("frames", range(FRAMES_OF_A_LIFE + 1))
async def test_a_child_that_dies_at_any_frame_ends_its_run_once(redis_url: str, tmp_path: Path, frames: int):
    agent = demo_agent(tmp_path, "mortal", {"die_after_frames": frames, "exit_code": 3})
    async with settling_world(redis_url, [demo_agent(tmp_path), agent]) as world:
        talk = await world.talk("mortal")
        await talk.register()
        async with answering(talk, lambda _: "answer"):
            run_id = await talk.say(call(), SAY)
            ended = await talk.end(run_id)
        if ended["type"] == "run_completed":
            assert frames >= 10
        else:
            assert ended["error"].startswith(("child_exited: ", "child_gone: ")), ended
        await talk.close()
        assert await talk.open_calls() == 0
        assert len(talk.of("run_completed", "run_failed", "run_cancelled")) == 1
        for dispatched in talk.of("client_tool_dispatched"):
            assert await talk.event("tool_result", call_id=dispatched["call_id"])


@pytest.mark.parametrize(
    "death", [{"exit": 0}, {"exit": 1}, {"signal": "SIGSEGV"}, {"signal": "SIGKILL"}, {"exit": 5, "flush": False}]
)
async def test_a_death_in_a_call_ends_the_call_and_says_how(world: World, death: dict[str, object]):
    talk = await world.talk()
    await talk.register()
    run_id = await talk.say({**call(), "abandon": True}, {"sleep_s": 0.2, "stderr_bytes": 6400, "die": death})
    (dispatched,) = await talk.dispatched()
    began = time.monotonic()
    ended = await talk.end(run_id)
    assert ended["type"] == "run_failed"
    assert ended["error"].startswith("child_exited: ")
    assert "stderr: eee" in ended["error"]
    failed = await talk.event("client_tool_failed", call_id=dispatched["call_id"])
    assert failed["reason"] == "run_gone"
    assert time.monotonic() - began < 20
    assert await talk.run("echo next") == "next"


async def test_a_child_that_writes_a_byte_at_a_time(redis_url: str, tmp_path: Path):
    agent = demo_agent(tmp_path, "dribble", {"byte_at_a_time": True})
    async with settling_world(redis_url, [demo_agent(tmp_path), agent]) as world:
        talk = await world.talk("dribble")
        await talk.register()
        async with answering(talk, lambda _: "é\u2028"):
            assert json.loads((await talk.run(call(), SAY)).removeprefix("It said: ")) == ["é\u2028"]


@pytest.mark.parametrize("holds_stdout", [True, False])
async def test_a_grandchild_goes_with_the_child(world: World, holds_stdout: bool):
    talk = await world.talk()
    said = await talk.run({"grandchild": {"seconds": 600, "holds_stdout": holds_stdout}}, {"text": "{{results}}"})
    grandchild = int(said.strip('[]"'))
    os.kill(grandchild, 0)
    began = time.monotonic()
    await talk.close()
    assert time.monotonic() - began < 20
    assert state_of(grandchild) in ("", "Z"), "dead, and whoever inherited it may not have looked yet"


async def test_a_grandchild_that_outlives_a_dead_child_holds_nothing_up(world: World):
    talk = await world.talk()
    run_id = await talk.say({"grandchild": {"seconds": 600}}, {"sleep_s": 0.1, "die": {"exit": 9}})
    began = time.monotonic()
    assert (await talk.end(run_id))["error"].startswith("child_exited: ")
    assert time.monotonic() - began < 20


async def test_ten_mebibytes_of_stderr_are_drained_and_their_end_kept(world: World):
    talk = await world.talk()
    assert await talk.run({"stderr_bytes": 10 * 1024 * 1024}, {"text": "said"}) == "said"
    run_id = await talk.say({"stderr_bytes": 10 * 1024 * 1024, "die": {"exit": 1}})
    ended = await talk.end(run_id)
    assert len(ended["error"]) < 4_400
    assert "eee" in ended["error"]


@pytest.mark.parametrize("how", ["same_call_id", "reuse_call_id"])
async def test_a_call_id_that_comes_twice_fails_closed(world: World, how: str):
    talk = await world.talk()
    await talk.register()
    step = {**call(), how: True}
    if how == "reuse_call_id":
        step["calls"] *= 2
    async with answering(talk, lambda _: "x"):
        run_id = await talk.say(step, SAY)
        ended = await talk.end(run_id)
    assert ended["type"] == "run_failed"
    assert ended["error"].startswith("call_id_reused: ")
    assert len(talk.of("client_tool_dispatched")) == 1
    assert await talk.run("echo next") == "next"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"raw": '{"protocol":"magi-code.local-agent","version":1}\n'}, "malformed_frame"),
        ({"raw_frame": {"seq": 1}}, "seq_not_rising"),
        ({"raw_frame": {"instance_id": "another"}}, "instance_changed"),
        ({"raw_frame": {"surprise": 1}}, "unknown_field"),
        ({"raw_frame": {"type": "gossip"}}, "unknown_frame_type"),
        ({"raw_frame": {"version": 2}}, "protocol_mismatch"),
        ({"raw_event": {"event": "weather"}}, "unknown_event"),
        ({"oversize": 70_000}, "frame_too_large"),
    ],
)
async def test_a_broken_frame_fails_the_run_and_the_next_input_has_another_child(
    world: World, fault: dict[str, object], reason: str
):
    talk = await world.talk()
    await talk.run("echo first")
    before = talk.child.pid
    ended = await talk.end(await talk.say({**fault, "sleep_s": 0}, {"sleep_s": 30}, {"text": "never"}))
    assert ended["type"] == "run_failed"
    if reason == "malformed_frame":
        assert "the agent broke its protocol" in ended["error"]
    else:
        assert ended["error"].startswith(f"{reason}: ")
    assert await talk.run("echo next") == "next"
    assert talk.child.pid != before


async def test_a_child_that_breaks_its_protocol_at_its_start_is_told_so(redis_url: str, tmp_path: Path):
    banner = '{"protocol":"magi-code.local-agent","version":1,"type":"banner"}'
    async with settling_world(
        redis_url, [demo_agent(tmp_path), demo_agent(tmp_path, "new", {"banner": banner})]
    ) as world:
        talk = await world.talk("new")
        ended = await talk.end(await talk.say(SAY))
        assert ended["type"] == "run_failed"
        assert ended["error"].partition(": ")[2].startswith("the agent broke its protocol while it started")
        assert not ended["error"].startswith("child_exited")


async def test_noise_on_stdout_costs_nothing(world: World):
    talk = await world.talk()
    noise = [{"noise": text} for text in ("", "\x1b[31mred\x1b[0m", '{"level":"info"}', "\ufeff", "x" * 10_000)]
    assert await talk.run(*noise, {"text": "heard"}) == "heard"


async def test_a_child_killed_from_outside_between_runs_is_replaced(world: World):
    talk = await world.talk()
    await talk.run("echo one")
    pid = talk.child.pid
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: talk.child.exit is not None)
    assert await talk.run("echo two") == "two"
    assert talk.child.pid != pid


async def test_a_child_that_ignores_its_end_is_killed_by_the_ladder(redis_url: str, tmp_path: Path):
    agent = demo_agent(tmp_path, "stubborn", {"ignore_end": True})
    async with settling_world(redis_url, [demo_agent(tmp_path), agent]) as world:
        talk = await world.talk("stubborn")
        await talk.run("echo here")
        pid = talk.child.pid
        began = time.monotonic()
        await talk.close()
        assert 5.5 < time.monotonic() - began < 20, "4 s for shutdown, 2 s for SIGTERM, then SIGKILL"
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_two_hundred_sessions_leave_no_process_descriptor_or_memory(redis_url: str, tmp_path: Path):
    agent = demo_agent(tmp_path)
    async with agent_world(redis_url, [agent], max_children=16) as world:
        gate = asyncio.Semaphore(4)

        async def live() -> None:
            async with gate:
                talk = await world.talk()
                await talk.run("echo here")
                await talk.close()

        await asyncio.gather(*(live() for _ in range(12)))
        before, memory = await world.remains(), _resident()
        for _ in range(10):
            await asyncio.gather(*(live() for _ in range(20)))
        await world.settles(before)
        assert _resident() - memory < 16 * 1024 * 1024
        assert world.gateway.capacity.taken == 0


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("name", ["client__web__x", "client__use", "client__tools"])
async def test_a_number_that_no_double_is_fails_its_call_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
):
    whole = RunCalls.call

    def with_number(self: RunCalls, asked: ToolCall, closed: Sequence[EventPayload]) -> None:
        arguments = msgspec.Raw(b'{"n":1e400}')  # Python's own JSON, the demo agent's, cannot write it
        whole(self, msgspec.structs.replace(asked, arguments=arguments), closed)

    monkeypatch.setattr(RunCalls, "call", with_number)
    talk = await world.talk()
    await talk.register()
    said = await talk.run(call(name, {"n": 1}), SAY)
    assert "Error invalid_arguments: a number in the arguments is out of range." in said
    assert not talk.of("client_tool_dispatched")
