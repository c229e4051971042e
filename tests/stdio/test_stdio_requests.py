"""What is written to a child is measured first (stdio protocol, Framing, Client tools, Seen; bridge 6)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.stdio.protocol import CAPABILITIES, ChildProtocol
from adapters.stdio.requests import TooLargeError, ToolDescriptor, UnfitError, compact_json, encoded_bytes, utf8_bytes
from gateway.model.clean import ModelJson, ModelText
from gateway.model.redaction import ours_for_model, ours_for_model_json
from tests.doubles.child_frames import RUN, SESSION, FrameWriter

TOOL = ToolDescriptor("client__page__read", ours_for_model("Reads a row."), ours_for_model_json('{"type":"object"}'))


@pytest.fixture
def machine() -> ChildProtocol:
    machine, child = ChildProtocol(), FrameWriter()
    request = machine.initialize([TOOL])
    machine.receive(child.initialized(request.id, [TOOL.name], [*CAPABILITIES, "client.tools"]))
    turn = machine.turn_start(SESSION, ModelText("hello"))
    machine.receive(child.result(turn.id, {"run_id": RUN, "accepted": True}))
    machine.receive(child.call())
    return machine


def result(machine: ChildProtocol, text: str, structured: bytes | None = None):
    return machine.tool_result(
        "call-1",
        status="success",
        text=ModelText(text),
        structured=None if structured is None else ModelJson(structured),
    )


def refused(machine: ChildProtocol, text: str, structured: bytes | None = None) -> TooLargeError:
    left = machine.requests_left
    with pytest.raises(TooLargeError) as info:
        result(machine, text, structured)
    assert machine.requests_left == left, "a refused frame spends no id"
    assert list(machine.open_calls) == ["call-1"]
    return info.value


def test_text_is_raw_utf8_and_only_what_must_be_is_escaped(machine: ChildProtocol):
    data = result(machine, 'é\u2028\u007f😀"\\\n\u0001').data
    assert 'é\u2028\u007f😀\\"\\\\\\n\\u0001'.encode() in data
    assert data.count(b"\n") == 1


@pytest.mark.parametrize("character", ["x", "é", "😀"])
def test_a_result_has_32768_bytes(machine: ChildProtocol, character: str):
    size = len(character.encode())
    error = refused(machine, character * (32_768 // size) + "y")
    assert (error.bound, error.size, error.limit) == ("result_bytes", 32_769, 32_768)
    assert result(machine, character * (32_768 // size))


def test_structured_counts_compactly_and_its_null_is_something(machine: ChildProtocol):
    assert refused(machine, "x" * 32_735, b"null").size == 32_739
    request = result(machine, "x" * 32_734, b"  null ")
    assert request.data.endswith(b'"structured":null}}\n')


def test_what_must_be_escaped_counts_in_the_frame(machine: ChildProtocol):
    error = refused(machine, "\u0001" * 12_000)
    assert error.bound == "frame_bytes"
    assert error.size > 72_000
    assert error.limit == 65_536


def test_32400_quotes_just_fit(machine: ChildProtocol):
    assert len(result(machine, '"' * 32_400).data) <= 65_537


def test_a_frame_of_65536_bytes_is_written_and_one_more_is_not(machine: ChildProtocol):
    room = machine.result_room("call-1")
    assert room.raw == 32_768
    text = "\u0001" * 7_000 + "x" * (room.encoded - 42_000)
    assert encoded_bytes(text) == room.encoded
    text += "xxx"  # the room is that of the longest request id, which has three digits more
    error = refused(machine, text + "y")
    assert (error.bound, error.size, error.limit) == ("frame_bytes", 65_537, 65_536)
    assert len(result(machine, text).data) == 65_537, "with the LF"


@pytest.mark.parametrize(("depth", "good"), [(30, True), (31, False), (40, False)])
def test_structured_may_be_so_deep_that_the_frame_has_32_levels(machine: ChildProtocol, depth: int, good: bool):
    structured = b"[" * depth + b"]" * depth
    if good:
        assert result(machine, "", structured)
    else:
        assert refused(machine, "", structured).bound == "json_depth"


@pytest.mark.parametrize(
    "structured", [b"", b"{", b'"\\ud800"', b'"\xff"', b"NaN", b"1e400", b'{"a":1,"a":2}', b"[1,]", b"1 2"]
)
def test_structured_that_a_reader_might_refuse_is_not_written(machine: ChildProtocol, structured: bytes):
    with pytest.raises(UnfitError):
        result(machine, "", structured)
    assert list(machine.open_calls) == ["call-1"]


def test_a_lone_surrogate_is_not_written(machine: ChildProtocol):
    with pytest.raises(UnfitError):
        result(machine, "a\ud800b")


@settings(deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200), st.integers(0, 3))
def test_what_fits_the_room_is_written(text: str, times: int):
    machine, child = ChildProtocol(), FrameWriter()
    request = machine.initialize([TOOL])
    machine.receive(child.initialized(request.id, [TOOL.name], [*CAPABILITIES, "client.tools"]))
    turn = machine.turn_start(SESSION, ModelText("hello"))
    machine.receive(child.result(turn.id, {"run_id": RUN, "accepted": True}))
    machine.receive(child.call())
    text *= 1 + times * 100
    room = machine.result_room("call-1", ModelJson(b'{"a":1}'))
    fits = utf8_bytes(text) <= room.raw and encoded_bytes(text) <= room.encoded
    if fits:
        assert json.loads(result(machine, text, b'{"a":1}').data)["params"]["text"] == text
    elif utf8_bytes(text) > room.raw:
        assert refused(machine, text, b'{"a":1}').bound == "result_bytes"


@settings(deadline=None)
@given(
    st.recursive(st.none() | st.integers() | st.text(max_size=6), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_compact_json_keeps_the_value_and_sheds_escapes(value: object):
    text = json.dumps(value, indent=2, ensure_ascii=True)
    compact = compact_json(text.encode())
    assert json.loads(compact) == value
    assert len(compact) <= len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


# Prompts.


def test_a_prompt_has_16384_bytes(machine: ChildProtocol):
    assert machine.turn_start(SESSION, ModelText("é" * 8_192))
    with pytest.raises(TooLargeError) as info:
        machine.turn_start(SESSION, ModelText("é" * 8_192 + "x"))
    assert (info.value.bound, info.value.size) == ("prompt_bytes", 16_385)


def test_a_prompt_of_controls_has_the_bound_of_its_frame(machine: ChildProtocol):
    with pytest.raises(TooLargeError) as info:
        machine.turn_start(SESSION, ModelText("\u0001" * 16_384))
    assert info.value.bound == "frame_bytes"


@pytest.mark.parametrize("prompt", ["", " \n\t\u2003"])
def test_a_blank_prompt_is_not_written(machine: ChildProtocol, prompt: str):
    with pytest.raises(UnfitError):
        machine.turn_start(SESSION, ModelText(prompt))


# Registries.


def tool(**fields: object) -> ToolDescriptor:
    return ToolDescriptor(**{"name": "client__x", "description": "x", "input_schema": b"{}", **fields})  # pyright: ignore[reportArgumentType]


def test_a_registry_is_written_compactly_in_its_order():
    tools = [tool(name="client__b", input_schema=b'{ "type" : "object" }'), tool(name="client__a", timeout_ms=1_000)]
    params = json.loads(ChildProtocol().initialize(tools).data)["params"]
    assert params["required_capabilities"] == [*CAPABILITIES, "client.tools"]
    assert [each["name"] for each in params["client_tools"]] == ["client__b", "client__a"]
    assert b'"input_schema":{"type":"object"}' in ChildProtocol().initialize(tools).data


def test_no_registry_and_an_empty_one_are_two_things():
    assert b"client" not in ChildProtocol().initialize(None).data
    assert b'"client_tools":[]' in ChildProtocol().initialize([]).data


@pytest.mark.parametrize(
    ("tools", "bound"),
    [
        ([tool(name=f"client__{n}") for n in range(33)], "tools"),
        ([tool(description="é" * 1_024 + "x")], "description_bytes"),
        ([tool(input_schema=b'{"title":"' + b"x" * 8_181 + b'"}')], "schema_bytes"),
        ([tool(input_schema=b'{"not":' * 17 + b"{}" + b"}" * 17)], "schema_depth"),
        ([tool(name=f"client__{n}", description="x" * 2_000) for n in range(17)], "registry_bytes"),
        ([tool(timeout_ms=999)], "timeout_ms"),
        ([tool(timeout_ms=300_001)], "timeout_ms"),
    ],
)
def test_a_registry_beyond_a_bound_is_not_written(tools: list[ToolDescriptor], bound: str):
    machine = ChildProtocol()
    with pytest.raises(TooLargeError) as info:
        machine.initialize(tools)
    assert info.value.bound == bound
    assert machine.requests_left == 4096


def test_a_registry_at_its_bounds_is_written():
    full = [tool(name=f"client__{n:02}", description="x" * 900) for n in range(32)]
    assert ChildProtocol().initialize(full)
    schema = b'{"title":"' + b"x" * 8_180 + b'"}'
    assert len(schema) == 8_192
    assert ChildProtocol().initialize([tool(input_schema=schema, name="client__" + "x" * 56, description="é" * 1_024)])


@pytest.mark.parametrize(
    "bad",
    [
        tool(name="client__"),
        tool(name="client__a-b"),
        tool(name="other__a"),
        tool(name="client__" + "x" * 57),
        tool(description=" "),
        tool(description="a\rb"),
        tool(description="a\x7fb"),
        tool(input_schema=b"{"),
    ],
)
def test_a_tool_that_the_child_would_refuse_is_not_written(bad: ToolDescriptor):
    with pytest.raises(UnfitError):
        ChildProtocol().initialize([bad])


def test_two_tools_of_one_name_are_not_written():
    with pytest.raises(UnfitError):
        ChildProtocol().initialize([tool(), tool()])
