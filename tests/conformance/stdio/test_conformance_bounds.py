"""Every bound, at it and one over, on the demo agent and on the real child (stdio protocol, Framing, Client tools).

Over a bound the adapter refuses first and spends nothing; what the child itself would say is asked by forging.
"""

import asyncio
import json
from typing import Any

import pytest

from adapters.stdio.events import LostRequest, Response
from adapters.stdio.frames import Activity, ToolCall, ToolCancel
from adapters.stdio.outgoing import WINDOW
from adapters.stdio.requests import Request, TooLargeError, ToolDescriptor
from gateway.model.clean import ModelJson, ModelText
from gateway.model.redaction import ours_for_model
from tests.doubles.python_child import until
from tests.doubles.stdio_subject import CALL, SAY, Subject, X

ONE_MORE = pytest.mark.parametrize("over", [0, 1], ids=["at", "over"])


@ONE_MORE
@pytest.mark.parametrize("character", ["x", "é"])
async def test_a_prompt_has_16384_bytes(subject: Subject, over: int, character: str):
    life = await subject.begin()
    prompt = character * (16_384 // len(character.encode())) + "y" * over
    if over:
        with pytest.raises(TooLargeError, match="prompt_bytes"):
            life.protocol.turn_start(life.session, ModelText(prompt))
    code = await life.forged("turn.start", {"session_id": life.session, "prompt": prompt})
    assert code == ("invalid_params" if over else "")


@ONE_MORE
async def test_a_request_id_has_64_bytes(subject: Subject, over: int):
    life = await subject.begin()
    request = life.forge("status", {}, "r" * (64 + over))
    if over:
        assert await life.raw(request.data) == "invalid_request"
    else:
        await life.ask(request)


@ONE_MORE
async def test_an_input_frame_has_65536_bytes(subject: Subject, over: int):
    life = await subject.begin()
    bare = len(life.forge("status", {"x": ""}, "sized").data) - 1
    request = life.forge("status", {"x": "y" * (65_536 + over - bare)}, "sized")
    if over:
        assert await life.raw(request.data) == "frame_too_large"
        assert (await asyncio.wait_for(life.child.wait(), 10)).code == 0
    else:
        assert await life.refused(request) == "invalid_params"


@ONE_MORE
async def test_an_input_frame_is_32_containers_deep(subject: Subject, over: int):
    life = await subject.begin()
    value: Any = 1
    for _ in range(30 + over):  # the frame and its params are two
        value = [value]
    request = life.forge("status", {"x": value})
    if over:
        assert await life.raw(request.data) == "invalid_frame"
    else:
        assert await life.refused(request) == "invalid_params"


@ONE_MORE
async def test_a_results_text_has_32768_bytes(subject: Subject, over: int):
    life = await subject.begin()
    await life.turn(CALL, {"text": "done"})
    call = await life.call()
    text = "x" * (32_768 + over)
    if over:
        with pytest.raises(TooLargeError, match="result_bytes"):
            life.result(call, text)
        assert await life.forged("client.tool.result", life.identity(call, text=text)) == "invalid_params"
        text = "corrected"
    await life.ask(life.result(call, text))
    assert (await life.finished()).outcome == "completed"


@ONE_MORE
async def test_a_result_with_a_structured_value_has_32738_bytes(subject: Subject, over: int):
    life = await subject.begin()
    await life.turn(CALL, {"text": "done"})
    call = await life.call()
    text = "x" * (32_738 - 7 + over)
    if over:
        with pytest.raises(TooLargeError, match="result_bytes"):
            life.result(call, text, b'{"a":1}')
        params = life.identity(call, text=text, structured={"a": 1})
        assert await life.forged("client.tool.result", params) == "invalid_params"
        text = "corrected"
    await life.ask(life.result(call, text, b'{"a":1}'))
    assert (await life.finished()).outcome == "completed"


async def test_an_answers_frame_may_have_every_byte_of_its_bound(subject: Subject):
    life = await subject.begin()
    await life.turn(CALL, {"text": "done"})
    call = await life.call()
    room = life.protocol.result_room(call.call_id)
    with pytest.raises(TooLargeError, match="frame_bytes"):
        life.result(call, "\u0001" * 12_000)
    await life.ask(life.result(call, "\u0001" * 7_000 + "x" * (room.encoded - 42_000)))
    assert (await life.finished()).outcome == "completed"


def descriptor(name: str = "client__y", description: str = "A tool.", schema: Any = None, timeout_ms: int = 30_000):
    encoded = json.dumps({"type": "object", **(schema or {})}, separators=(",", ":")).encode()
    return ToolDescriptor(name, ModelText(description), ModelJson(encoded), timeout_ms)


def registries() -> dict[str, tuple[list[ToolDescriptor], list[ToolDescriptor]]]:
    """At the bound, and one over."""
    empty = len(descriptor(schema={"description": ""}).input_schema)
    room = 32_768 - len(_registry([descriptor(f"client__t{n}", "x" * 2_048) for n in range(14)])) - 2_000
    large = [descriptor(f"client__t{n}", "x" * 2_048) for n in range(14)]
    rest = [descriptor("client__rest", "x" * 1_000, {"description": "x" * room})]
    spare = 32_768 - len(_registry(large + rest))
    rest = [descriptor("client__rest", "x" * 1_000, {"description": "x" * (room + spare)})]
    more = [descriptor("client__rest", "x" * 1_000, {"description": "x" * (room + spare + 1)})]
    chain: dict[str, Any] = {"type": "object"}
    return {
        "32 tools": (
            [descriptor(f"client__t{n}") for n in range(32)],
            [descriptor(f"client__t{n}") for n in range(33)],
        ),
        "name of 64 bytes": ([descriptor("client__" + "n" * 56)], [descriptor("client__" + "n" * 57)]),
        "description of 2048 bytes": (
            [descriptor(description="é" * 1_024)],
            [descriptor(description="é" * 1_024 + "x")],
        ),
        "schema of 8192 bytes": (
            [descriptor(schema={"description": "x" * (8_192 - empty)})],
            [descriptor(schema={"description": "x" * (8_193 - empty)})],
        ),
        "schema 16 deep": (
            [ToolDescriptor("client__y", ours_for_model("A tool."), ModelJson(_nested(chain, 16)))],
            [ToolDescriptor("client__y", ours_for_model("A tool."), ModelJson(_nested(chain, 17)))],
        ),
        "registry of 32768 bytes": (large + rest, large + more),
        "timeout of 1000 ms": ([descriptor(timeout_ms=1_000)], [descriptor(timeout_ms=999)]),
        "timeout of 300000 ms": ([descriptor(timeout_ms=300_000)], [descriptor(timeout_ms=300_001)]),
    }


def _nested(root: dict[str, Any], levels: int) -> bytes:
    inner: dict[str, Any] = {}
    for _ in range(levels - 2):
        inner = {"not": inner}
    return json.dumps({**root, "not": inner}, separators=(",", ":")).encode()


def _json(tools: list[ToolDescriptor]) -> list[dict[str, Any]]:
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": json.loads(tool.input_schema),
            "timeout_ms": tool.timeout_ms,
        }
        for tool in tools
    ]


def _registry(tools: list[ToolDescriptor]) -> bytes:
    return json.dumps(_json(tools), separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize("bound", registries())
async def test_a_registry_at_a_bound_is_taken_and_one_over_is_not(subject: Subject, bound: str):
    at, over = registries()[bound]
    life = await subject.start()
    with pytest.raises(Exception, match=r"at most|client__ and 1 to 56"):
        life.protocol.initialize(over)
    params = {"required_capabilities": ["client.tools"], "client_tools": _json(over)}
    assert await life.forged("initialize", params) == "invalid_params"
    await life.initialize(at)


@ONE_MORE
async def test_18_capabilities_may_be_required_with_tools(subject: Subject, over: int):
    life = await subject.start()
    names = ("turn.start",) * (17 + over)
    request = life.protocol.initialize([], capabilities=names)
    if over:
        assert await life.refused(request) == "invalid_params"
    else:
        await life.ask(request)


@ONE_MORE
async def test_16_capabilities_may_be_required_without_tools(subject: Subject, over: int):
    life = await subject.start()
    request = life.protocol.initialize(None, capabilities=("turn.start",) * (16 + over))
    if over:
        assert await life.refused(request) == "invalid_params"
    else:
        await life.ask(request)


@ONE_MORE
async def test_a_calls_arguments_have_16384_bytes(subject: Subject, over: int):
    life = await subject.begin()
    call = {"name": X.name, "arguments": {"a": "x"}, "sized": {"b": 16_384 - len('{"a":"x","b":""}') + over}}
    await life.turn({"calls": [call]}, SAY)
    if over:
        assert (await life.finished()).outcome == "completed"
        assert life.heard.of(ToolCall) == []
        assert "client_tool_payload_limit" in life.said()
    else:
        found = await life.call()
        assert len(bytes(found.arguments)) == 16_384
        await life.ask(life.result(found))
        assert (await life.finished()).outcome == "completed"


async def test_sixteen_calls_are_open_at_once_and_the_seventeenth_is_busy(demo: Subject):
    life = await demo.begin()
    await life.turn({"calls": CALL["calls"] * 17, "parallel": True}, SAY)
    calls = await life.heard.many(ToolCall, 16)
    assert len(life.protocol.open_calls) == 16
    await until(lambda: any(activity.state == "failed" for activity in life.heard.of(Activity)))  # the seventeenth
    for call in reversed(calls):
        await life.ask(life.result(call))
    assert (await life.finished()).outcome == "completed"
    assert len(life.heard.of(ToolCall)) == 16


async def test_sixteen_calls_of_subagents_are_told_apart(subject: Subject):
    life = await subject.begin()
    leaf = json.dumps({"steps": [CALL, SAY]})
    inner = {"name": "subagents", "arguments": {"intent": "b", "tasks": [{"intent": "leaf", "context": leaf}] * 4}}
    branch = json.dumps({"steps": [{"calls": [inner]}, SAY]})
    outer = {"name": "subagents", "arguments": {"intent": "a", "tasks": [{"intent": "branch", "context": branch}] * 4}}
    await life.turn({"calls": [outer]}, {"text": "done"})
    calls: list[ToolCall] = await life.heard.many(ToolCall, 16, within=40)
    assert len(life.protocol.open_calls) == 16
    assert len({call.call_id for call in calls}) == 16
    assert len({(call.task_id, call.subagent_id) for call in calls}) == 16
    wrong = life.identity(calls[0], task_id=calls[1].task_id, subagent_id=calls[1].subagent_id)
    assert await life.forged("client.tool.result", wrong) == "stale_client_tool_call"
    await asyncio.gather(*(life.ask(life.result(call)) for call in reversed(calls)))
    assert (await life.finished()).outcome == "completed"
    assert life.heard.of(ToolCancel) == []


@pytest.mark.parametrize("count", [32, 33])
async def test_33_requests_in_one_read_end_the_child_and_the_adapter_never_writes_so_many(subject: Subject, count: int):
    life = await subject.begin()
    for _ in range(200):
        life.child.send(life.protocol.status())
        assert len(life.protocol.in_flight) - len(life.protocol._queue) <= WINDOW
    async with asyncio.timeout(20):
        while life.protocol.in_flight:
            await asyncio.sleep(0.01)
    assert life.child.exit is None
    burst = [life.protocol.status() for _ in range(count)]
    data = b"".join(request.data for request in burst)
    assert len(data) <= 4_096
    life.child._stdin.write(data)
    if count == 33:
        assert (await asyncio.wait_for(life.child.wait(), 10)).code == 1
    else:
        answered = await life.heard.many(Response, 2 + 200 + count)
        assert answered[-1].error is None


async def test_the_adapter_measures_before_it_spends(subject: Subject):
    life = await subject.begin()
    left = life.protocol.requests_left
    with pytest.raises(TooLargeError):
        life.protocol.turn_start(life.session, ModelText("x" * 16_385))
    assert life.protocol.requests_left == left
    assert life.heard.of(LostRequest) == []
    assert isinstance(life.protocol.status(), Request)
