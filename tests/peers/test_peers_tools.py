"""Tools that move, and what their answers may hold, with the real child (bridge 2, 3, 6)."""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.doubles.nodes_session import Client, Conversation, Event, calls, conversation, script, tool

pytestmark = pytest.mark.peers

SAY = {"text": "done"}
NESTED = {
    "$defs": {
        "Span": {
            "properties": {
                "first": {"minimum": 0, "title": "First", "type": "integer"},
                "last": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None, "title": "Last"},
            },
            "required": ["first"],
            "title": "Span",
            "type": "object",
        }
    },
    "properties": {"spans": {"items": {"$ref": "#/$defs/Span"}, "title": "Spans", "type": "array"}},
    "required": ["spans"],
    "title": "Mark",
    "type": "object",
}
"""A nested model as pydantic prints it."""


class Asked:
    """One conversation, whose prompts bear a mark for the model's log."""

    def __init__(self, pair: Any, talk: Conversation) -> None:
        self.pair, self.talk, self.mark = pair, talk, uuid.uuid4().hex

    async def run(self, *steps: Any, within: float = 60.0) -> list[str]:
        """One run that completes: the tool results of this turn alone, in order."""
        self.mark = uuid.uuid4().hex
        end = await self.talk.end(await self.talk.say(self.mark + script(*steps)), within)
        assert end["type"] == "run_completed", end
        return self.pair.model.results(self.mark)

    def native(self) -> set[str]:
        """The clients' tools that the model had before it in the last run."""
        return {name for name in self.pair.model.tools(self.mark) if name.startswith("client__")}

    async def catalog(self) -> dict[str, Any]:
        return await self.talk.done("GET", "/catalog")


def called(event_tool: str, _: Any) -> str:
    return f"called {event_tool}"


async def test_a_nested_schema_is_native_and_its_arguments_are_checked(pair: Any):
    async with conversation(pair.edge, "magi") as talk:
        asked = Asked(pair, talk)
        client = await talk.register("web", tool("mark", NESTED))
        async with client.serve(called):
            results = await asked.run(
                calls("client__web__mark", {"spans": [{"first": 1}, {"first": 2, "last": None}]}),
                calls("client__web__mark", {"spans": [{"first": -1}]}),
                SAY,
            )
        assert results[-2] == "called mark"
        assert results[-1].startswith("Error invalid_arguments")
        assert "first" in results[-1]
        offered = pair.model.tools(asked.mark)["client__web__mark"]
        assert offered["properties"]["spans"]["items"]["properties"]["first"]["minimum"] == 0
        assert len(talk.of("client_tool_dispatched")) == 1
        (item,) = (await asked.catalog())["items"]
        assert (item["model_name"], item["client_id"], item["native"]) == ("client__web__mark", client.id, True)


async def test_two_names_that_become_one_are_two_tools(pair: Any):
    async with conversation(pair.edge, "magi") as talk:
        asked = Asked(pair, talk)
        client = await talk.register("web", tool("go-to"), tool("go_to"))
        names = {item["tool"]: item["model_name"] for item in (await asked.catalog())["items"]}
        assert names["go-to"] == "client__web__go_to"
        assert len(set(names.values())) == 2
        async with client.serve(called):
            assert (await asked.run(calls(names["go_to"]), calls(names["go-to"]), SAY))[-2:] == [
                "called go_to",
                "called go-to",
            ]
        assert set(names.values()) < asked.native()


async def test_a_list_that_changed_while_idle_is_native_in_the_next_turn(pair: Any):
    async with conversation(pair.edge, "magi") as talk:
        asked = Asked(pair, talk)
        client = await talk.register("web", tool("before"))
        async with client.serve(called):
            await asked.run(calls("client__web__before"), SAY)
            await client.offer(tool("after"))
            assert (await asked.run(calls("client__web__after"), SAY))[-1] == "called after"
        assert "client__web__after" in asked.native()
        assert "client__web__before" not in asked.native()
        catalog = await asked.catalog()
        assert catalog["generation"] == 2
        assert [(item["tool"], item["native"]) for item in catalog["items"]] == [("after", True)]


async def test_a_page_that_navigates_during_its_call(pair: Any):
    """The tools of the page that it went to are reached by client__use in that run, and native in the next."""
    async with conversation(pair.edge, "magi") as talk:
        asked = Asked(pair, talk)
        client = await talk.register("web", tool("go"))

        async def answer(name: str, _: Any) -> str:
            if name == "go":
                await client.offer(tool("fill"))
            return f"called {name}"

        async with client.serve(answer):
            went, used, gone = await asked.run(
                calls("client__web__go"),
                calls("client__use", {"tool": "client__web__fill", "arguments": {}}),
                calls("client__web__go"),
                SAY,
            )
            assert went.startswith("called go")
            assert "client__web__fill" in went
            assert used == "called fill"
            assert gone.startswith("Error tool_gone")
            assert "client__web__fill" not in asked.native()
            assert (await asked.run(calls("client__web__fill"), SAY))[-1] == "called fill"
            assert "client__web__fill" in asked.native()


async def test_equal_lists_and_key_presses_replace_no_child(pair: Any):
    async with conversation(pair.edge, "magi") as talk:
        asked = Asked(pair, talk)
        before = set(pair.owner.children())
        client = await talk.register("web", tool("type"))
        await asked.run(SAY)
        (child,) = set(pair.owner.children()) - before
        for _ in range(100):
            await client.offer(tool("type"))
        await asked.run(SAY)
        assert set(pair.owner.children()) - before == {child}
        for key in range(40):
            await client.offer(tool("type"), tool(f"typed_{key}"))
        assert set(pair.owner.children()) - before == {child}, "no turn has needed another one"
        await asked.run(SAY)
        assert "client__web__typed_39" in asked.native()
        (another,) = set(pair.owner.children()) - before
        assert another != child
        assert (await asked.catalog())["generation"] == 2


async def test_32_clients_with_64_tools_each_are_all_reached(pair: Any):
    """29 of them are native; each answers in a few bytes, a hundred a step: the child compacts a long conversation."""
    async with conversation(pair.edge, "magi") as talk:
        asked = Asked(pair, talk)
        clients: list[Client] = [
            await talk.register(f"c{number}", *(tool(f"t{place}") for place in range(64))) for number in range(32)
        ]
        catalog = (await asked.catalog())["items"]
        names = [item["model_name"] for item in catalog]
        assert len(set(names)) == 2048
        assert sum(item["native"] for item in catalog) == 29
        by_client = {client.id: client.name for client in clients}
        expected = {item["model_name"]: f"{by_client[item['client_id']]} {item['tool']}" for item in catalog}
        seen: list[Event] = []

        async with serving(talk, clients, lambda event: f"{by_client[event['client_id']]} {event['tool']}", seen):
            for at in range(0, len(names), 100):
                step = names[at : at + 100]
                code = (
                    f"const given = {json.dumps([expected[name] for name in step])};"
                    f"const names = {json.dumps(step)};"
                    "const wrong = [];"
                    "names.forEach((name, at) => {"
                    " const said = tools.call('client__use', {tool: name, arguments: {}});"
                    " if (!JSON.stringify(said).includes(given[at])) wrong.push([name, said]); });"
                    "return wrong.length ? wrong.slice(0, 3) : `all ${names.length}`;"
                )
                results = await asked.run(calls("code_mode", {"intent": "all", "code": code}), SAY, within=120)
                assert f"all {len(step)}" in results[-1], results[-1]
        assert len(seen) == 2048


@asynccontextmanager
async def serving(
    talk: Conversation, clients: Sequence[Client], answer: Callable[[Event], str], seen: list[Event]
) -> AsyncGenerator[None]:
    """Answers the calls of many clients, one reader for all."""
    by_id = {client.id: client for client in clients}

    async def work() -> None:
        at = 0
        while True:
            call = await talk.event("client_tool_dispatched", within=3600, since=at)
            at = call["seq"]
            seen.append(call)
            await by_id[call["client_id"]].answer(call, answer(call))

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


# --- what an answer may hold


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return {"deep": value}


WHOLE: dict[str, tuple[str, str]] = {
    "quotes": ('"' * 65_536, '"' * 65_536),
    "backslashes": ("\\" * 65_536, "\\" * 65_536),
    "newlines": ("x" + "\n" * 65_534 + "y", "x" + "\n" * 65_534 + "y"),
    "emoji": ("🦀" * 65_536, "🦀" * 65_536),
    "controls": ("a" + "\x01\x00\x1f\x7f" * 16_000 + "z", "az"),
    "ansi": ("\x1b[31mred\x1b[0m " * 5_000, "red " * 5_000),
    "line_separators": ("a\u2028b\u2029" * 16_384, "a\u2028b\u2029" * 16_384),
    "surrogates": ("a\ud800b" * 10_000, "a\ufffdb" * 10_000),
}


@pytest.mark.parametrize("case", WHOLE)
async def test_any_text_reaches_the_model_whole(pair: Any, case: str):
    """Over client__more where it is long, in the same run; and the child still hears afterwards."""
    text, clean = WHOLE[case]
    async with conversation(pair.edge, "magi") as talk:
        asked = Asked(pair, talk)
        before = set(pair.owner.children())
        client = await talk.register("web", tool("read"), tool("then"))
        read = await talk.say(asked.mark + script(calls("client__web__read"), SAY))
        (call,) = await client.dispatched()
        path = f"{talk.path}/clients/{client.id}/calls/{call['call_id']}/result"
        body = json.dumps({"text": text})  # escaped, as a lone surrogate has to be
        answer = await talk.http.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 204, answer.text
        assert (await talk.end(read))["type"] == "run_completed"
        (first,) = pair.model.results(asked.mark)
        async with client.serve(lambda *_: "still there"):
            found = re.search(r"\[part 1 of (\d+)", first)
            parts = [first]
            if found is not None:
                more = [{"call_id": call["call_id"], "part": number} for number in range(2, int(found[1]) + 1)]
                parts += (await asked.run(calls("client__more", *more), SAY))[-len(more) :]
                parts = [re.sub(r"\n\[part \d+ of \d+[^\n]*\]$", "", part) for part in parts]
            assert _equal("".join(parts), clean)
            assert (await asked.run(calls("client__web__then"), SAY))[-1] == "still there"
        assert len(set(pair.owner.children()) - before) == 1
        assert len(talk.of("client_tool_acked", "client_tool_dispatched")) == 2, "one child has served it all"


def _equal(seen: str, sent: str) -> bool:
    assert len(seen) == len(sent), (len(seen), len(sent), seen[:80], seen[-80:])
    return seen == sent


@pytest.mark.parametrize("levels", [20, 24, 30, 100])
async def test_a_structured_value_of_any_depth(pair: Any, levels: int):
    async with conversation(pair.edge, "magi") as talk:
        asked = Asked(pair, talk)
        client = await talk.register("web", tool("read"), tool("then"))
        run = await talk.say(asked.mark + script(calls("client__web__read"), calls("client__web__then"), SAY))
        (call,) = await client.dispatched()
        await client.answer(call, "see", structured=deep(levels))
        (_, second) = await client.dispatched(2)
        await client.answer(second, "still there")
        assert (await talk.end(run))["type"] == "run_completed"
        first, then = pair.model.results(asked.mark)
        assert first.replace(" ", "") == f"see\nstructured:{json.dumps(deep(levels))}".replace(" ", "")
        assert then == "still there"


async def test_keys_that_become_one_are_told(pair: Any):
    """Two names in a structured value that are one once their secrets are hidden: the text says what was wrong."""
    async with conversation(pair.edge, "magi") as talk:
        asked = Asked(pair, talk)
        client = await talk.register("web", tool("read"))
        run = await talk.say(asked.mark + script(calls("client__web__read"), SAY))
        (call,) = await client.dispatched()
        secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        other = "ghp_" + "z9Y8x7W6v5U4t3S2r1Q0p9O8n7M6l5K4j3I2"
        await client.answer(call, "see", structured={secret: 1, other: 2})
        assert (await talk.end(run))["type"] == "run_completed"
        (result,) = pair.model.results(asked.mark)
        assert result.startswith("Error result_refused: ")
        assert "became one" in result
        assert secret not in result


async def test_an_answer_over_the_limit_is_told_to_the_model_after_its_ten_seconds(pair: Any):
    async with conversation(pair.edge, "magi") as talk:
        asked = Asked(pair, talk)
        client = await talk.register("web", tool("read"))
        run = await talk.say(asked.mark + script(calls("client__web__read"), SAY))
        (call,) = await client.dispatched()
        assert (await client.post(call, "result", {"text": "x" * 65_537})).status_code == 400
        assert (await talk.end(run))["type"] == "run_completed"
        (result,) = pair.model.results(asked.mark)
        assert result.startswith("Error refused_answer: ")
        assert "65536" in result
