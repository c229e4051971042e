"""What the demo agent understands when it is spoken to in sentences."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.doubles.stdio_driver import Child, Frame, tool
from tests.doubles.stdio_peers import Demo

ROW = tool("client__web__highlight_row", schema={"type": "object", "properties": {"row_id": {"type": "string"}}})
FILL = tool(
    "client__web__fill_field",
    schema={"type": "object", "properties": {"field": {"type": "string"}, "value": {"type": "string"}}},
)
SELECTION = tool("client__web__read_selection")
LIST = tool("client__tools", "What is offered now.")
USE = tool("client__use", "Calls any tool.")


def talk(
    child: Child, tools: list[Frame], prompt: str, answer: Callable[[Frame], str]
) -> tuple[list[Frame], list[str]]:
    """One conversation: the calls that were made, and what was said."""
    child.initialize(tools)
    session_id = child.result("session.create", {})["session_id"]
    child.start(session_id, prompt)
    calls: list[Frame] = []
    while True:
        frame = child.find(lambda f: f.get("event") in ("client.tool.call", "run.finished"), after=len(child.frames))
        if frame["event"] == "run.finished":
            assert frame["data"]["outcome"] == "completed"
            break
        calls.append({"name": frame["data"]["name"], "arguments": frame["data"]["arguments"]})
        child.answer(frame, answer(frame["data"]), wait=False)
    final = [e["data"] for e in child.events() if e["event"] == "message.reconcile" and not e["data"]["partial"]]
    return calls, [data["text"] for data in final]


@pytest.mark.parametrize(
    "prompt", ["highlight row 3", "Please HIGHLIGHT the row 3!", "mark row 3.", "could you highlight row 3 now"]
)
def test_highlight_a_row(demo: Demo, prompt: str) -> None:
    with demo.start() as child:
        calls, said = talk(child, [SELECTION, ROW], prompt, lambda _call: "Row 3 is highlighted.")
        assert calls == [{"name": ROW["name"], "arguments": {"row_id": "3"}}]
        assert said[-1] == "The tool answered: Row 3 is highlighted."


@pytest.mark.parametrize(
    ("properties", "arguments"),
    [
        ({"row": {"type": "integer"}}, {"row": 3}),
        ({"colour": {"type": "string"}, "row_number": {"type": "number"}}, {"row_number": 3.0}),
        ({"which": {}}, {"which": "3"}),
        ({}, {"row_id": "3"}),
    ],
)
def test_names_and_types_come_from_the_schema(demo: Demo, properties: Any, arguments: Any) -> None:
    schema = {"type": "object", "properties": properties}
    with demo.start() as child:
        calls, _said = talk(child, [tool("client__a__highlight", schema=schema)], "highlight row 3", lambda _c: "ok")
        assert calls[0]["arguments"] == arguments


def test_fill_and_selection_and_echo_and_lists(demo: Demo) -> None:
    tools = [ROW, FILL, SELECTION]
    said: dict[str, list[str]] = {}
    made: dict[str, list[Frame]] = {}
    prompts = ("fill in the name with Ada Lovelace", "Read the selection", "echo Hi\nthere", "list tools", "what?")
    for prompt in prompts:
        with demo.start() as child:
            made[prompt], said[prompt] = talk(child, tools, prompt, lambda _call: "done")
    assert made[prompts[0]] == [{"name": FILL["name"], "arguments": {"field": "name", "value": "Ada Lovelace"}}]
    assert made[prompts[1]] == [{"name": SELECTION["name"], "arguments": {}}]
    assert said[prompts[2]] == ["Hi\nthere"]
    assert all(t["name"] in said[prompts[3]][0] for t in tools)
    assert "highlight row 3" in said[prompts[4]][0]
    assert [made[p] for p in prompts[2:]] == [[], [], []]


def test_a_tool_that_is_not_native_is_used_through_the_gateways_own(demo: Demo) -> None:
    def answer(call: Frame) -> str:
        if call["name"] == "client__use":
            return "Row 3 is highlighted."
        if "tool" in call["arguments"]:
            return 'client__web__highlight_row: marks a row. {"type":"object","properties":{"line":{"type":"integer"}}}'
        return "client__web__other: x\nclient__web__highlight_row: marks a row"

    with demo.start() as child:
        calls, said = talk(child, [LIST, USE], "highlight row 3", answer)
        assert calls == [
            {"name": "client__tools", "arguments": {}},
            {"name": "client__tools", "arguments": {"tool": "client__web__highlight_row"}},
            {"name": "client__use", "arguments": {"tool": "client__web__highlight_row", "arguments": {"line": 3}}},
        ]
        assert said[-1] == "The tool answered: Row 3 is highlighted."


def test_nobody_offers_the_tool(demo: Demo) -> None:
    for tools in ([], [LIST, USE]):
        with demo.start() as child:
            _calls, said = talk(child, tools, "highlight row 3", lambda _call: "nothing")
            assert said[-1].startswith("Nobody offers a tool")
