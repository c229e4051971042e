"""The children of a session: how they follow each other, what they leave to each other, and what is asked of them
between runs (bridge 3, 9)."""

import asyncio
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from adapters.stdio import generation, lineage
from gateway.bus.sessions import NO_KEY
from gateway.model.enquiries import AskHistory, AskModels, History, Models, Selected, SelectModel
from gateway.model.errors import Code, Refusal
from tests.doubles.agent_world import (
    DEMO,
    SAY,
    Talk,
    World,
    agent_world,
    answering,
    call,
    demo_agent,
    eventually,
    steps,
    tool,
)


async def ask_history(talk: Talk, cursor: str | None = None) -> History:
    page = await talk.runner.enquire(AskHistory(cursor))
    assert isinstance(page, History)
    return page


async def history(talk: Talk) -> list[str]:
    """The texts of what the user said, as the child keeps them."""
    texts: list[str] = []
    cursor = None
    while True:
        page = await ask_history(talk, cursor)
        texts += [part.text for part in page.items if part.kind == "user"]
        if (cursor := page.next_cursor) is None:
            return texts


async def test_another_list_brings_another_child_that_goes_on_with_the_session(world: World):
    talk = await world.talk()
    await talk.run("echo one")
    first = talk.child.pid
    await talk.run("echo two")
    assert talk.child.pid == first
    await talk.register(tool("x"))
    async with answering(talk, lambda _: "new"):
        assert await talk.run(call(), SAY) == 'It said: ["new"]'
    assert talk.child.pid != first
    assert [text[:8] for text in await history(talk)] == ["echo one", "echo two", '{"steps"']


async def test_a_session_goes_on_after_its_node_was_started_again(redis_url: str, tmp_path: Path):
    agent, prefix = demo_agent(tmp_path), f"t{uuid4().hex[:8]}"
    async with agent_world(redis_url, [agent], prefix=prefix) as world:
        talk = await world.talk()
        await talk.run("echo before")
    async with agent_world(redis_url, [agent], prefix=prefix) as world:
        again = await world.look(talk.id)
        assert await again.run("echo after") == "after"
        assert await history(again) == ["echo before", "echo after"]
        await again.close()


async def test_an_idle_child_is_stopped_and_the_next_input_opens_its_session(redis_url: str, tmp_path: Path):
    async with agent_world(redis_url, [demo_agent(tmp_path, idle_timeout_s=1)]) as world:
        talk = await world.talk()
        await talk.run("echo one")
        child = talk.child
        await asyncio.wait_for(child.wait(), 10)
        assert child.exit.code == 0
        await eventually(lambda: talk.id not in world.gateway.owners._runners)
        assert world.gateway.capacity.taken == 0
        await talk.run("echo two")
        assert await history(talk) == ["echo one", "echo two"]
        await talk.close()


LOSSES = ["session_missing", "session_invalid", "cwd_mismatch", "history_limit"]


def lose(home: Path, how: str) -> None:
    """Takes the child's own session away behind its back."""
    (file,) = home.rglob("*.jsonl")
    if how == "session_missing":
        file.unlink()
    elif how == "session_invalid":
        file.write_text("no session\n")
    elif how == "history_limit":
        with file.open("a") as more:
            more.write("{}\n" * 100_001)
    else:
        file.write_text(file.read_text().replace("/cwd/", "/other/"))


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("rule", ["error", "restart"])
async def test_a_lost_session_fails_the_run_or_begins_anew(redis_url: str, tmp_path: Path, how: str, rule: str):
    agent = demo_agent(tmp_path, on_lost_session=rule)
    async with agent_world(redis_url, [agent]) as world:
        talk = await world.talk()
        await talk.run("echo before")
        await talk.runner._lineage.stop()
        lose(tmp_path / "homes", how)
        ended = await talk.end(await talk.say("echo after"))
        if rule == "error":
            assert ended["type"] == "run_failed"
            assert ended["error"].startswith(f"{how}: ")
            assert talk.of("error") == []
        else:
            assert ended["type"] == "run_completed"
            assert len(talk.of("error")) == 1
            assert await history(talk) == ["echo after"]
        await talk.close()


async def test_a_session_that_another_process_holds_is_busy_and_comes_back(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(generation, "_BUSY_S", 1.0)
    async with agent_world(redis_url, [demo_agent(tmp_path)]) as world:
        talk = await world.talk()
        await talk.run("echo before")
        await talk.runner._lineage.stop()
        (file,) = (tmp_path / "homes").rglob("*.jsonl")
        folder = next((tmp_path / "cwd").iterdir())
        holder = subprocess.Popen(
            [sys.executable, str(DEMO), "serve", "--stdio"],
            cwd=folder,
            env={"MC_HOME": str(tmp_path / "homes/demo")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert holder.stdin is not None
            assert holder.stdout is not None
            for number, (method, params) in enumerate(
                [("initialize", {"required_capabilities": []}), ("session.open", {"session_id": file.stem})]
            ):
                frame = {
                    "protocol": "magi-code.local-agent",
                    "version": 1,
                    "id": f"h{number}",
                    "method": method,
                    "params": params,
                }
                holder.stdin.write(json.dumps(frame).encode() + b"\n")
                holder.stdin.flush()
                assert b'"result"' in await asyncio.to_thread(holder.stdout.readline)
            ended = await talk.end(await talk.say("echo held"), within=40)
            assert ended["error"].startswith("session_busy: ")
            waiting = await talk.say("echo free")
            await asyncio.sleep(0)
            holder.stdin.close()
            assert (await talk.end(waiting))["type"] == "run_completed"
        finally:
            holder.kill()
            holder.wait()
            assert holder.stdout is not None
            holder.stdout.close()
        await talk.close()


async def test_a_child_that_does_not_start_is_tried_again_after_longer_and_longer(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    agent = demo_agent(tmp_path, faults={"start_error": "provider_unavailable"})
    async with agent_world(redis_url, [agent]) as world:
        talk = await world.talk()
        moments = [time.monotonic()]
        for _ in range(4):
            ended = await talk.end(await talk.say("hello"))
            assert ended["error"].startswith("provider_unavailable: ")
            moments.append(time.monotonic())
        waits = [after - before for before, after in itertools.pairwise(moments)]
        assert all(waited >= least for waited, least in zip(waits, lineage.BACKOFF_S, strict=False))
        monkeypatch.setattr(lineage, "BACKOFF_S", (600.0,))
        run_id = await talk.say("hello")
        await talk.event("run_started", run_id=run_id)
        await talk.cancel()
        assert (await talk.end(run_id))["type"] == "run_cancelled", "a cancel ends the pause"
        await talk.close()


async def test_a_pause_after_failures_holds_no_place(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lineage, "BACKOFF_S", (0.0, 600.0))
    agents = [demo_agent(tmp_path), demo_agent(tmp_path, "broken", faults={"start_error": "provider_unavailable"})]
    async with agent_world(redis_url, agents, max_children=1) as world:
        broken, sound = await world.talk("broken"), await world.talk()
        await broken.end(await broken.say("hello"))
        waiting = await broken.say("hello again")
        await broken.event("run_started", run_id=waiting)
        assert await sound.run("echo here") == "here"
        await broken.cancel()
        assert (await broken.end(waiting))["type"] == "run_cancelled"
        await world.close_all()


async def test_a_child_is_replaced_between_runs_before_its_request_ids_are_spent(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lineage, "REQUESTS_OF_A_GENERATION", 6)
    talk = await world.talk()
    pids: list[int] = []
    for number in range(6):
        await talk.run(f"echo {number}")
        pids.append(talk.child.pid)
    assert len(set(pids)) == 2
    assert len(await history(talk)) == 6


async def test_a_run_that_needs_more_request_ids_ends_in_order(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lineage, "CHILD_REQUEST_IDS", 60)
    monkeypatch.setattr(lineage, "REQUESTS_OF_A_GENERATION", 20)
    talk = await world.talk()
    await talk.register()
    async with answering(talk, lambda _: "fine"):
        ended = await talk.end(await talk.say({"calls": call()["calls"] * 100}, SAY))
    assert ended["error"].startswith("request_limit: ")
    answered = len(talk.of("tool_result", is_error=False))
    assert 20 <= answered <= 26, "32 were left of 60"
    for dispatched in talk.of("client_tool_dispatched"):
        assert talk.of("tool_result", call_id=dispatched["call_id"])
    assert await talk.run("echo next") == "next"


async def test_open_calls_are_answered_when_the_request_ids_run_out(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lineage, "CHILD_REQUEST_IDS", 40)
    monkeypatch.setattr(lineage, "REQUESTS_OF_A_GENERATION", 8)
    talk = await world.talk()
    await talk.register()
    run_id = await talk.say({**call(), "calls": call()["calls"] * 10, "parallel": True}, {"sleep_s": 30, **SAY})
    found = await talk.dispatched(10)
    for dispatched in found[:5]:  # initialize, create and start are spent, and these: 32 are left
        await talk.answer(dispatched, "fine")
    assert (await talk.end(run_id))["error"].startswith("request_limit: ")
    for dispatched in found[5:]:
        assert (await talk.event("client_tool_failed", call_id=dispatched["call_id"]))["reason"] == "run_gone"
    assert talk.child.exit is None, "it was cancelled in order, not killed"


# Enquiries.


async def test_history_models_and_selection_of_an_idle_session(world: World):
    talk = await world.talk()
    await talk.run({"text": "x" * 10, "repeat": 3_000}, {"text": "never"})
    await talk.run("echo password=hunter2secret")
    pages, cursor = 0, None
    kinds: list[str] = []
    while pages == 0 or cursor is not None:
        page = await ask_history(talk, cursor)
        kinds += [part.kind for part in page.items]
        assert "hunter2secret" not in "".join(part.text for part in page.items)
        cursor, pages = page.next_cursor, pages + 1
    assert kinds.count("user") == 2
    found = await talk.runner.enquire(AskModels())
    assert isinstance(found, Models)
    assert {choice.model for choice in found.items} == {"rules", "echo", "rules-deep"}
    assert found.selection is not None
    assert found.selection.model == "rules"
    selected = await talk.runner.enquire(SelectModel("demo", "echo"))
    assert isinstance(selected, Selected)
    assert selected.selection.model == "echo"
    assert await talk.run("any words at all") == "any words at all"
    await talk.register()  # another list, so another child: the selection is the session's
    assert await talk.run("other words") == "other words"
    for wrong in (("demo", "none", None), ("demo", "rules", "high")):
        with pytest.raises(Refusal) as info:
            await talk.runner.enquire(SelectModel(*wrong))  # pyright: ignore[reportArgumentType]
        assert info.value.code is Code.INVALID_REQUEST


async def test_an_enquiry_is_refused_during_a_run_and_a_stale_cursor_always(world: World):
    talk = await world.talk()
    await talk.run({"text": "0123456789", "repeat": 6_000})
    page = await ask_history(talk)
    assert page.next_cursor is not None
    run_id = await talk.say({"sleep_s": 0.5}, {"text": "slow"})
    await eventually(lambda: talk.runner._run is not None)
    for question in (AskHistory(), AskModels()):
        with pytest.raises(Refusal) as info:
            await talk.runner.enquire(question)
        assert info.value.code is Code.CONFLICT
    await talk.end(run_id)
    await eventually(lambda: talk.runner._run is None)
    with pytest.raises(Refusal) as info:
        await ask_history(talk, page.next_cursor)
    assert info.value.code is Code.CONFLICT
    for wrong in ("nothing", "~x", "x~" + "y" * 300):
        with pytest.raises(Refusal) as info:
            await ask_history(talk, wrong)
        assert info.value.code in (Code.INVALID_REQUEST, Code.CONFLICT)


async def test_an_enquiry_starts_a_child_where_none_runs_and_an_input_waits_for_it(world: World):
    talk = await world.talk()
    await talk.run("echo one")
    await talk.runner._lineage.stop()
    asking = asyncio.ensure_future(talk.runner.enquire(AskModels()))
    await asyncio.sleep(0)
    run_id = await world.gateway.conversations.submit(talk.id, steps({"text": "after"}), NO_KEY)
    found = await asking
    assert isinstance(found, Models)
    assert found.items
    assert (await talk.end(run_id))["type"] == "run_completed"


# Hygiene.


async def test_a_child_sees_its_own_folder_the_allow_list_and_three_pipes(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("REDIS_URL", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "TOOLRELAY_API_KEY"):
        monkeypatch.setenv(name, "canary-of-the-node")
    async with agent_world(redis_url, [demo_agent(tmp_path)]) as world:
        talks = [await world.talk() for _ in range(2)]
        for talk in talks:
            said = await talk.run({"report": ["env", "fds", "cwd", "pid", "pgid"]}, {"text": "{{results}}"})
            seen = json.loads(json.loads(said)[0])
            assert seen["cwd"] == str(tmp_path / "cwd" / talk.id)
            assert set(seen["env"]) <= {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "MC_HOME", "LC_CTYPE"}
            assert "canary" not in said
            listing = f"/proc/{seen['pid']}/fd"  # open while it is read
            fds = {number: target for number, target in seen["fds"].items() if target not in (None, listing)}
            assert all(fds[number].startswith("pipe:") for number in "012")
            own = [target for target in fds.values() if not target.startswith("pipe:")]
            assert all(target.startswith(str(tmp_path / "homes")) for target in own), "its session's lock"
            assert len(fds) <= 6, "three pipes, two ends of what wakes its loop, the lock"
            assert seen["pid"] == seen["pgid"]
        for talk in talks:
            await talk.close()
