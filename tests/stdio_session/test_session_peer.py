"""Sessions of the real child on a real bus: subagents side by side, Code Mode, another list, its end (bridge 3, 9)."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.config.secret import Secret
from gateway.config.settings import Agent
from gateway.model.enquiries import AskHistory, History
from tests.doubles.agent_world import SAY, World, answering, call, processes_of, settling_world, tool
from tests.doubles.scripted_model import scripted_model, write_home
from tests.doubles.stdio_peers import magi_binary

pytestmark = pytest.mark.peers

N = tool("x", {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False})


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if not magi_binary().exists():
        pytest.skip("magi-code 0.104.0 is not in the peers' cache")
    home = tmp_path_factory.mktemp("home")
    with scripted_model() as port:
        yield {**write_home(home / "magi", port), "HOME": str(home)}


@pytest.fixture
async def real(redis_url: str, tmp_path: Path, environment: dict[str, str]) -> AsyncIterator[World]:
    agent = Agent(
        name="demo",
        command=(str(magi_binary()), "serve", "--stdio"),
        cwd=str(tmp_path / "{session_id}"),
        env={name: Secret(value) for name, value in environment.items()},
    )
    async with settling_world(redis_url, [agent]) as made:
        yield made


async def test_a_call_goes_round_and_the_next_child_goes_on_with_another_list(real: World):
    talk = await real.talk()
    await talk.register(N)
    async with answering(talk, lambda event: f"row {event['arguments']['n']}"):
        assert "row 7" in await talk.run(call(arguments={"n": 7}), SAY)
        first = talk.child.pid
        await talk.register(tool("y"), name="other")
    assert first == talk.child.pid
    async with answering(talk, lambda event: event["tool"]):
        assert json.loads((await talk.run(call("client__other__y"), SAY)).removeprefix("It said: ")) == ["y"]
    assert talk.child.pid != first
    page = await talk.runner.enquire(AskHistory())
    assert isinstance(page, History)
    assert [part.kind for part in page.items].count("user") == 2


async def test_calls_of_subagents_stand_open_side_by_side_and_each_gets_its_own_answer(real: World):
    talk = await real.talk()
    await talk.register(N)
    tasks = [
        {
            "intent": f"task {n}",
            "context": json.dumps({"steps": [call(arguments={"n": n}), {"text": "{{results}}"}]}),
        }
        for n in range(4)
    ]
    run_id = await talk.say({"calls": [{"name": "subagents", "arguments": {"intent": "ask", "tasks": tasks}}]}, SAY)
    found = await talk.dispatched(4)
    assert await talk.open_calls() == 4
    for dispatched in sorted(found, key=lambda event: -event["arguments"]["n"]):
        await talk.answer(dispatched, f"answer-{dispatched['arguments']['n']}-")
    assert (await talk.end(run_id))["type"] == "run_completed"
    positions = [talk.said().index(f"answer-{n}-") for n in range(4)]
    assert positions == sorted(positions)


async def test_an_inspection_task_reaches_no_client_by_any_way(real: World):
    talk = await real.talk()
    await talk.register(N)
    ways = [
        call(arguments={"n": 1}),
        call("client__use", {"tool": "client__web__x", "arguments": {"n": 1}}),
        call("client__tools"),
    ]
    leaf = json.dumps({"steps": [*ways, {"text": "{{results}}"}]})
    task = {"intent": "look", "context": leaf, "mode": "inspect"}
    said = await talk.run({"calls": [{"name": "subagents", "arguments": {"intent": "look", "tasks": [task]}}]}, SAY)
    assert said.count("cannot invoke") == len(ways)
    assert talk.of("client_tool_dispatched", "tool_call") == []


async def test_code_mode_adds_an_intent_that_a_strict_schema_never_sees(real: World):
    talk = await real.talk()
    await talk.register(N)
    code = 'return [1, 2].map(n => tools.call("client__web__x", {intent: "count", n}))'
    async with answering(talk, lambda event: f"row {event['arguments']['n']}"):
        said = await talk.run({"calls": [{"name": "code_mode", "arguments": {"intent": "map", "code": code}}]}, SAY)
    assert "row 1" in said
    assert "row 2" in said
    assert [event["arguments"] for event in talk.of("client_tool_dispatched")] == [{"n": 1}, {"n": 2}]


async def test_cards_of_the_agents_own_tools_are_logged_twice_each(real: World):
    talk = await real.talk()
    await talk.register(N)
    async with answering(talk, lambda _: "x"):
        command = {"name": "bash", "arguments": {"intent": "say", "command": "echo hello"}}
        await talk.run({"calls": [command]}, call(arguments={"n": 1}), {"text": "done"})
    cards = [event["payload"]["card"] for event in talk.of("custom", kind="card")]
    assert [(card["state"], card["outcome"]) for card in cards] == [("running", None), ("finished", "success")]


async def test_a_killed_child_fails_its_run_and_takes_its_jobs_along(real: World):
    talk = await real.talk()
    await talk.run({"text": "first"})
    job = {"name": "bash", "arguments": {"intent": "wait", "command": "sleep 600 & echo started; sleep 600"}}
    run_id = await talk.say({"calls": [job]}, SAY)
    pid = talk.child.pid
    async with asyncio.timeout(15):
        while len(processes_of(pid)) < 3:
            await asyncio.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    assert (await talk.end(run_id))["error"].startswith("child_exited: ")
    assert processes_of(pid) == []
    await talk.run({"text": "next"})
    assert talk.said() == "next"
