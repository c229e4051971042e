"""What stands between a model and a client's tool inside the child: its hooks, and the permissions of a delegated task
that is resumed (stdio protocol, Client tools).

A delegated task of the real child is a session of its own below ``sessions/subagents``. Resuming one is opening it:
its file is put among the sessions first.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from adapters.stdio.frames import Activity, ToolCall
from adapters.stdio.requests import ToolDescriptor
from gateway.model.clean import ModelJson
from gateway.model.redaction import ours_for_model, ours_for_model_json
from tests.doubles.stdio_subject import CALL, SAY, Life, Subject, X

Y = ToolDescriptor("client__y", ours_for_model("A tool."), ours_for_model_json('{"type":"object"}'), 2_000)
LIMIT = 16_384
EMPTY = len(b'{"text":""}')


def results(life: Life) -> list[str]:
    """What the model heard of its calls."""
    return json.loads(life.said())


# STDIO-CAN-10: hooks before and after a call.


async def test_a_hook_that_refuses_a_call_keeps_it_from_the_client(subject: Subject):
    subject.hooks = {
        "before_tool": [{"command": "exit 3", "failure_policy": "block", "include_tools": [Y.name]}],
    }
    life = await subject.begin(tools=[X, Y])
    refused = {"name": Y.name, "arguments": {}, "hook": {"refuse": True}}
    await life.turn(CALL, {"calls": [refused]}, SAY)
    await life.ask(life.result(await life.call(), "row"))
    assert (await life.finished()).outcome == "completed"
    assert [call.name for call in life.heard.of(ToolCall)] == [X.name], "the client never heard of the other"
    row, said = results(life)
    assert row == "row"
    assert "blocked" in said
    assert [event.state for event in life.heard.of(Activity)] == ["started", "completed", "started", "failed"]


@pytest.mark.peers
@pytest.mark.parametrize("subject", ["magi"], indirect=True)
async def test_hooks_see_a_call_and_its_result_and_change_neither(subject: Subject, tmp_path: Path):
    """What a hook prints is taken for no arguments and no result."""
    seen = tmp_path / "seen"
    keep = f'cat >> {seen}; echo >> {seen}; echo \'{{"request":{{"n":2}},"result":{{"content":"other"}}}}\''
    watching = [{"command": keep, "include_tools": [X.name]}]
    subject.hooks = {"payload": "full", "before_tool": watching, "after_tool": watching}
    life = await subject.begin()
    await life.turn({"calls": [{"name": X.name, "arguments": {"n": 1}}]}, SAY)
    call = await life.call()
    assert json.loads(bytes(call.arguments)) == {"n": 1}
    await life.ask(life.result(call, "row"))
    assert (await life.finished()).outcome == "completed"
    assert results(life) == ["row"]
    before, after = (json.loads(line) for line in seen.read_text().splitlines())
    assert (before["phase"], before["request"]) == ("before_tool", {"n": 1})
    assert (after["phase"], after["result"]["content"], after["result"]["success"]) == ("after_tool", "row", True)


async def test_arguments_that_a_hook_made_are_measured_again(demo: Subject):
    life = await demo.begin()
    made: Sequence[Any] = (
        {"sized": {"text": LIMIT - EMPTY}},
        {"sized": {"text": LIMIT - EMPTY + 1}},
        {"arguments": ["no object"]},
    )
    await life.turn({"calls": [{"name": X.name, "arguments": {"n": 1}, "hook": hook} for hook in made]}, SAY)
    call = await life.call()
    assert len(bytes(call.arguments)) == LIMIT
    await life.ask(life.result(call, "row"))
    assert (await life.finished()).outcome == "completed"
    assert results(life) == ["row", "client_tool_payload_limit", "client_tool_payload_limit"]
    assert len(life.heard.of(ToolCall)) == 1


async def test_arguments_beyond_the_bound_reach_no_hook(demo: Subject):
    life = await demo.begin()
    shrinking = {"name": X.name, "sized": {"text": LIMIT}, "hook": {"arguments": {}}}
    await life.turn({"calls": [shrinking]}, SAY)
    assert (await life.finished()).outcome == "completed"
    assert results(life) == ["client_tool_payload_limit"]


# STDIO-CAN-15: delegated tasks that are resumed.


async def delegated(
    subject: Subject,
    *tools: ToolDescriptor,
    change: Callable[[dict[str, Any]], object] | None = None,
    **task: Any,
) -> str:
    """A delegated task of a child with these tools, made a session that can be opened: its id. ``change`` edits the
    permissions that were saved with it."""
    life = await subject.begin(tools=tools)
    work = {"intent": "look", "context": json.dumps({"steps": [{"text": "done"}]}), **task}
    await life.turn({"calls": [{"name": "subagents", "arguments": {"intent": "ask", "tasks": [work]}}]}, SAY)
    assert (await life.finished()).outcome == "completed"
    await life.child.stop()
    (file,) = (path for path in subject.session_files() if path.parent.name == "subagents")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0]["event_type"] == "task_scope"
    if change is not None:
        change(lines[0]["payload"]["ceiling"])
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for part in file.parent.glob(f"{file.stem}.*"):
        shutil.copy(part, file.parent.parent)
    return file.stem


async def resumed(subject: Subject, session: str, *tools: ToolDescriptor) -> tuple[list[str], list[str]]:
    """Opens it in a child with these tools and calls each: the names that reached the client, and what the model heard
    of each call. A call that reaches the client is answered."""
    life = await subject.start()
    await life.ask(life.protocol.initialize(tools))
    await life.attach(session)
    calls = {"calls": [{"name": tool.name, "arguments": {}} for tool in tools]}
    finished = await life.play(calls, SAY, answer=lambda call: f"answer of {call.name}")
    assert finished.outcome == "completed"
    return [call.name for call in life.heard.of(ToolCall)], results(life)


@pytest.mark.peers
@pytest.mark.parametrize("subject", ["magi"], indirect=True)
async def test_a_resumed_task_reaches_what_has_stayed_as_it_was(subject: Subject):
    changed = ToolDescriptor(Y.name, ours_for_model("Another description."), Y.input_schema, Y.timeout_ms)
    new = ToolDescriptor("client__z", ours_for_model("A tool."), ours_for_model_json('{"type":"object"}'), 2_000)
    session = await delegated(subject, X, Y)
    reached, heard = await resumed(subject, session, X, changed, new)
    assert reached == [X.name]
    assert heard[0] == f"answer of {X.name}"
    assert all("disabled" in text for text in heard[1:])


@pytest.mark.peers
@pytest.mark.parametrize("subject", ["magi"], indirect=True)
async def test_keys_in_another_order_are_no_change_and_a_list_in_another_order_is_one(subject: Subject):
    def made(name: str, schema: bytes) -> ToolDescriptor:
        return ToolDescriptor(name, X.description, ModelJson(schema), X.timeout_ms)

    keys = b'{"type":"object","properties":{"a":{},"b":{}}}', b'{"properties":{"b":{},"a":{}},"type":"object"}'
    items = b'{"type":"object","required":["a","b"]}', b'{"type":"object","required":["b","a"]}'
    session = await delegated(subject, made(X.name, keys[0]), made(Y.name, items[0]))
    reached, _ = await resumed(subject, session, made(X.name, keys[1]), made(Y.name, items[1]))
    assert reached == [X.name]


@pytest.mark.peers
@pytest.mark.parametrize("subject", ["magi"], indirect=True)
async def test_a_task_whose_saved_permissions_name_no_client_tools_reaches_none(subject: Subject):
    session = await delegated(subject, X, Y, change=lambda saved: saved.pop("client_tools"))
    reached, heard = await resumed(subject, session, X, Y)
    assert reached == []
    assert all("disabled" in text for text in heard)


@pytest.mark.peers
@pytest.mark.parametrize("subject", ["magi"], indirect=True)
async def test_an_inspection_task_reaches_none_when_it_is_resumed(subject: Subject):
    session = await delegated(subject, X, Y, mode="inspect")
    reached, heard = await resumed(subject, session, X, Y)
    assert reached == []
    assert all(text != f"answer of {X.name}" for text in heard)
    assert len(heard) == 2
