"""Calls of one session across the request ids of several real children (bridge 9), with a budget of 100 for each."""

import asyncio
import json
import uuid
from collections import Counter
from pathlib import Path

import pytest

from adapters.stdio import lineage
from gateway.bus.embedded import EmbeddedServer
from gateway.config.secret import Secret
from gateway.config.settings import Agent
from tests.doubles.agent_world import Event, agent_world, answering, steps, tool
from tests.doubles.peers import MAGI_CODE, ModelLog
from tests.doubles.scripted_model import scripted_model, write_home

pytestmark = pytest.mark.peers

RUNS, EACH = 10, 30
NUMBERED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def test_three_hundred_calls_of_code_mode_over_many_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if not MAGI_CODE.exists():
        pytest.skip("magi-code 0.104.0 is not in the peers' cache")
    monkeypatch.setattr(lineage, "CHILD_REQUEST_IDS", 100)
    monkeypatch.setattr(lineage, "REQUESTS_OF_A_GENERATION", 34)
    log = tmp_path / "requests.jsonl"
    log.touch()
    server = EmbeddedServer(restart=False)
    await server.start()
    try:
        with scripted_model(log) as port:
            env = {name: Secret(value) for name, value in write_home(tmp_path / "home", port).items()}
            cwd = str(tmp_path / "cwd" / "{session_id}")
            agent = Agent(name="magi", command=(str(MAGI_CODE), "serve", "--stdio"), cwd=cwd, env=env)
            async with agent_world(server.url, [agent]) as world:
                talk = await world.talk("magi")
                await talk.register(tool("n", NUMBERED))
                given: Counter[int] = Counter()

                def double(event: Event) -> str:
                    given[event["arguments"]["n"]] += 1
                    return f"<{2 * event['arguments']['n']}>"

                pids: set[int] = set()
                async with answering(talk, double):
                    for run in range(RUNS):
                        numbers = list(range(run * EACH, (run + 1) * EACH))
                        code = f"return {numbers}.map(n => JSON.stringify(tools.call('client__web__n', {{n}})))"
                        mark = uuid.uuid4().hex
                        asked = {"calls": [{"name": "code_mode", "arguments": {"intent": "double", "code": code}}]}
                        ended = await talk.end(await talk.say(mark + steps(asked, {"text": "done"})), within=120)
                        assert ended["type"] == "run_completed", ended
                        pids.add(talk.child.pid)
                        results = await asyncio.to_thread(ModelLog(log).results, mark)
                        at = [results[-1].find(f"<{2 * n}>") for n in numbers]
                        assert -1 not in at, results[-1]
                        assert at == sorted(at), "each answer went to its own call"
                assert given == Counter(range(RUNS * EACH))
                settled = Counter(event["call_id"] for event in talk.of("tool_result"))
                dispatched = [event["call_id"] for event in talk.of("client_tool_dispatched")]
                assert len(dispatched) == len(set(dispatched)) == RUNS * EACH
                assert all(settled[call_id] == 1 for call_id in dispatched)
                assert not talk.of("client_tool_failed")
                assert len(pids) >= RUNS // 2, "each child has served no more than its budget"
                await talk.close()
    finally:
        await server.stop()


async def test_a_run_of_the_real_child_that_needs_more_ends_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With 32 ids left the run is cancelled in order and fails as request_limit; the next goes on."""
    if not MAGI_CODE.exists():
        pytest.skip("magi-code 0.104.0 is not in the peers' cache")
    monkeypatch.setattr(lineage, "CHILD_REQUEST_IDS", 100)
    monkeypatch.setattr(lineage, "REQUESTS_OF_A_GENERATION", 60)
    server = EmbeddedServer(restart=False)
    await server.start()
    try:
        with scripted_model() as port:
            env = {name: Secret(value) for name, value in write_home(tmp_path / "home", port).items()}
            cwd = str(tmp_path / "cwd" / "{session_id}")
            agent = Agent(name="magi", command=(str(MAGI_CODE), "serve", "--stdio"), cwd=cwd, env=env)
            async with agent_world(server.url, [agent]) as world:
                talk = await world.talk("magi")
                await talk.register(tool("n", NUMBERED))
                code = f"return {json.dumps(list(range(90)))}.map(n => tools.call('client__web__n', {{n}}))"
                asked = {"calls": [{"name": "code_mode", "arguments": {"intent": "double", "code": code}}]}
                async with answering(talk, lambda _: "fine"):
                    ended = await talk.end(await talk.say(steps(asked, {"text": "done"})), within=120)
                    assert ended["type"] == "run_failed"
                    assert ended["error"].startswith("request_limit: ")
                    for event in talk.of("client_tool_dispatched"):
                        assert talk.of("tool_result", call_id=event["call_id"])
                    assert await talk.run({"text": "I am back."}) == "I am back."
                await talk.close()
    finally:
        await server.stop()
