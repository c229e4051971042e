"""The machine of a child's frames: what it reads, what it refuses to read, what it remembers (stdio protocol)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.stdio.events import EndOfOutput, LateEvent, LostRequest, Noise, Response, Violation
from adapters.stdio.frames import (
    Activity,
    Attached,
    Diagnostic,
    MessageDelta,
    RunFinished,
    Status,
    ToolCall,
    ToolCancel,
    ToolCard,
)
from adapters.stdio.protocol import CAPABILITIES, ChildProtocol
from adapters.stdio.requests import CallClosedError, RequestsSpentError, ToolDescriptor
from gateway.model.clean import ModelText
from tests.doubles.child_frames import INSTANCE, RUN, SCOPE, SESSION, FrameWriter, line

TOOL = ToolDescriptor("client__page__read", "Reads a row.", b'{"type":"object"}')


def started(*, cards: bool = False) -> tuple[ChildProtocol, FrameWriter]:
    """A machine with one registered tool and a run under way."""
    machine, child = ChildProtocol(), FrameWriter()
    request = machine.initialize([TOOL], cards=cards)
    extra = ["client.tools", "tool.cards"] if cards else ["client.tools"]
    machine.receive(child.initialized(request.id, [TOOL.name], [*CAPABILITIES, *extra]))
    turn = machine.turn_start(SESSION, ModelText("hello"))
    machine.receive(child.result(turn.id, {"run_id": RUN, "accepted": True}))
    assert machine.active_run == RUN
    return machine, child


def violation_of(machine: ChildProtocol, data: bytes) -> Violation:
    events = machine.receive(data)
    assert len(events) == 1, events
    assert isinstance(events[0], Violation), events
    return events[0]


def answer(machine: ChildProtocol, call_id: str = "call-1", text: str = "done"):
    return machine.tool_result(call_id, status="success", text=ModelText(text))


# Reading.


def test_a_call_is_read_answered_and_closed():
    machine, child = started()
    (call,) = machine.receive(child.call(task_id="g1", subagent_id="call_1_0/g2 \u2028é"))
    assert isinstance(call, ToolCall)
    assert bytes(call.arguments) == b'{"row":42}'
    request = answer(machine)
    sent = json.loads(request.data)
    assert request.data.endswith(b"\n")
    assert sent == {
        "protocol": "magi-code.local-agent",
        "version": 1,
        "id": "r3",
        "method": "client.tool.result",
        "params": {
            "instance_id": INSTANCE,
            "session_id": SESSION,
            "run_id": RUN,
            "call_id": "call-1",
            "task_id": "g1",
            "subagent_id": "call_1_0/g2 \u2028é",
            "status": "success",
            "text": "done",
        },
    }
    (response,) = machine.receive(child.result(request.id, {"accepted": True}))
    assert isinstance(response, Response)
    assert response.request.call_id == "call-1"
    assert not machine.in_flight
    with pytest.raises(CallClosedError):
        answer(machine)


@given(st.data())
def test_any_split_of_a_life_gives_the_same_events(data: st.DataObject):
    machine, child = started()
    stream = b"".join(
        [
            b"\xef\xbb\xbfmagi 1.0\r\n\n\n",
            child.event("activity", activity_id="a", kind="tool", state="started", name="x\u2028y", summary="z\x85"),
            b"\x1b[32mready\x1b[0m\r\n",
            child.event("message.delta", message_id="m", part=0, text="a\u2029b\vc\fd\re"),
            child.call(),
            b'{"bad\n',
            child.cancel(),
            child.finished(),
        ]
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    events = [event for piece in pieces for event in machine.receive(piece)] + machine.receive_eof()
    twin, _ = started()
    assert events == twin.receive(stream) + twin.receive_eof()
    assert [type(event) for event in events if not isinstance(event, Noise)] == [
        Activity,
        MessageDelta,
        ToolCall,
        ToolCancel,
        RunFinished,
        EndOfOutput,
    ]
    assert sum(machine.noise.values()) == 7


def test_noise_is_counted_and_told_at_powers_of_two():
    machine, child = started()
    events = machine.receive(b"\n" * 1000)
    assert [event.count for event in events if isinstance(event, Noise)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert machine.noise == {"blank": 1000}
    assert len(machine.receive(child.event("diagnostic", code="x", summary=""))) == 1


@pytest.mark.parametrize(
    ("noise", "kind"),
    [
        (b"", "blank"),
        (b"  \t\r", "blank"),
        (b"\xef\xbb\xbf", "bom"),
        (b"hello", "not_json"),
        (b"{bad", "not_json"),
        (b"\xff\xfe{", "not_json"),
        (b'{"a":"\xff"}', "not_a_frame"),
        (b"\x1b[1mhello\x1b[0m", "ansi"),
        (b"[1,2]", "not_json"),
        (b'{"level":"info","protocol":"http"}', "not_a_frame"),
        (b'{"a":' * 64, "not_json"),
        (b'{"a":' * 12_000, "not_json"),
        (b'{"a":' * 200_000, "overlong"),
        (b"[" * 200_000, "overlong"),
        (b"x" * 65_535, "not_json"),
        (b"x" * 65_536, "overlong"),
        (b"x" * 3_000_000, "overlong"),
        (b"y" * 17_000_000, "overlong"),
    ],
)
def test_a_good_frame_after_noise_is_read(noise: bytes, kind: str):
    machine, child = started()
    events = machine.receive(noise + b"\n" + child.event("diagnostic", code="x", summary=""))
    assert isinstance(events[-1], Diagnostic)
    assert machine.noise[kind] == 1  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"\xef\xbb\xbf", b""), (b"\x1b[0m", b""), (b"", b"\x1b[0m"), (b" \t", b" \r"), (b"\x1b]0;title\x07", b"")],
)
def test_a_frame_with_noise_around_it_is_a_frame(before: bytes, after: bytes):
    machine, child = started()
    frame = child.event("diagnostic", code="x", summary="").removesuffix(b"\n")
    assert isinstance(machine.receive(before + frame + after + b"\n")[-1], Diagnostic)


@pytest.mark.parametrize(("size", "good"), [(65_535, True), (65_536, True), (65_537, False)])
def test_a_frame_may_have_65536_bytes_with_its_lf(size: int, good: bool):
    machine, child = started()
    frame = child.event("message.delta", message_id="m", part=0, text="@")
    frame = frame.replace(b"@", b"x" * (size - len(frame) + 1))
    assert len(frame) == size
    (event,) = machine.receive(frame)
    if good:
        assert isinstance(event, MessageDelta)
    else:
        assert event == Violation("frame_too_large", "65537 bytes, at most 65536")


@pytest.mark.parametrize("depth", [30, 31, 64, 1_000, 10_000])
def test_arguments_may_be_so_deep_that_the_frame_has_32_levels(depth: int):
    machine, child = started()
    frame = child.call(arguments="@").replace(b'"@"', b'{"a":' * depth + b"1" + b"}" * depth)
    (event,) = machine.receive(frame)
    if depth == 30:
        assert isinstance(event, ToolCall)
    else:
        assert isinstance(event, Violation)
        assert event.reason == "frame_too_deep"


def changed(frame: bytes, **fields: object) -> bytes:
    value = json.loads(frame)
    for name, field in fields.items():
        if field is ...:
            del value[name]
        else:
            value[name] = field
    return line(value)


VIOLATIONS = {
    "another protocol": (lambda c: changed(c.call(), protocol="other"), "protocol_mismatch"),
    "another version": (lambda c: changed(c.call(), version=2), "protocol_mismatch"),
    "an unknown type": (lambda c: changed(c.call(), type="push"), "unknown_frame_type"),
    "an unknown event": (lambda c: c.event("run.paused"), "unknown_event"),
    "an unknown field of the envelope": (lambda c: changed(c.call(), extra=1), "unknown_field"),
    "an unknown field of a call": (lambda c: c.call(extra=1), "unknown_field"),
    "an unknown field of a cancel": (lambda c: c.cancel(extra=1), "unknown_field"),
    "an unknown reason": (lambda c: c.cancel(reason="bored"), "unknown_value"),
    "an unknown outcome": (lambda c: c.finished(outcome="paused"), "unknown_value"),
    "an unknown persistence": (lambda c: c.finished(persistence="maybe"), "unknown_value"),
    "an unknown error code of a run": (lambda c: c.finished(error_code="odd"), "unknown_error_code"),
    "an unknown kind of activity": (
        lambda c: c.event("activity", activity_id="a", kind="x", state="started", name="", summary=""),
        "unknown_value",
    ),
    "an unknown error code": (lambda c: c.error(None, "odd"), "unknown_error_code"),
    "a field that is missing": (lambda c: c.event("message.delta", message_id="m", part=0), "missing_field"),
    "a field of another type": (
        lambda c: c.event("message.delta", message_id="m", part="0", text=""),
        "malformed_frame",
    ),
    "no data": (lambda c: line(c.envelope("event", event="diagnostic")), "missing_field"),
    "no instance": (lambda c: changed(c.call(), instance_id=...), "missing_field"),
    "arguments that are no object": (lambda c: c.call(arguments=[1]), "malformed_frame"),
    "the same number": (lambda c: changed(c.call(), seq=2), "seq_not_rising"),
    "number 0": (lambda c: changed(c.call(), seq=0), "malformed_frame"),
    "another instance": (lambda c: changed(c.call(), instance_id="another"), "instance_changed"),
    "an answer to nothing": (lambda c: c.result("r99", {}), "unknown_response"),
    "an answer twice": (lambda c: c.result("r1", {}), "unknown_response"),
    "a result without an id": (lambda c: c.result(None, {}), "malformed_frame"),
    "result and error": (
        lambda c: line(c.envelope("response", id="r1", result={}, error={"code": "busy"})),
        "malformed_frame",
    ),
    "neither result nor error": (lambda c: line(c.envelope("response", id="r1")), "malformed_frame"),
    "an event with an id": (lambda c: changed(c.call(), id="r1"), "unknown_field"),
    "a run that was never admitted": (lambda c: c.call(run_id="other"), "unknown_run"),
    "a tool that was never registered": (lambda c: c.call(name="client__other"), "unknown_tool"),
    "a card that was not negotiated": (
        lambda c: c.event(
            "tool.card",
            activity_id="a",
            part=0,
            last_part=True,
            card={
                "schema_version": 1,
                "card_id": "a",
                "activity_id": "a",
                "revision": 0,
                "state": "running",
                "outcome": None,
                "changes": "none",
            },
        ),
        "not_negotiated",
    ),
    "a name twice in the envelope": (lambda c: c.call().replace(b'"seq":', b'"seq":1,"seq":'), "duplicate_field"),
    "a name twice in the data": (lambda c: c.call().replace(b'"name":', b'"name":"x","name":'), "duplicate_field"),
    "a name twice in the arguments": (lambda c: c.call().replace(b'"row":', b'"row":1,"row":'), "duplicate_field"),
    "a name twice in a tolerant event": (
        lambda c: c.event("diagnostic", code="x", summary="").replace(b'"code":', b'"code":"y","code":'),
        "duplicate_field",
    ),
    "a name twice in an error": (
        lambda c: c.error(None, "busy").replace(b'"code":', b'"code":"busy","code":'),
        "duplicate_field",
    ),
    "bytes that are no UTF-8": (lambda c: c.call(arguments={"a": "@"}).replace(b"@", b"\xff"), "malformed_frame"),
    "a lone surrogate": (lambda c: c.call(arguments={"a": "@"}).replace(b"@", b"\\ud800"), "malformed_frame"),
    "a torn frame": (lambda c: c.call().replace(b'"seq":', b'"seq"'), "malformed_frame"),
}


@pytest.mark.parametrize("case", VIOLATIONS)
def test_a_frame_that_breaks_the_protocol_fails_closed(case: str):
    machine, child = started()
    make, reason = VIOLATIONS[case]
    found = violation_of(machine, make(child) + child.finished())
    assert found.reason == reason
    assert machine.violation is found
    assert machine.receive(child.finished()) == []
    assert "call-1" not in found.detail


def test_fields_that_may_come_later_are_ignored_where_the_protocol_says_so():
    machine, child = started()
    request = machine.status()
    status = {"state": "running", "readiness": "ready", "standard_speed_forced": False, "new": {"a": [1]}}
    (response,) = machine.receive(child.result(request.id, status))
    assert isinstance(response, Response)
    assert isinstance(response.result, Status)
    assert isinstance(machine.receive(child.event("diagnostic", code="x", summary="", new=1))[0], Diagnostic)


def test_responses_come_in_any_order():
    machine, child = started()
    first, second = machine.session_create(), machine.status()
    events = machine.receive(
        child.result(second.id, {"state": "idle", "readiness": "ready"})
        + child.result(first.id, {"session_id": "s", "durable": False, "revision": "v", "notices": []})
    )
    assert [type(event.result) for event in events if isinstance(event, Response)] == [Status, Attached]


# Errors without an id.


def test_an_error_without_an_id_is_traced_to_what_is_in_flight():
    machine, child = started()
    first, second = machine.status(), machine.turn_cancel(SESSION, RUN)
    (lost,) = machine.receive(child.error(None, "invalid_frame"))
    assert isinstance(lost, LostRequest)
    assert [suspect.id for suspect in lost.suspects] == [first.id, second.id]
    (lost,) = machine.receive(child.error(None, "frame_too_large"))
    assert isinstance(lost, LostRequest)
    assert [suspect.id for suspect in lost.suspects] == [second.id]


def test_an_error_without_an_id_and_nothing_in_flight_has_no_suspect():
    machine, child = started()
    (lost,) = machine.receive(child.error(None, "incomplete_frame"))
    assert lost == LostRequest("incomplete_frame", ())


# Calls.


def test_a_refused_answer_leaves_the_call_open_and_a_stale_one_does_not():
    machine, child = started()
    machine.receive(child.call())
    machine.receive(child.error(answer(machine).id, "invalid_params"))
    assert list(machine.open_calls) == ["call-1"]
    machine.receive(child.error(answer(machine).id, "stale_client_tool_call"))
    with pytest.raises(CallClosedError):
        answer(machine)


@pytest.mark.parametrize("reason", ["cancelled", "timeout", "run_finished", "shutdown"])
def test_after_a_cancel_nothing_is_written_for_the_call(reason: str):
    machine, child = started()
    machine.receive(child.call())
    (cancel,) = machine.receive(child.cancel(reason=reason))
    assert isinstance(cancel, ToolCancel)
    made = machine.requests_left
    with pytest.raises(CallClosedError):
        answer(machine)
    assert machine.requests_left == made


def test_a_cancel_that_crosses_its_answer_closes_the_call():
    machine, child = started()
    machine.receive(child.call())
    request = answer(machine)
    assert isinstance(machine.receive(child.cancel())[0], ToolCancel)
    machine.receive(child.error(request.id, "stale_client_tool_call"))
    assert not machine.open_calls


def test_a_cancel_with_another_identity_fails_closed():
    machine, child = started()
    machine.receive(child.call(task_id="g1"))
    assert violation_of(machine, child.cancel(task_id="g2")).reason == "identity_mismatch"


def test_a_cancel_of_no_call_changes_nothing():
    machine, child = started()
    assert machine.receive(child.cancel("other")) == [LateEvent("client.tool.cancel")]


@pytest.mark.parametrize("ended", [False, True])
def test_a_call_id_comes_once(ended: bool):
    machine, child = started()
    machine.receive(child.call())
    if ended:
        machine.receive(child.cancel())
    assert violation_of(machine, child.call()).reason == "call_id_reused"


def test_sixteen_calls_may_be_open():
    machine, child = started()
    for number in range(16):
        machine.receive(child.call(f"call-{number}"))
    answer(machine, "call-3")
    assert isinstance(machine.receive(child.call("call-16"))[0], ToolCall)
    assert violation_of(machine, child.call("call-17")).reason == "too_many_calls"


def test_the_end_of_a_run_closes_its_calls_and_only_late_words_may_follow():
    machine, child = started()
    machine.receive(child.call())
    assert isinstance(machine.receive(child.finished())[0], RunFinished)
    assert machine.active_run is None
    with pytest.raises(CallClosedError):
        answer(machine)
    assert machine.receive(child.event("diagnostic", code="x", summary="")) == [LateEvent("diagnostic")]
    assert violation_of(machine, child.finished()).reason == "run_finished_twice"


def test_a_call_after_the_end_of_its_run_fails_closed():
    machine, child = started()
    machine.receive(child.finished())
    assert violation_of(machine, child.call()).reason == "unknown_run"


# Negotiation.


def test_cards_come_when_they_were_asked_for():
    machine, child = started(cards=True)
    card = {
        "schema_version": 1,
        "card_id": "a",
        "activity_id": "a",
        "revision": 0,
        "state": "finished",
        "outcome": "success",
        "changes": "none",
        "title": "x",
    }
    fields = {"activity_id": "a", "part": 0, "last_part": True}
    (event,) = machine.receive(child.event("tool.card", **fields, card=card))
    assert isinstance(event, ToolCard)
    assert violation_of(machine, child.event("tool.card", **fields, card={**card, "card_id": "b"})).reason == (
        "identity_mismatch"
    )


@pytest.mark.parametrize(
    ("tools", "capabilities", "reason"),
    [
        (["client__page__read"], [*CAPABILITIES], "capability_missing"),
        (["client__other"], [*CAPABILITIES, "client.tools"], "registry_mismatch"),
        (None, [*CAPABILITIES, "client.tools"], "registry_mismatch"),
    ],
)
def test_what_was_asked_for_must_be_what_is_there(tools: list[str] | None, capabilities: list[str], reason: str):
    machine, child = ChildProtocol(), FrameWriter()
    request = machine.initialize([TOOL])
    assert violation_of(machine, child.initialized(request.id, tools, capabilities)).reason == reason


def test_lower_limits_than_the_protocol_has_fail_closed():
    machine, child = ChildProtocol(), FrameWriter()
    request = machine.initialize(None, capabilities=())
    result = {"capabilities": [], "limits": {"frame_bytes": 1024}, "status": {"state": "idle", "readiness": "ready"}}
    assert violation_of(machine, child.result(request.id, result)).reason == "limits_lowered"


def test_a_refused_registry_may_be_followed_by_another():
    machine, child = ChildProtocol(), FrameWriter()
    machine.receive(
        child.error(machine.initialize([TOOL, ToolDescriptor("client__b", "b", b"{}")]).id, "invalid_params")
    )
    request = machine.initialize([TOOL])
    (response,) = machine.receive(child.initialized(request.id, [TOOL.name], [*CAPABILITIES, "client.tools"]))
    assert isinstance(response, Response)
    assert "client.tools" in machine.capabilities


def test_a_call_without_negotiation_fails_closed():
    machine, child = ChildProtocol(), FrameWriter()
    request = machine.initialize(None)
    machine.receive(child.initialized(request.id, None, [*CAPABILITIES]))
    turn = machine.turn_start(SESSION, ModelText("x"))
    machine.receive(child.result(turn.id, {"run_id": RUN, "accepted": True}))
    assert violation_of(machine, child.call()).reason == "not_negotiated"


# The budget, and the end.


def test_each_request_spends_an_id_and_the_last_is_kept_for_shutdown():
    machine = ChildProtocol(requests=3)
    assert [machine.status().id, machine.status().id] == ["r1", "r2"]
    with pytest.raises(RequestsSpentError):
        machine.status()
    assert machine.requests_left == 1
    assert machine.shutdown().id == "r3"
    assert machine.requests_left == 0
    with pytest.raises(RequestsSpentError):
        machine.shutdown()


def test_the_end_of_output_names_what_is_lost():
    machine, child = started()
    machine.receive(child.call("call-1") + child.call("call-2"))
    request = answer(machine, "call-2")
    half = child.finished()[:50]
    assert machine.receive(half) == []
    (end,) = machine.receive_eof()
    assert isinstance(end, EndOfOutput)
    assert end.torn == 50
    assert [lost.id for lost in end.in_flight] == [request.id]
    assert {call.call_id for call in end.open_calls} == {"call-1", "call-2"}
    assert machine.receive_eof() == []
    assert machine.receive(child.finished()) == []


def test_scope_of_the_doubles_is_the_run_of_the_tests():
    assert SCOPE == {"session_id": SESSION, "run_id": RUN}


@given(st.binary(max_size=400))
def test_no_bytes_make_the_machine_raise(data: bytes):
    machine, child = started()
    machine.receive(data + b"\n")
    frame = child.call()
    for cut in (10, len(frame) // 2):
        if machine.violation is None:
            machine.receive(frame[:cut] + data + frame[cut:] + b"\n")
    machine.receive_eof()
