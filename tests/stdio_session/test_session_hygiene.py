"""What a child may take, and how a node counts its children (faults 18; bridge 9)."""

import json
from pathlib import Path

import pytest

from gateway.model.registration import ToolSpec
from gateway.observe.metrics import REGISTRY
from gateway.services import offers
from tests.doubles.agent_world import SAY, World, agent_world, answering, call, demo_agent, eventually, tool

STATES = ("starting", "ready", "running", "draining")


def counted(name: str, **labels: str) -> float:
    """A metric's value; 0 while it has none."""
    return REGISTRY.get_sample_value(f"toolrelay_{name}", labels) or 0.0


def children() -> dict[str, int]:
    """How many children are in which state."""
    found = {state: int(counted("children", state=state)) for state in STATES}
    return {state: count for state, count in found.items() if count}


async def limits(world: World, agent: str = "demo") -> dict[str, int]:
    talk = await world.talk(agent)
    said = await talk.run({"report": ["limits"]}, {"text": "{{results}}"})
    await talk.close()
    return json.loads(json.loads(said)[0])["limits"]


async def test_a_child_has_its_limits_and_never_dumps_its_memory(redis_url: str, tmp_path: Path):
    bounded = demo_agent(tmp_path, "bounded", max_open_files=128, max_memory_mib=1_024, max_file_mib=16, max_cpu_s=600)
    async with agent_world(redis_url, [demo_agent(tmp_path), bounded]) as world:
        assert await limits(world, "bounded") == {
            "NOFILE": 128,
            "CORE": 0,
            "AS": 1_024 * 1_024 * 1_024,
            "FSIZE": 16 * 1_024 * 1_024,
            "CPU": 600,
        }
        usual = await limits(world)
        assert (usual["NOFILE"], usual["CORE"]) == (4_096, 0)
        assert usual["AS"] == usual["FSIZE"] == usual["CPU"] == -1


async def test_a_child_that_wants_more_memory_than_it_may_have_fails_its_own_run(redis_url: str, tmp_path: Path):
    agent = demo_agent(tmp_path, max_memory_mib=512)
    async with agent_world(redis_url, [agent]) as world:
        talk = await world.talk()
        ended = await talk.end(await talk.say({"memory_mb": 1_024}, {"text": "never"}))
        assert ended["type"] == "run_failed"
        assert await talk.run("echo next") == "next"
        await talk.close()


async def test_children_are_counted_in_their_states(world: World):
    assert children() == {}
    starts = counted("child_starts_total")
    talk = await world.talk()
    await talk.register()
    run_id = await talk.say(call(), SAY)
    (dispatched,) = await talk.dispatched()
    assert children() == {"running": 1}
    await talk.answer(dispatched)
    await talk.end(run_id)
    await eventually(lambda: children() == {"ready": 1})
    await talk.register(tool("y"), name="other")
    async with answering(talk, lambda _: "x"):
        await talk.run(call("client__other__y"), SAY)
    await eventually(lambda: children() == {"ready": 1})
    assert counted("child_starts_total") == starts + 2
    await talk.close()
    assert children() == {}


@pytest.mark.parametrize(
    ("faults", "reason"),
    [({"start_error": "provider_unavailable"}, "provider_unavailable"), ({"die_after_frames": 0}, "child_exited")],
)
async def test_a_child_that_does_not_start_is_counted_by_its_reason(
    redis_url: str, tmp_path: Path, faults: dict[str, object], reason: str
):
    async with agent_world(redis_url, [demo_agent(tmp_path, faults=faults)]) as world:
        before = counted("child_failures_total", reason=reason)
        talk = await world.talk()
        await talk.end(await talk.say("hello"))
        assert counted("child_failures_total", reason=reason) == before + 1
        await talk.close()
    assert children() == {}


async def test_a_child_that_dies_in_a_run_is_counted_and_a_run_that_fails_by_itself_is_not(world: World):
    def failures() -> float:
        return sum(
            sample.value
            for metric in REGISTRY.collect()
            for sample in metric.samples
            if sample.name == "toolrelay_child_failures_total"
        )

    talk = await world.talk()
    before, exits = failures(), counted("child_failures_total", reason="child_exited")
    await talk.end(await talk.say({"fail": {}}))
    await talk.end(await talk.say({"die": {"exit": 1}}))
    await eventually(lambda: failures() > before)
    assert failures() == before + 1
    assert counted("child_failures_total", reason="child_exited") == exits + 1
    await eventually(lambda: children() == {})


async def test_a_refused_registry_leaves_the_gateways_own_tools_and_every_other_by_use(redis_url: str, tmp_path: Path):
    before = counted("registry_refusals_total")
    async with agent_world(redis_url, [demo_agent(tmp_path, faults={"most_tools": 3})]) as world:
        talk = await world.talk()
        await talk.register()
        async with answering(talk, lambda _: "by use"):
            use = call("client__use", {"tool": "client__web__x", "arguments": {}})
            assert await talk.run(use, SAY) == 'It said: ["by use"]'
        assert counted("registry_refusals_total") == before + 1
        (item,) = talk.runner.catalog.items
        assert not item.native
        assert item.notes, "the reason stands in the catalog"
        await talk.close()


async def test_a_registry_that_this_gateway_itself_holds_for_unfit_takes_no_tool_and_no_run_along(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(offers, "clean_text", lambda text: text)  # a fault of ours: it lets a control through
    before = counted("registry_refusals_total")
    talk = await world.talk()
    await talk.register(ToolSpec(name="x", description="a\x00b", parameters=b'{"type":"object"}'))
    async with answering(talk, lambda _: "by use"):
        assert await talk.run(call("client__use", {"tool": "client__web__x", "arguments": {}}), SAY) == (
            'It said: ["by use"]'
        )
    assert counted("registry_refusals_total") == before + 1
    await talk.close()
