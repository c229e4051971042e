"""Runs, calls, results and cancels (stdio protocol, "Execute and reply", "Runs")."""

import json
import time
from typing import Any

import pytest

from tests.doubles.stdio_driver import IDENTITY, Child, Frame, tool
from tests.doubles.stdio_peers import Demo, Peer

X = "client__x"
GHP = "ghp_" + "a" * 36


def step(*arguments: Any, **more: Any) -> dict[str, Any]:
    """A step that calls the tool once for each of the arguments."""
    return {"calls": [{"name": X, "arguments": a} for a in arguments or ({},)], **more}


def begin(child: Child, *steps: Any, **descriptor: Any) -> tuple[str, str]:
    """A child with one tool and a session whose run plays the steps: (session, run)."""
    child.initialize([tool(X, **descriptor)])
    session_id = child.result("session.create", {})["session_id"]
    return session_id, child.start(session_id, {"steps": list(steps)})


def shape(child: Child, run_id: str) -> list[str]:
    """The run's events by name and what tells them apart; no deltas, which may be missing, and no partials again."""
    told: list[str] = []
    partials: set[str] = set()
    for frame in child.frames:
        data: Frame = frame.get("data") or {}
        if frame["type"] == "response":
            told.append("response" if "result" in frame else frame["error"]["code"])
        elif data["run_id"] == run_id and frame["event"] != "message.delta":
            more = [
                str(data[k])
                for k in ("state", "reason", "partial", "outcome", "persistence", "error_code")
                if k in data
            ]
            again = data.get("partial") is True and data["message_id"] in partials
            partials.add(data.get("message_id", ""))
            if not again:
                told.append(" ".join([frame["event"], *more]))
    return told


def said(child: Child, *, partial: bool = False) -> list[str]:
    """The messages as they were reconciled."""
    texts: dict[str, str] = {}
    for event in child.events():
        data = event["data"]
        if event["event"] == "message.reconcile" and data["partial"] is partial:
            texts[data["message_id"]] = ("" if data["part"] == 0 else texts[data["message_id"]]) + data["text"]
    return list(texts.values())


def test_the_order_of_a_run(peer: Peer) -> None:
    with peer.start() as child:
        _session, run_id = begin(child, step({"b": 1, "a": [2]}, text="Before."), {"text": "After {{results}}"})
        call = child.event("client.tool.call")
        assert call["data"].keys() == {*IDENTITY, "name", "arguments", "timeout_ms"}
        assert (call["data"]["arguments"], call["data"]["timeout_ms"]) == ({"a": [2], "b": 1}, 30_000)
        assert (call["data"]["task_id"], call["data"]["subagent_id"]) == (None, None)
        assert child.answer(call, "fine")["result"] == {"accepted": True}
        child.finish()
        assert shape(child, run_id)[2:] == [
            "response",
            "input.persisted",
            "message.reconcile True",
            "activity started",
            "client.tool.call",
            "response",
            "activity completed",
            "message.reconcile True",
            "message.reconcile False",
            "message.reconcile False",
            "run.finished completed durable None",
        ]
        assert said(child) == ["Before.", 'After ["fine"]']
        starts = [e["data"] for e in child.events() if e["event"] == "activity"]
        assert len({e["activity_id"] for e in starts}) == 1
        assert starts[0]["name"] == X


def test_a_step_asks_one_call_after_the_other_and_an_error_fails_its_activity(peer: Peer) -> None:
    with peer.start() as child:
        begin(child, step({"n": 1}, {"n": 2}), {"text": "{{results}}"})
        first = child.event("client.tool.call")
        child.result("status", {})
        assert [e for e in child.events() if e["event"] == "client.tool.call"] == [first]
        child.answer(first, "one")
        child.answer(child.event("client.tool.call"), "two", status="error")
        child.finish()
        states = [e["data"]["state"] for e in child.events() if e["event"] == "activity"]
        assert states == ["started", "completed", "started", "failed"]
        assert said(child) == ['["one", "two"]']


def test_a_long_message_comes_in_parts_of_4000_bytes(peer: Peer) -> None:
    with peer.start() as child:
        begin(child, {"text": 'é"x\n', "repeat": 3_000})
        child.finish()
        sizes = [len(e["data"]["text"].encode()) for e in child.events() if e["event"] == "message.reconcile"]
        assert sizes == [4_000, 4_000, 4_000, 3_000] * 2
        assert said(child) == ['é"x\n' * 3_000]


BAD_RESULTS: dict[str, tuple[dict[str, Any], str]] = {
    "text null": ({"text": None}, "invalid_params"),
    "status ok": ({"status": "ok"}, "invalid_params"),
    "status null": ({"status": None}, "invalid_params"),
    "an unknown field": ({"x": 1}, "invalid_params"),
    "instance null": ({"instance_id": None}, "invalid_params"),
    "an empty task": ({"task_id": ""}, "invalid_params"),
    "a number as task": ({"task_id": 5}, "invalid_params"),
    "a task of 1,025": ({"task_id": "t" * 1_025}, "invalid_params"),
    "a lone surrogate": ({"text": "\ud800"}, "invalid_params"),
    "a lone surrogate deeper": ({"structured": ["\ud800"]}, "invalid_params"),
    "32,769 bytes": ({"text": "x" * 32_769}, "invalid_params"),
    "32,739 bytes with structured": ({"text": "x" * 32_735, "structured": None}, "invalid_params"),
    "names that collide as secrets": ({"structured": {GHP: 1, GHP[:-1] + "b": 2}}, "invalid_params"),
    "names that collide as text": ({"structured": {"a\x07": 1, "a": 2}}, "invalid_params"),
    "bad and stale": ({"text": "x" * 32_769, "call_id": "zz"}, "invalid_params"),
    "another instance": ({"instance_id": "zz"}, "stale_client_tool_call"),
    "another session": ({"session_id": "zz"}, "stale_client_tool_call"),
    "another run": ({"run_id": "zz"}, "stale_client_tool_call"),
    "another call": ({"call_id": "a" * 2_000}, "stale_client_tool_call"),
    "no call": ({"call_id": ""}, "stale_client_tool_call"),
    "another task": ({"task_id": "g1"}, "stale_client_tool_call"),
    "another subagent": ({"subagent_id": "x"}, "stale_client_tool_call"),
}


def _without_text(change: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in change.items() if name != "text"}


def test_a_refused_result_leaves_its_call_open(peer: Peer) -> None:
    with peer.start() as child:
        begin(child, step(), {"text": "{{results}}"})
        call = child.event("client.tool.call")
        for name, (change, code) in BAD_RESULTS.items():
            assert child.answer(call, change.get("text", "x"), **_without_text(change)).get("error") == {
                "code": code
            }, name
        params = {k: call["data"][k] for k in IDENTITY if k != "task_id"}
        params |= {"instance_id": call["instance_id"], "status": "success", "text": ""}
        assert child.error("client.tool.result", params) == "invalid_params"
        assert "result" in child.answer(call, "at last")
        assert child.answer(call, "twice")["error"]["code"] == "stale_client_tool_call"
        assert child.answer(call, "twice", status="ok")["error"]["code"] == "invalid_params"
        assert child.finish()["outcome"] == "completed"
        assert said(child) == ['["at last"]']


@pytest.mark.parametrize(
    "answer",
    [
        {"text": "x" * 32_768},
        {"text": '"' * 32_300},
        {"text": "x" * 32_734, "structured": None},
        {"text": "", "structured": "x" * 32_736},
    ],
    ids=["text", "escaped", "with null", "structured alone"],
)
def test_a_result_at_its_bound_is_taken(peer: Peer, answer: dict[str, Any]) -> None:
    with peer.start() as child:
        begin(child, step(), {"text": "ok"})
        assert "result" in child.answer(child.event("client.tool.call"), **answer)
        assert child.finish()["outcome"] == "completed"


SHOWN: list[tuple[dict[str, Any], str]] = [
    ({"text": "a\r\nb\rc\x00d\x1b[31mred\x1b[0m\u2028e\x07\tz"}, "a\nb\ncdred\u2028e\tz"),
    ({"text": f"key {GHP} end"}, "key <redacted> end"),
    ({"text": "AKIAABCDEFGHIJKLMNOP x"}, "<redacted> x"),
    ({"text": "password=hunter2 next"}, "password=<redacted> next"),
    ({"text": ""}, " "),
    ({"text": "", "structured": None}, "\nstructured: null"),
    ({"text": "e", "status": "error", "structured": [1, "x"]}, 'e\nstructured: [1,"x"]'),
    (
        {"text": "t", "structured": {"b": 1, "a": {"password": "x", "api_key": 5, "tokens": 3, "token": None}}},
        't\nstructured: {"a":{"api_key":"[REDACTED]","password":"[REDACTED]","token":"[REDACTED]","tokens":3},"b":1}',
    ),
    ({"text": "t", "structured": {GHP: 1, "k\x07": 2.0}}, 't\nstructured: {"<redacted>":1,"k":2.0}'),
]


def test_what_the_model_is_shown_of_a_result(peer: Peer) -> None:
    """It is what a script's ``{{results}}`` stands for."""
    with peer.start() as child:
        session_id, _run = begin(child, {"text": "start"})
        child.finish()
        for answer, shown in SHOWN:
            child.start(session_id, {"steps": [step(), {"text": "{{results}}"}]})
            child.answer(child.event("client.tool.call"), **answer)
            child.finish()
            assert json.loads(said(child)[-1]) == [shown]


def test_a_timeout(peer: Peer) -> None:
    with peer.start() as child:
        begun = time.monotonic()
        begin(child, step(), {"text": "{{results}}"}, timeout_ms=1_000)
        call = child.event("client.tool.call")
        cancel = child.event("client.tool.cancel", 20)
        assert 1.0 <= time.monotonic() - begun < 20
        assert cancel["data"] == {**{k: call["data"][k] for k in IDENTITY}, "reason": "timeout"}
        assert child.answer(call)["error"]["code"] == "stale_client_tool_call"
        assert child.finish()["outcome"] == "completed"
        assert said(child) == ['["client_tool_timeout"]']


def test_a_cancelled_turn(peer: Peer) -> None:
    with peer.start() as child:
        session_id, run_id = begin(child, step(text="Said."), {"text": "never"})
        call = child.event("client.tool.call")
        ids = {"session_id": session_id, "run_id": run_id}
        assert child.error("turn.cancel", ids | {"run_id": "other"}) == "stale_run"
        assert child.error("turn.cancel", ids | {"session_id": "other"}) == "stale_run"
        assert child.result("turn.cancel", ids) == {"cancellation_requested": True}
        assert child.answer(call)["error"]["code"] == "stale_client_tool_call"
        child.finish()
        assert child.error("turn.cancel", ids) == "stale_run"
        told = [
            line
            for line in shape(child, run_id)
            if line.split()[0] in ("client.tool.cancel", "activity", "run.finished")
        ]
        assert told == [
            "activity started",
            "client.tool.cancel cancelled",
            "activity failed",
            "run.finished cancelled durable None",
        ]
        assert said(child) == []
        assert said(child, partial=True) == ["Said."]


def test_a_pause_is_cancelled_at_once(peer: Peer) -> None:
    with peer.start() as child:
        session_id, run_id = begin(child, {"text": "late", "sleep_s": 60})
        child.event("input.persisted")
        begun = time.monotonic()
        child.result("turn.cancel", {"session_id": session_id, "run_id": run_id})
        assert child.finish()["outcome"] == "cancelled"
        assert time.monotonic() - begun < 20


@pytest.mark.parametrize("way", ["shutdown", "end of input", "frame too large"])
def test_the_end_with_a_call_open(peer: Peer, way: str) -> None:
    with peer.start() as child:
        _session, run_id = begin(child, step(), {"text": "never"})
        child.event("client.tool.call")
        first = {"shutdown": "response", "frame too large": "frame_too_large"}.get(way)
        if way == "shutdown":
            child.send("shutdown", {})
            child.send("status", {})  # hears nothing any more
        elif way == "end of input":
            child.close_input()
        else:
            child.raw(b"x" * 65_537 + b"\n")
        child.drain()
        assert shape(child, run_id)[6:] == [
            *([first] if first else []),
            "client.tool.cancel shutdown",
            "activity failed",
            "run.finished cancelled durable None",
        ]
        assert child.wait() == 0


def test_calls_that_never_go_out(peer: Peer) -> None:
    large = {"a": "x" * 8_000}
    with peer.start() as child:
        session_id, _run = begin(child, {"text": "start"})
        child.finish()
        other = {"calls": [{"name": "client__none", "arguments": {}}]}
        child.start(session_id, {"steps": [step([1]), step("x"), other, step(large), {"text": "{{results}}"}]})
        child.answer(child.event("client.tool.call"), "sent")
        child.finish()
        limit = "client_tool_payload_limit"
        assert json.loads(said(child)[-1]) == [limit, limit, "client_tool_unavailable", "sent"]


def test_a_model_that_refuses_fails_the_run(peer: Peer) -> None:
    with peer.start() as child:
        _session, run_id = begin(child, {"status": 401})
        child.finish()
        assert shape(child, run_id)[3:] == ["input.persisted", "run.finished failed durable execution_failed"]


def delegated(*scripts: list[dict[str, Any]]) -> dict[str, Any]:
    """A step that hands each script to a subagent."""
    tasks = [{"intent": f"task {n}", "context": json.dumps({"steps": s})} for n, s in enumerate(scripts)]
    return {"calls": [{"name": "subagents", "arguments": {"intent": "share", "tasks": tasks}}]}


def test_subagents_ask_side_by_side_and_carry_their_identity(peer: Peer) -> None:
    with peer.start() as child:
        begin(child, delegated([step({"n": 1}), {"text": "a"}], [step({"n": 2}), {"text": "b"}]), {"text": "done"})
        calls = [child.event("client.tool.call", 30) for _ in range(2)]
        assert {c["data"]["task_id"] for c in calls} == {"g1", "g2"}
        assert all(c["data"]["subagent_id"].endswith("/" + c["data"]["task_id"]) for c in calls)
        assert {c["data"]["arguments"]["n"] for c in calls} == {1, 2}
        assert child.answer(calls[1], task_id=calls[0]["data"]["task_id"])["error"]["code"] == "stale_client_tool_call"
        assert all("result" in child.answer(call) for call in reversed(calls))
        assert child.finish(30)["outcome"] == "completed"
        assert said(child) == ["done"]  # what subagents say is for their caller
        subagents = [
            e["data"]["state"] for e in child.events() if e["event"] == "activity" and e["data"]["kind"] == "subagent"
        ]
        assert sorted(subagents) == ["completed"] * 2 + ["started"] * 4


def test_sixteen_calls_are_open_and_the_next_is_busy(demo: Demo) -> None:
    with demo.start() as child:
        begin(child, step(*({"n": n} for n in range(17)), parallel=True), {"text": "{{results}}"})
        calls = [child.event("client.tool.call") for _ in range(16)]
        child.find(lambda f: f.get("event") == "activity" and f["data"]["state"] == "failed")
        assert [c["data"]["arguments"]["n"] for c in calls] == list(range(16))
        for call in reversed(calls):
            assert "result" in child.answer(call, str(call["data"]["arguments"]["n"]))
        child.finish()
        assert json.loads(said(child)[0]) == [*map(str, range(16)), "client_tool_busy"]


def test_a_cancel_reaches_every_open_call(demo: Demo) -> None:
    with demo.start() as child:
        session_id, run_id = begin(child, step(*({} for _ in range(16)), parallel=True), {"text": "never"})
        opened = {child.event("client.tool.call")["data"]["call_id"] for _ in range(16)}
        child.result("turn.cancel", {"session_id": session_id, "run_id": run_id})
        assert {child.event("client.tool.cancel")["data"]["call_id"] for _ in range(16)} == opened
        assert child.finish()["outcome"] == "cancelled"


def test_a_call_that_nobody_waits_for_ends_with_its_run(demo: Demo) -> None:
    with demo.start() as child:
        begin(child, step(abandon=True), {"text": "done"})
        call = child.event("client.tool.call")
        cancel = child.event("client.tool.cancel")["data"]
        assert (cancel["reason"], cancel["call_id"]) == ("run_finished", call["data"]["call_id"])
        assert child.finish()["outcome"] == "completed"
        assert child.answer(call)["error"]["code"] == "stale_client_tool_call"


@pytest.mark.parametrize(("allow", "outcome"), [(True, "completed"), (False, "failed"), (None, "failed")])
def test_approvals(demo: Demo, allow: bool | None, outcome: str) -> None:
    with demo.start() as child:
        wanted: dict[str, Any] = {"summary": f"run it with {GHP}"}
        if allow is None:
            wanted["expires_in_ms"] = 50
        session_id, run_id = begin(child, {"approval": wanted, "text": "allowed"})
        asked = child.event("approval.requested")["data"]
        assert asked["summary"] == "run it with <redacted>"
        answer = {"session_id": session_id, "run_id": run_id, "approval_id": asked["approval_id"], "allow": bool(allow)}
        if allow is not None:
            assert asked["expires_in_ms"] == 60_000
            assert child.error("approval.answer", answer | {"run_id": "other"}) == "stale_approval"
            assert child.result("approval.answer", answer) == {"recorded": True}
        end = child.finish()
        assert (end["outcome"], end["error_code"]) == (outcome, None if allow else "execution_failed")
        assert child.error("approval.answer", answer) == "stale_approval"


def test_other_ends_of_a_run(demo: Demo) -> None:
    with demo.start() as child:
        session_id, _run = begin(child, {"diagnostic": {"code": "execution_notice", "summary": "cut"}, "text": "x"})
        assert child.event("diagnostic")["data"]["code"] == "execution_notice"
        child.finish()
        child.start(session_id, {"steps": [{"fail": {"code": "persistence_failed", "persistence": "degraded"}}]})
        end = child.finish()
        assert (end["outcome"], end["persistence"], end["error_code"]) == ("failed", "degraded", "persistence_failed")
        child.start(session_id, {"steps": [{"text": "x" * 100, "repeat": 90_000}]})
        assert child.finish()["error_code"] == "content_limit"
        child.start(session_id, {"steps": [{"activity": {"kind": "compaction", "name": "compact"}, "text": "x"}]})
        assert child.finish()["outcome"] == "completed"


def test_an_input_that_cannot_be_kept_never_runs(demo: Demo) -> None:
    with demo.start() as child:
        child.initialize([tool(X)])
        session_id = child.result("session.create", {})["session_id"]
        folder = demo.folder / "home" / "sessions"
        folder.rmdir()
        folder.write_bytes(b"")  # a file where the folder was
        child.start(session_id, {"steps": [{"text": "never"}]})
        end = child.finish()
        assert (end["outcome"], end["persistence"], end["error_code"]) == (
            "failed",
            "not_started",
            "persistence_failed",
        )
        assert end["revision"] is None
        assert [e["event"] for e in child.events()] == ["run.finished"]
