"""The machine of a child's frames: what it remembers of requests, calls, runs and what was negotiated."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.stdio.events import EndOfOutput, LateEvent, LostRequest, Response
from adapters.stdio.frames import (
    RunFinished,
    ToolCall,
    ToolCancel,
    ToolCard,
)
from adapters.stdio.protocol import CAPABILITIES, ChildProtocol
from adapters.stdio.requests import CallClosedError, RequestsSpentError, ToolDescriptor
from gateway.model.clean import ModelText
from gateway.model.redaction import ours_for_model, ours_for_model_json
from tests.doubles.child_frames import RUN, SCOPE, SESSION, FrameWriter
from tests.doubles.started_protocol import TOOL, answer, started, violation_of

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
        child.error(
            machine.initialize([TOOL, ToolDescriptor("client__b", ours_for_model("b"), ours_for_model_json("{}"))]).id,
            "invalid_params",
        )
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


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_make_the_machine_raise(data: bytes):
    machine, child = started()
    machine.receive(data + b"\n")
    frame = child.call()
    for cut in (10, len(frame) // 2):
        if machine.violation is None:
            machine.receive(frame[:cut] + data + frame[cut:] + b"\n")
    machine.receive_eof()
