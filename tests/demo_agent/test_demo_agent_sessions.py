"""Sessions, history, listings and the model (stdio protocol, "Methods" and "Seen with the real child")."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.stdio_driver import Child, tool
from tests.doubles.stdio_peers import Demo, Peer

X = tool("client__x")
CALL = {"calls": [{"name": "client__x", "arguments": {}}]}


def create(child: Child) -> str:
    """Initialise, and make a session."""
    child.initialize([X])
    return child.result("session.create", {})["session_id"]


def say(child: Child, session_id: str, text: str, **more: Any) -> dict[str, Any]:
    """One turn that says a text; the data of its end."""
    child.start(session_id, {"steps": [{"text": text, **more}]})
    return child.finish()


def history(child: Child, session_id: str, revision: str) -> tuple[list[dict[str, Any]], bool, int]:
    """All entries, whether they are complete, and how many pages there were."""
    entries: list[dict[str, Any]] = []
    cursor, pages = None, 0
    while True:
        page = child.result("history.page", {"session_id": session_id, "revision": revision, "cursor": cursor})
        entries += page["entries"]
        pages += 1
        cursor = page["next_cursor"]
        if cursor is None:
            return entries, page["complete"], pages
        assert page["complete"] is False


def test_params_are_checked_before_state(peer: Peer) -> None:
    with peer.start() as child:
        child.initialize()
        for session_id in ("a.b", "", "a" * 65, 5, "../x", None):
            assert child.error("session.open", {"session_id": session_id}) == "invalid_params"
        assert child.error("session.open", {"session_id": "a" * 64}) == "session_missing"
        for params in ([], None, {"x": 1}):
            assert child.error("session.create", params) == "invalid_params"
        for params in (
            {"limit": 0},
            {"limit": 101},
            {"limit": 1.0},
            {"limit": None},
            {"revision": "a"},
            {"cursor": "a"},
        ):
            assert child.error("session.list", params) == "invalid_params"
            assert child.error("model.catalog", params) == "invalid_params"
        assert child.error("session.list", {"revision": "a", "cursor": "b"}) == "stale_revision"
        assert child.error("model.catalog", {"revision": "a", "cursor": "b"}) == "stale_catalog"
        for prompt in (" \n", "a" * 16_385, "é" * 8_193, None, "\ud800"):
            assert child.error("turn.start", {"session_id": "x", "prompt": prompt}) == "invalid_params"
        for prompt in ("a" * 16_384, "\x00"):
            assert child.error("turn.start", {"session_id": "x", "prompt": prompt}) == "session_missing"
        assert child.error("history.page", {"session_id": "x", "revision": "r r"}) == "invalid_params"
        assert child.error("history.page", {"session_id": "x", "revision": "r"}) == "session_missing"
        assert child.error("turn.cancel", {"session_id": "x", "run_id": "y"}) == "stale_run"
        approval = {"session_id": "x", "run_id": "y", "approval_id": "z", "allow": True}
        assert child.error("approval.answer", approval) == "stale_approval"
        assert child.error("approval.answer", approval | {"allow": 1}) == "invalid_params"


def test_a_lazy_session(peer: Peer) -> None:
    with peer.start() as child:
        session_id = create(child)
        made = child.result("session.open", {"session_id": session_id})
        assert (made["durable"], made["notices"]) == (False, [])
        again = child.result("session.open", {"session_id": session_id})
        assert again["revision"] != made["revision"]
        old = {"session_id": session_id, "revision": made["revision"]}
        assert child.error("history.page", old) == "stale_revision"
        page = child.result("history.page", old | {"revision": again["revision"]})
        assert page == {"session_id": session_id, **page, "entries": [], "next_cursor": None, "complete": True}
        assert child.error("history.page", old | {"session_id": "other"}) == "stale_session"
        assert child.error("turn.start", {"session_id": "other", "prompt": "x"}) == "stale_session"
        assert child.error("session.open", {"session_id": "other"}) == "session_missing"
        assert child.result("status", {})["session_id"] == session_id  # a failed open changes nothing
        assert child.result("session.list", {})["sessions"] == []
        child.result("session.create", {})
        assert child.error("session.open", {"session_id": session_id}) == "session_missing"


def test_a_session_goes_on_in_the_next_child(peer: Peer) -> None:
    with peer.start() as child:
        session_id = create(child)
        end = say(child, session_id, "hello")
        assert (end["outcome"], end["persistence"], end["error_code"]) == ("completed", "durable", None)
        entries, complete, _pages = history(child, session_id, end["revision"])
        assert [(e["kind"], e["part"], e["last_part"], e["partial"]) for e in entries] == [
            ("user", 0, True, False),
            ("assistant", 0, True, False),
        ]
        assert (entries[1]["text"], complete) == ("hello", True)
        with peer.start() as second:
            second.initialize([X])
            assert second.error("session.open", {"session_id": session_id}) == "session_busy"
            listed = second.result("session.list", {})["sessions"]
            assert [(s["session_id"], s["eligibility"], s["title"]) for s in listed] == [(session_id, "busy", None)]
        assert child.result("session.list", {})["sessions"][0]["eligibility"] == "available"
        with peer.start(cwd="elsewhere") as second:
            second.initialize([X])
            assert second.result("session.list", {})["sessions"] == []
    with peer.start(cwd="elsewhere") as child:
        child.initialize([X])
        assert child.error("session.open", {"session_id": session_id}) == "cwd_mismatch"
    link = peer.folder / "link"
    link.symlink_to(peer.folder / "cwd")
    with peer.start(cwd="link") as child:
        child.initialize([X])
        opened = child.result("session.open", {"session_id": session_id})
        assert opened["durable"] is True
        assert len(history(child, session_id, opened["revision"])[0]) == 2
        assert say(child, session_id, "again")["outcome"] == "completed"


def test_a_killed_owner_leaves_no_lease_and_an_interrupted_turn(peer: Peer) -> None:
    with peer.start() as child:
        session_id = create(child)
        child.start(session_id, {"steps": [CALL | {"text": "said"}, {"text": "x"}]})
        child.event("client.tool.call")
        os.kill(child.process.pid, signal.SIGKILL)
        child.wait()
    with peer.start() as child:
        child.initialize([X])
        opened = child.result("session.open", {"session_id": session_id})
        entries, complete, _pages = history(child, session_id, opened["revision"])
        assert [(e["kind"], e["partial"]) for e in entries] == [
            ("user", False),
            ("assistant", True),
            ("activity", True),
            ("diagnostic", True),
        ]
        assert entries[2]["text"] == "client__x: started"
        assert complete is False
        assert say(child, session_id, "on")["outcome"] == "completed"


def test_a_long_history_comes_in_parts_and_pages(peer: Peer) -> None:
    with peer.start() as child:
        session_id = create(child)
        end = say(child, session_id, 'é"\n', repeat=15_000)
        entries, complete, pages = history(child, session_id, end["revision"])
        parts = [e for e in entries if e["kind"] == "assistant"]
        assert [e["part"] for e in parts] == list(range(len(parts)))
        assert [e["last_part"] for e in parts] == [False] * (len(parts) - 1) + [True]
        assert "".join(e["text"] for e in parts).strip() == ('é"\n' * 15_000).strip()
        assert (complete, pages > 2) == (True, True)
        bad = {"session_id": session_id, "revision": end["revision"]}
        assert child.error("history.page", bad | {"cursor": "zz"}) == "stale_revision"
        assert child.error("history.page", bad | {"cursor": "z z"}) == "invalid_params"


def test_while_something_runs_everything_else_is_busy(peer: Peer) -> None:
    with peer.start() as child:
        session_id = create(child)
        run_id = child.start(session_id, {"steps": [CALL, {"text": "x"}]})
        call = child.event("client.tool.call")
        busy: list[tuple[str, dict[str, Any]]] = [
            ("turn.start", {"session_id": session_id, "prompt": "x"}),
            ("turn.start", {"session_id": "other", "prompt": "x"}),
            ("session.create", {}),
            ("session.open", {"session_id": session_id}),
            ("session.list", {}),
            ("history.page", {"session_id": session_id, "revision": "x"}),
            ("model.catalog", {}),
        ]
        assert [child.error(*request) for request in busy] == ["busy"] * len(busy)
        assert child.error("session.create", {"x": 1}) == "invalid_params"
        status = child.result("status", {})
        assert (status["state"], status["run_id"]) == ("running", run_id)
        child.answer(call)
        child.finish()
        child.start(session_id, {"steps": [{"text": "at once"}]})  # sent on reading run.finished
        assert child.finish()["outcome"] == "completed"


def test_operations_overlap_nothing(demo: Demo) -> None:
    from tests.doubles.stdio_driver import encode

    with demo.start() as child:
        child.initialize(None, "operation.cancel")
        cancel = encode("c", "operation.cancel", {"request_id": "a"})
        child.raw(encode("a", "session.list", {}) + encode("b", "session.create", {}) + cancel)
        assert child.response("b")["error"]["code"] == "busy"
        assert child.response("c")["result"] == {"state": "cancelling", "request_id": "a"}
        assert child.response("a")["error"]["code"] == "operation_cancelled"


@pytest.mark.parametrize("content", [b"", b"nonsense\n", b'{"kind":"session","id":"other","cwd":"/"}\n', b"[]\n"])
def test_a_session_that_cannot_be_read(demo: Demo, content: bytes) -> None:
    path = Path(demo.folder / "home" / "sessions" / "broken.jsonl")
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with demo.start() as child:
        child.initialize()
        assert child.error("session.open", {"session_id": "broken"}) == "session_invalid"
        assert child.result("session.list", {})["notices"] == ["sessions_omitted_invalid"]


def test_a_listing_in_pages(demo: Demo) -> None:
    with demo.start() as child:
        child.initialize([X])
        made: list[str] = []
        for _ in range(3):
            made.append(child.result("session.create", {})["session_id"])
            say(child, made[-1], "x")
        first = child.result("session.list", {"limit": 2})
        assert (first["complete"], len(first["sessions"])) == (False, 2)
        rest = {"revision": first["revision"], "cursor": first["next_cursor"]}
        last = child.result("session.list", rest)
        assert [s["session_id"] for s in first["sessions"] + last["sessions"]] == sorted(made)
        assert (last["complete"], last["next_cursor"]) == (True, None)
        child.result("session.list", {})
        assert child.error("session.list", rest) == "stale_revision"


def test_another_model_for_this_session(demo: Demo) -> None:
    with demo.start() as child:
        session_id = create(child)
        choice = child.result("model.catalog", {})
        assert [c["model"] for c in choice["choices"]] == ["echo", "rules", "rules-deep"]
        wanted: dict[str, Any] = {
            "session_id": session_id,
            "selection_revision": child.result("status", {})["selection"]["revision"],
            "catalog_revision": choice["revision"],
            "provider": "demo",
            "model": "rules-deep",
            "effort": {"mode": "set", "value": "high"},
        }
        refused = {
            "stale_session": {"session_id": "other"},
            "stale_selection": {"selection_revision": "x"},
            "stale_catalog": {"catalog_revision": "x"},
            "selection_invalid": {"model": "none"},
            "effort_unsupported": {"model": "echo"},
            "invalid_params": {"effort": {"mode": "set", "value": "default"}},
        }
        for code, change in refused.items():
            assert child.error("selection.set", wanted | change) == code
        done = child.result("selection.set", wanted)
        assert (done["durable"], done["scope"], done["selection"]["effective_effort"]) == (True, "session", "high")
        assert child.result("status", {})["model"] == "rules-deep"
        wanted |= {"selection_revision": done["selection"]["revision"], "model": "echo", "effort": {"mode": "default"}}
        child.result("selection.set", wanted)
        child.start(session_id, "highlight row 3")
        child.finish()
        said = [e["data"]["text"] for e in child.events() if e["event"] == "message.reconcile"]
        assert said[-1] == "highlight row 3"
    with demo.start() as child:
        child.initialize()
        child.result("session.open", {"session_id": session_id})
        assert child.result("status", {})["model"] == "echo"
