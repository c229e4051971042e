"""The machine of a child's frames: what it reads, what it refuses to read, what it remembers (stdio protocol)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.stdio.events import EndOfOutput, Noise, Response, Violation
from adapters.stdio.frames import Activity, Diagnostic, MessageDelta, RunFinished, ToolCall, ToolCancel
from adapters.stdio.requests import CallClosedError
from adapters.stdio.results import Attached, Status
from tests.doubles.child_frames import INSTANCE, RUN, SESSION, line
from tests.doubles.started_protocol import answer, started, violation_of

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


@settings(deadline=None)
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
