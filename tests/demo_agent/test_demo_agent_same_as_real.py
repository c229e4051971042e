"""The same input to the demo agent and to the real child: frame by frame, both must say the same.

Ids, revisions and times are numbered in the order of their appearance, best-effort deltas and repeated partial series
are left out, and what only one of them has by its nature (a model's name, a title) is left out of the comparison.
"""

import json
import re
from typing import Any

import pytest

from tests.doubles.stdio_driver import Child, Frame, tool
from tests.doubles.stdio_peers import Demo, Magi, Peer

pytestmark = pytest.mark.peers

X = tool("client__x", timeout_ms=1_000)
OPAQUE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{64}")
OWN_NATURE = ("provider", "model", "effort_support", "effective_effort", "mcp_disabled", "updated_at", "title")
CALL: dict[str, Any] = {"calls": [{"name": "client__x", "arguments": {"b": [1, {"z": None}], "a": "é\n"}}]}

SCRIPTS: dict[str, list[dict[str, Any]]] = {
    "text": [{"text": "hello"}],
    "nothing": [{"text": ""}],
    "long text": [{"text": 'é"\\x\n', "repeat": 2_000}],
    "call": [CALL, {"text": "{{results}}"}],
    "text and call": [CALL | {"text": "first"}, CALL | {"text": "second"}, {"text": "third {{results}}"}],
    "two calls": [{"calls": CALL["calls"] * 2}, {"text": "{{results}}"}],
    "refused by the model": [CALL, {"status": 401}],
    "unknown tool": [{"calls": [{"name": "client__none", "arguments": {}}]}, {"text": "{{results}}"}],
    "script ends": [CALL],
    "secret text": [{"text": "password=hunter2 and ghp_" + "a" * 36}],
}
ANSWERS: dict[str, dict[str, Any]] = {
    "plain": {"text": "fine"},
    "error": {"text": "no", "status": "error"},
    "structured": {"text": "t", "structured": {"b": 1.0, "a": [None, "x\r\n"]}},
}


def plain(child: Child) -> list[Any]:
    """What a child said, fit for comparison."""
    names: dict[str, str] = {}
    partials: set[str] = set()
    told: list[Any] = []

    def number(match: re.Match[str]) -> str:
        return names.setdefault(match[0], f"<{len(names)}>")

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if k not in OWN_NATURE}
        return [strip(item) for item in value] if isinstance(value, list) else value

    for frame in child.frames:
        data: Frame = frame.get("data") or {}
        if frame.get("event") == "message.delta":
            continue
        if data.get("partial") is True:
            key = f"{data['message_id']}/{data['part']}"
            if key in partials:
                continue
            partials.add(key)
        kept = {k: v for k, v in frame.items() if k != "seq"}
        told.append(json.loads(OPAQUE.sub(number, json.dumps(strip(kept)))))
    return told


def converse(peer: Peer, steps: list[dict[str, Any]], answer: dict[str, Any] | None) -> list[Any]:
    """A whole life: handshake, session, one run, its history, the end."""
    with peer.start() as child:
        child.initialize([X])
        session_id = child.result("session.create", {})["session_id"]
        child.start(session_id, {"steps": steps})
        while True:
            frame = child.find(
                lambda f: f.get("event") in ("client.tool.call", "run.finished"), after=len(child.frames) - 1
            )
            if frame["event"] == "run.finished":
                break
            if answer is None:
                child.find(
                    lambda f: f["type"] == "event" and f["event"] == "client.tool.cancel", after=len(child.frames) - 1
                )
            else:
                child.answer(frame, **answer)
        revision = frame["data"]["revision"]
        history = child.request("history.page", {"session_id": session_id, "revision": revision})
        if frame["data"]["outcome"] == "failed":  # the real child tells its provider's error there, too
            entries = history["result"]["entries"]
            entries[:] = [e for e in entries if "provider request failed" not in e["text"]]
        child.request("session.list", {})
        child.request("status", {})
        child.send("shutdown", {})
        child.drain()
        assert child.wait() == 0
        return plain(child)


@pytest.mark.parametrize("steps", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_scripts(demo: Demo, magi: Magi, steps: list[dict[str, Any]]) -> None:
    assert converse(demo_of(demo), steps, ANSWERS["plain"]) == converse(magi, steps, ANSWERS["plain"])


@pytest.mark.parametrize("answer", [*ANSWERS.values(), None], ids=[*ANSWERS.keys(), "none"])
def test_answers(demo: Demo, magi: Magi, answer: dict[str, Any] | None) -> None:
    steps = SCRIPTS["call"]
    assert converse(demo_of(demo), steps, answer) == converse(magi, steps, answer)


def demo_of(demo: Demo) -> Demo:
    """The demo agent with a home apart from the real child's."""
    folder = demo.folder / "demo"
    folder.mkdir()
    return Demo(folder)


def test_what_initialize_promises_is_the_same(demo: Demo, magi: Magi) -> None:
    names = ("session.discover", "model.refresh", "model.catalog.status", "operation.cancel")
    with demo_of(demo).start() as one, magi.start() as other:
        assert one.initialize([X], *names).keys() == other.initialize([X], *names).keys()
        assert plain(one) == plain(other)
