"""What a session offers while its clients come, go and change their lists (bridge 2, 3, 6)."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from gateway import app
from gateway.model.catalog import REFUSED_BY_PROVIDER
from gateway.model.errors import Code, Refusal
from gateway.model.registration import ToolSpec
from gateway.services.catalogs import LAST_TURN, NEXT_TURN
from gateway.services.offers import Offer
from tests.doubles.agent_world import SAY, Talk, World, agent_world, answering, call, demo_agent, tool

MANY = tuple(tool(f"t{number}") for number in range(40))


async def put(talk: Talk, client_id: str, *tools: ToolSpec) -> None:
    await talk.world.gateway.offers.replace(talk.id, client_id, tools)


async def shown(talk: Talk) -> tuple[int, dict[str, tuple[str, bool, tuple[str, ...]]]]:
    generation, items = await talk.world.gateway.http.catalogs.shown(talk.id, dynamic_tools=True)
    return generation, {item.model_name: (item.tool, item.native, item.notes) for item in items}


async def recorded(talk: Talk) -> None:
    """What the owner has put goes out."""
    await talk.runner._offering.fresh()
    assert await talk.runner.outbox.drained(5)


async def test_names_stay_when_another_owner_comes(redis_url: str, tmp_path: Path):
    """The page has turned its list about while nobody owned the session: who had the plain name keeps it."""
    agent, prefix = demo_agent(tmp_path), f"t{uuid4().hex[:8]}"
    async with agent_world(redis_url, [agent], prefix=prefix) as world:
        talk = await world.talk()
        client_id = await talk.register(tool("go-to"), tool("go_to"))
        await talk.run("echo one")
        await recorded(talk)
        _, before = await shown(talk)
        assert before["client__web__go_to"][0] == "go-to"
    async with agent_world(redis_url, [agent], prefix=prefix) as world:
        again = await world.look(talk.id)
        await put(again, client_id, tool("go_to"))
        await put(again, client_id, tool("go_to"), tool("go-to"))
        _, after = await shown(again)
        assert {name: entry[0] for name, entry in after.items()} == {name: entry[0] for name, entry in before.items()}
        async with answering(again, lambda event: event["tool"]):
            assert await again.run(call("client__web__go_to"), SAY) == 'It said: ["go-to"]'
        await again.close()


async def test_a_tool_that_comes_back_has_its_name(world: World):
    talk = await world.talk()
    client_id = await talk.register(tool("go-to"), tool("go_to"))
    await talk.run("echo one")
    await put(talk, client_id, tool("go_to"))
    await recorded(talk)
    await put(talk, client_id, tool("go_to"), tool("go-to"))
    async with answering(talk, lambda event: event["tool"]):
        assert await talk.run(call("client__web__go_to"), SAY) == 'It said: ["go-to"]'


async def test_the_catalog_says_what_the_child_has_and_what_the_next_will_have(world: World):
    talk = await world.talk()
    client_id = await talk.register(tool("a"), tool("b", {"type": "object", "if": {"required": ["x"]}}))
    generation, first = await shown(talk)
    assert generation == 0
    assert first["client__web__a"] == ("a", True, ())
    assert first["client__web__b"][2], "something was dropped of it"
    await talk.run("echo one")
    await recorded(talk)
    assert await shown(talk) == (1, first)
    await put(talk, client_id, tool("a"), tool("c"))
    await recorded(talk)
    generation, changed = await shown(talk)
    assert generation == 1
    assert changed == {"client__web__a": ("a", True, ()), "client__web__c": ("c", False, (NEXT_TURN,))}
    await talk.run("echo two")
    await recorded(talk)
    assert await shown(talk) == (2, {"client__web__a": ("a", True, ()), "client__web__c": ("c", True, ())})


async def test_a_tool_that_makes_way_says_so(world: World):
    talk = await world.talk()
    await talk.register(*MANY[:29])
    await talk.run("echo one")
    await talk.register(tool("late"), name="other")
    await recorded(talk)
    generation, items = await shown(talk)
    assert generation == 1
    assert items["client__other__late"] == ("late", False, (NEXT_TURN,))
    assert items["client__web__t28"] == ("t28", True, (LAST_TURN,))


async def test_use_alone_replaces_no_child(world: World):
    talk = await world.talk()
    await talk.register(*MANY)
    await talk.run("echo one")
    child = talk.child.pid
    async with answering(talk, lambda event: event["tool"]):
        used = call("client__use", {"tool": "client__web__t35", "arguments": {}})
        assert await talk.run(used, SAY) == 'It said: ["t35"]'
        talk.runner.resync()  # the same list, read again, after another tool was used
        await talk.runner._offering.fresh()
        await talk.run("echo two")
        assert talk.child.pid == child
        await talk.register(tool("new"), name="other")
        await talk.run("echo three")
        assert talk.child.pid != child
    assert "client__web__t35" in talk.runner._lineage.current.native  # type: ignore[union-attr]


async def test_a_page_that_comes_back_with_the_same_list_replaces_no_child(world: World):
    talk = await world.talk()
    first = await talk.register(*MANY[:20], name="one")
    await talk.register(*MANY[20:], name="two")
    await talk.run("echo one")
    child = talk.child.pid
    await world.gateway.offers.leave(talk.id, first)
    again = await talk.register(*MANY[:20], name="one")
    async with answering(talk, lambda event: f"{event['tool']} of {event['client_id']}"):
        assert await talk.run(call("client__one__t3"), SAY) == f'It said: ["t3 of {again}"]'
    assert talk.child.pid == child


async def test_equal_lists_replace_no_child_and_many_changes_one(world: World):
    talk = await world.talk()
    client_id = await talk.register(tool("x"))
    await talk.run("echo one")
    child = talk.child.pid
    for _ in range(100):
        await put(talk, client_id, tool("x"))
    await talk.run("echo two")
    assert talk.child.pid == child
    for number in range(50):
        await put(talk, client_id, tool("x"), tool(f"typed_{number}"))
    assert talk.child.pid == child, "no turn has needed another one"
    await talk.run("echo three")
    await recorded(talk)
    generation, items = await shown(talk)
    assert generation == 2
    assert items["client__web__typed_49"][1]


async def test_a_list_that_is_too_long_for_one_answer_is_read_on(world: World):
    talk = await world.talk()
    words = "described at some length, so that a line is as long as it may be, " * 4
    for number in range(6):
        tools = [ToolSpec(name=f"t{place}", description=words, parameters=b"{}") for place in range(64)]
        await world.gateway.offers.register(talk.id, str(uuid4()), Offer(f"page{number}", 0, tuple(tools)))
    said = await talk.run(call("client__tools"), SAY)
    (part,) = json.loads(said.removeprefix("It said: "))
    (listed,) = talk.of("tool_call")
    parts = int(re.search(r"\[part 1 of (\d+)", part).group(1))  # type: ignore[union-attr]
    found = [line for line in part.splitlines() if line.startswith("client__page")]
    for number in range(2, parts + 1):
        said = await talk.run(call("client__more", {"call_id": listed["call_id"], "part": number}), SAY)
        (part,) = json.loads(said.removeprefix("It said: "))
        found += [line for line in part.splitlines() if line.startswith("client__page")]
    assert parts > 1
    assert [line.partition(":")[0] for line in found] == [
        f"client__page{number}__t{place}" for number in range(6) for place in range(64)
    ]


async def test_the_model_hears_what_was_refused(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ten seconds, here half of one, to correct an answer; then the text names the limit (bridge 6)."""
    bounds = app._bounds
    monkeypatch.setattr(app, "_bounds", lambda settings: replace(bounds(settings), refused_ms=500))
    async with agent_world(redis_url, [demo_agent(tmp_path)]) as world:
        talk = await world.talk()
        client_id = await talk.register()
        run_id = await talk.say(call(), SAY)
        (dispatched,) = await talk.dispatched()
        why = Refusal(Code.INVALID_REQUEST, "text: more than 65536 characters")
        await world.gateway.answers.refuse(talk.id, client_id, dispatched["call_id"], why)
        assert (await talk.end(run_id))["type"] == "run_completed"
        (heard,) = json.loads(talk.said().removeprefix("It said: "))
        assert heard.startswith("Error refused_answer: ")
        assert "text: more than 65536 characters" in heard
        assert "Outcome unknown" in heard
        (failed,) = talk.of("client_tool_failed")
        assert (failed["reason"], failed["detail"]) == ("result_timeout", "answer_refused")
        (result,) = talk.of("tool_result")
        assert result["content"][0]["data"]["text"] == heard
        await talk.close()


async def test_an_answer_that_is_corrected_in_time_counts(world: World):
    talk = await world.talk()
    client_id = await talk.register()
    run_id = await talk.say(call(), SAY)
    (dispatched,) = await talk.dispatched()
    why = Refusal(Code.INVALID_REQUEST, "text: more than 65536 characters")
    await world.gateway.answers.refuse(talk.id, client_id, dispatched["call_id"], why)
    await talk.answer(dispatched, "shorter")
    assert (await talk.end(run_id))["type"] == "run_completed"
    assert talk.said() == 'It said: ["shorter"]'


async def test_five_thousand_calls_of_one_session(redis_url: str, tmp_path: Path):
    """Over the budget of one child's request ids: none is lost, none comes twice, each answer goes to its own call."""
    runs, steps, abreast = 27, 12, 16
    each = steps * abreast
    numbered = tool("n", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    async with agent_world(redis_url, [demo_agent(tmp_path)]) as world:
        talk = await world.talk()
        await talk.register(numbered)
        pids: set[int] = set()
        given: Counter[int] = Counter()

        def double(event: dict[str, object]) -> str:
            number = event["arguments"]["n"]  # type: ignore[index]
            given[number] += 1
            return str(2 * number)

        async with answering(talk, double):
            for run in range(runs):
                numbers = range(run * each, (run + 1) * each)
                asked = [{"name": "client__web__n", "arguments": {"n": n}} for n in numbers]
                turns = [{"calls": asked[at : at + abreast], "parallel": True} for at in range(0, each, abreast)]
                ended = await talk.end(await talk.say(*turns, SAY), within=60)
                assert ended["type"] == "run_completed", ended
                assert json.loads(talk.said().removeprefix("It said: ")) == [str(2 * n) for n in numbers]
                pids.add(talk.child.pid)
        assert given == Counter(range(runs * each))
        assert len(pids) == 2
        settled = Counter(event["call_id"] for event in talk.of("tool_result"))
        assert len(settled) == runs * each
        assert set(settled.values()) == {1}
        assert not talk.of("client_tool_failed")
        await talk.close()


@pytest.mark.parametrize("after", ["register", "leave"])
async def test_a_list_that_changed_while_idle_is_native_in_the_next_turn(world: World, after: str):
    talk = await world.talk()
    client_id = await talk.register(tool("x"))
    await talk.run("echo one")
    if after == "register":
        await talk.register(tool("y"), name="other")
    else:
        await world.gateway.offers.leave(talk.id, client_id)
    await talk.run("echo two")
    native = talk.runner._lineage.current.native  # type: ignore[union-attr]
    assert ("client__other__y" in native, "client__web__x" in native) == (after == "register", after == "register")


async def test_a_provider_that_refuses_a_new_tool_does_not_see_it_again(world: World):
    """The run fails before the model has said a word: what was new among its tools may be why (bridge 3)."""
    talk = await world.talk()
    await talk.register(tool("old"))
    await talk.run("echo one")
    await talk.register(tool("new"), name="other")
    failed = await talk.end(await talk.say({"status": 400}))
    assert failed["type"] == "run_failed"
    await talk.run("echo two")
    await recorded(talk)
    _, items = await shown(talk)
    assert items["client__web__old"][1]
    assert items["client__other__new"] == ("new", False, (REFUSED_BY_PROVIDER,))
    async with answering(talk, lambda event: event["tool"]):
        used = call("client__use", {"tool": "client__other__new", "arguments": {}})
        assert await talk.run(used, SAY) == 'It said: ["new"]'


async def test_a_delegated_task_uses_what_its_agent_allows(redis_url: str, tmp_path: Path):
    agent = demo_agent(tmp_path, delegated_use=("client__web__a",))
    async with agent_world(redis_url, [agent]) as world:
        talk = await world.talk()
        await talk.register(tool("a"), tool("b"))
        who = {"delegate": {"task_id": "g1", "subagent_id": "call_1_0/g1"}}
        async with answering(talk, lambda event: event["tool"]):
            for name, heard in (("a", "a"), ("b", "Error not_permitted: ")):
                used = call("client__use", {"tool": f"client__web__{name}", "arguments": {}}, **who)
                (result,) = json.loads((await talk.run(used, SAY)).removeprefix("It said: "))
                assert result.startswith(heard)
            direct = call("client__web__b", **who)
            assert await talk.run(direct, SAY) == 'It said: ["b"]'
        await talk.close()


async def test_an_agent_without_the_dynamic_tools_has_31_slots(redis_url: str, tmp_path: Path):
    async with agent_world(redis_url, [demo_agent(tmp_path, dynamic_tools=False)]) as world:
        talk = await world.talk()
        await talk.register(*MANY)
        await talk.run("echo one")
        native = talk.runner._lineage.current.native  # type: ignore[union-attr]
        assert native == {*(f"client__web__t{number}" for number in range(31)), "client__more"}
        await talk.close()
