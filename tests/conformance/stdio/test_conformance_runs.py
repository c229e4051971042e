"""Every event, outcome and cancel reason of a run, on the demo agent and on the real child (stdio protocol, Run events,
Runs)."""

import asyncio
import json
from inspect import getsource
from typing import get_args

import pytest

from adapters.stdio.child import ChildRefusedError
from adapters.stdio.events import EndOfOutput, Noise, Violation
from adapters.stdio.frames import (
    RUN_EVENTS,
    Activity,
    ApprovalRequested,
    CancelReason,
    Diagnostic,
    InputPersisted,
    MessageDelta,
    MessageReconcile,
    Outcome,
    Persistence,
    RunFinished,
    ToolCall,
    ToolCancel,
    ToolCard,
)
from tests.doubles.stdio_demo_alone import WORDS
from tests.doubles.stdio_subject import CALL, SAY, Subject, X

SEEN: set[str] = set()


async def test_a_run_with_a_call_tells_everything_in_its_order(subject: Subject):
    life = await subject.begin(cards=True)
    run = await life.turn({"text": "Let me look.", **CALL}, SAY)
    call = await life.call()
    assert (call.name, bytes(call.arguments), call.timeout_ms) == (X.name, b"{}", X.timeout_ms)
    assert (call.task_id, call.subagent_id, call.run_id) == (None, None, run)
    await life.ask(life.result(call, "row", b'{"a":1}'))
    finished = await life.finished()
    assert (finished.outcome, finished.persistence, finished.error_code) == ("completed", "durable", None)
    order = [event for event in life.heard.events if getattr(event, "run_id", None) == run]
    kinds = [type(event) for event in order]
    assert kinds.index(InputPersisted) < kinds.index(Activity) < kinds.index(ToolCall) < kinds.index(RunFinished)
    assert kinds[-2:] == [MessageReconcile, RunFinished]
    assert {InputPersisted, MessageDelta, MessageReconcile, Activity, ToolCall, ToolCard, RunFinished} <= set(kinds)
    SEEN.update(name for name, kind in RUN_EVENTS.items() if kind in kinds)
    SEEN.update(("completed", "durable"))
    assert life.messages()[0] == "Let me look."
    assert "row" in life.said()
    assert "structured" in life.said()
    assert [(e.kind, e.state) for e in life.heard.of(Activity)] == [("tool", "started"), ("tool", "completed")]
    assert life.heard.of(Noise) == []


async def test_a_diagnostic(subject: Subject):
    life = await subject.begin()
    broken = {"text": "x" * 40, "chunk": 4, "drop_after": 3, "diagnostic": {"code": "execution_notice", "summary": "a"}}
    await life.turn(broken, {"text": "again"})
    await life.finished()
    assert life.heard.of(Diagnostic)[0].code == "execution_notice"
    SEEN.add("diagnostic")


async def test_a_failed_run(subject: Subject):
    life = await subject.begin()
    await life.turn(CALL, {"status": 401})
    await life.ask(life.result(await life.call()))
    finished = await life.finished()
    assert (finished.outcome, finished.error_code) == ("failed", "execution_failed")
    SEEN.add("failed")


async def test_a_cancelled_run_cancels_its_call_and_says_no_final_text(subject: Subject):
    life = await subject.begin()
    run = await life.turn({"text": "before", **CALL}, SAY)
    call = await life.call()
    await life.ask(life.protocol.turn_cancel(life.session, run))
    finished = await life.finished()
    assert finished.outcome == "cancelled"
    (cancel,) = life.heard.of(ToolCancel)
    assert (cancel.call_id, cancel.reason) == (call.call_id, "cancelled")
    assert all(event.partial for event in life.heard.of(MessageReconcile))
    assert life.messages() == ["before"]
    code = await life.forged("client.tool.result", life.identity(call))
    assert code == "stale_client_tool_call"
    SEEN.update(("cancelled", "client.tool.cancel"))


async def test_a_call_that_nobody_answers_times_out_and_the_model_hears_so(subject: Subject):
    life = await subject.begin()
    await life.turn(CALL, SAY)
    call = await life.call()
    (cancel,) = await life.heard.many(ToolCancel, 1)
    assert (cancel.call_id, cancel.reason) == (call.call_id, "timeout")
    assert (await life.finished()).outcome == "completed"
    assert "client_tool_timeout" in life.said()
    SEEN.add("timeout")


async def test_a_shutdown_cancels_what_is_open_and_ends_in_order(subject: Subject):
    life = await subject.begin()
    await life.turn(CALL, SAY)
    await life.call()
    exited = await life.child.stop()
    assert exited.code == 0
    assert [cancel.reason for cancel in life.heard.of(ToolCancel)] == ["shutdown"]
    assert life.heard.of(EndOfOutput)
    assert life.heard.of(Violation) == []
    SEEN.add("shutdown")


async def test_an_error_result_is_text_and_a_refused_one_may_be_corrected(subject: Subject):
    life = await subject.begin()
    await life.turn(CALL, SAY)
    call = await life.call()
    for wrong in ({"text": None}, {"status": "ok"}, {"surprise": 1}):
        assert await life.forged("client.tool.result", life.identity(call, **wrong)) == "invalid_params"
    assert await life.forged("client.tool.result", life.identity(call, call_id="another")) == "stale_client_tool_call"
    request = life.protocol.tool_result(call.call_id, status="error", text="it broke")
    await life.ask(request)
    assert (await life.finished()).outcome == "completed"
    assert "it broke" in life.said()


async def test_a_colliding_structured_value_is_refused_and_the_call_stays_open(subject: Subject):
    life = await subject.begin()
    await life.turn(CALL, SAY)
    call = await life.call()
    colliding = json.dumps({"ghp_" + "a" * 36: 1, "ghp_" + "b" * 36: 2}).encode()
    with pytest.raises(ChildRefusedError, match="invalid_params"):
        await life.ask(life.result(call, "", colliding))
    assert call.call_id in life.protocol.open_calls
    await life.ask(life.result(call, "corrected"))
    assert (await life.finished()).outcome == "completed"


async def test_a_session_goes_on_in_the_next_child(subject: Subject):
    life = await subject.begin()
    await life.turn({"text": "one"})
    await life.finished()
    session = life.session
    await life.child.stop()
    following = await subject.start()
    await following.ask(following.protocol.initialize([X]))
    await following.attach(session)
    page = await following.ask(following.protocol.history_page(session, following.revision))
    assert [entry.kind for entry in page.entries][:2] == ["user", "assistant"]
    listed = await following.ask(following.protocol.session_list())
    assert [entry.session_id for entry in listed.sessions] == [session]
    await following.turn({"text": "two"})
    assert (await following.finished()).persistence == "durable"


async def test_the_next_turn_may_follow_the_end_of_the_last_at_once(subject: Subject):
    life = await subject.begin()
    for number in range(1, 6):
        await life.turn({"text": str(number)})
        await life.finished(number)
        assert life.said() == str(number)


async def test_a_killed_child_in_a_call_leaves_its_session_to_the_next(subject: Subject):
    life = await subject.begin()
    await life.turn(CALL, SAY)
    await life.call()
    life.child.kill()
    assert (await life.child.wait()).cause == "killed"
    following = await subject.start()
    await following.ask(following.protocol.initialize([X]))
    await following.attach(life.session)
    await following.turn({"text": "again"})
    assert (await following.finished()).outcome == "completed"


# The demo agent alone.


@pytest.mark.parametrize("allow", [True, False, None])
async def test_an_approval(demo: Subject, allow: bool | None):
    life = await demo.begin()
    run = await life.turn({"approval": {"summary": "may I?", "expires_in_ms": 400}}, {"text": "done"})
    asked = await life.heard.first(ApprovalRequested)
    assert (asked.summary, asked.expires_in_ms) == ("may I?", 400)
    if allow is not None:
        await life.ask(life.protocol.approval_answer(life.session, run, asked.approval_id, allow=allow))
        second = life.protocol.approval_answer(life.session, run, asked.approval_id, allow=True)
        assert await life.refused(second) == "stale_approval"
    finished = await life.finished()
    assert finished.outcome == ("completed" if allow else "failed")


async def test_a_run_that_finishes_with_a_call_open_cancels_it(demo: Subject):
    life = await demo.begin()
    await life.turn({**CALL, "abandon": True}, {"text": "done"})
    assert (await life.finished()).outcome == "completed"
    assert [cancel.reason for cancel in life.heard.of(ToolCancel)] == ["run_finished"]


@pytest.mark.parametrize("persistence", ["degraded", "not_started"])
async def test_what_is_not_durable_is_said(demo: Subject, persistence: str):
    life = await demo.begin()
    await life.turn({"fail": {"code": "persistence_failed", "persistence": persistence}})
    assert (await life.finished()).persistence == persistence


def test_every_event_reason_outcome_and_persistence_has_its_case(request: pytest.FixtureRequest):
    """After the cases above in this file; each of them adds what it has seen to the list."""
    words = {*RUN_EVENTS, *get_args(CancelReason), *get_args(Outcome), *get_args(Persistence)}
    cases = {name for name, case in globals().items() if name.startswith("test_") and "SEEN." in getsource(case)}
    if not cases <= {item.name.partition("[")[0] for item in request.session.items if item.path == request.path}:
        pytest.skip("only a part of this file's cases was selected, so they cannot have seen every word")
    assert SEEN | set(WORDS) == words
    assert not SEEN & set(WORDS)


# The real child alone.


@pytest.mark.peers
@pytest.mark.parametrize("subject", ["magi"], indirect=True)
async def test_code_mode_calls_carry_their_identity_and_intent(subject: Subject):
    life = await subject.begin()
    code = f'return [1, 2].map(n => tools.call("{X.name}", {{intent: "count", n}}))'
    await life.turn({"calls": [{"name": "code_mode", "arguments": {"intent": "map", "code": code}}]}, SAY)
    for number in (1, 2):
        call = await life.call(number)
        assert json.loads(bytes(call.arguments))["n"] == number
        await life.ask(life.result(call, f"row {number}"))
    assert (await life.finished()).outcome == "completed"
    assert "row 1" in life.said()
    assert "row 2" in life.said()


@pytest.mark.peers
@pytest.mark.parametrize("subject", ["magi"], indirect=True)
async def test_inspection_tasks_see_no_client_tool(subject: Subject):
    life = await subject.begin()
    leaf = json.dumps({"steps": [CALL, SAY]})
    task = {"intent": "look", "context": leaf, "mode": "inspect"}
    await life.turn({"calls": [{"name": "subagents", "arguments": {"intent": "look", "tasks": [task]}}]}, SAY)
    finishing = asyncio.ensure_future(life.finished())
    calling = asyncio.ensure_future(life.call())
    await asyncio.wait([finishing, calling], return_when=asyncio.FIRST_COMPLETED)
    calling.cancel()
    assert life.heard.of(ToolCall) == []
    assert finishing.result().outcome == "completed"
    assert f"cannot invoke '{X.name}'" in life.said()
