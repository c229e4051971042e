"""``calls tail|answer`` and ``doctor``: what they ask of a gateway, what they print, how they end."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.cli import following
from tests.doubles.nodes import API_KEY, Node, demo_agent
from tests.doubles.nodes_session import calls, conversation, tool

if TYPE_CHECKING:
    from tests.cli.conftest import Double, Ended

    Command = Callable[..., Ended]

SID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
CID = "6ba7b811-9dad-11d1-80b4-00c04fd430c8"
ALIVE = b'{"status":"ok"}'


def frame(seq: int, **fields: Any) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (seq, json.dumps({"seq": seq, **fields}).encode())


def test_calls_tail_shows_what_is_of_calls(
    command: "Command", double: "Double", monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = (
        frame(1, type="run_queued", run_id="r1")
        + frame(2, type="tool_call", call_id="c", name="n", arguments={})
        + frame(3, type="client_tool_dispatched", call_id="c", tool="look")
        + frame(4, type="run_completed", run_id="r1")
        + b"id: 5\ndata: {"  # cut in the middle: it is asked for again
    )
    path = f"GET /v1/sessions/{SID}/events/stream?after_seq=0"
    double.answers[path] = (200, [stream, frame(5, type="client_tool_failed", call_id="c", reason="ack_timeout")])
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            double.answers.clear()

    monkeypatch.setattr(following.time, "sleep", wait)
    ended = command("calls", "tail", SID, "--after-seq", "0")
    assert ended.code == 1
    assert [line.split()[:2] for line in ended.out.splitlines()] == [
        ["2", "tool_call"],
        ["3", "client_tool_dispatched"],
        ["5", "client_tool_failed"],
    ]
    assert [asked.headers.get("last-event-id") for asked in double.asked] == [None, "4", "5"]


def _open_call(double: "Double") -> None:
    double.answers[f"GET /v1/sessions/{SID}/calls?state=dispatched&limit=100"] = (200, {"items": []})
    double.answers[f"GET /v1/sessions/{SID}/calls?state=acked&limit=100"] = (
        200,
        {"items": [{"call_id": "a/b", "client_id": CID}], "next_cursor": None},
    )
    double.answers[f"POST /v1/sessions/{SID}/clients/{CID}/calls/a%2Fb/result"] = (204, None)


def test_calls_answer(command: "Command", double: "Double") -> None:
    _open_call(double)
    ended = command("calls", "answer", SID, "a/b", "no such row", "--error", "--structured", '{"row": 9}')
    assert (ended.code, ended.out, ended.err) == (0, "answered\n", "")
    asked = double.asked[-1]
    assert json.loads(asked.body) == {"text": "no such row", "is_error": True, "structured": {"row": 9}}
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["idempotency-key"]


def test_calls_answer_reads_the_standard_input(
    command: "Command", double: "Double", monkeypatch: pytest.MonkeyPatch
) -> None:
    _open_call(double)
    monkeypatch.setattr(sys, "stdin", io.StringIO("two\nlines\n"))
    assert command("calls", "answer", SID, "a/b").code == 0
    assert json.loads(double.asked[-1].body) == {"text": "two\nlines", "is_error": False}


def test_calls_answer_names_what_is_wrong(command: "Command", double: "Double") -> None:
    _open_call(double)
    ended = command("calls", "answer", SID, "other", "x")
    assert ended.code == 1
    assert "no such call is open" in ended.err
    assert not [asked for asked in double.asked if asked.method == "POST"]
    for structured in ("{", "NaN", "[" * 100_000):
        ended = command("calls", "answer", SID, "a/b", "x", "--structured", structured)
        assert (ended.code, ended.out) == (2, "")
        assert "must be JSON" in ended.err
    ended = command("calls", "answer", SID, "a/b", "half a \udcff character")
    assert (ended.code, ended.err) == (2, "toolrelay: TEXT must be UTF-8\n")
    assert command("calls", "tail", SID, "--after-seq", "-1").code == 2


@pytest.mark.parametrize("address", ["http://[::1", "http://host:port", "http://host:99999", "http://", "ftp://host"])
def test_an_address_that_is_none_is_told_so(command: "Command", monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("TOOLRELAY_URL", address)
    monkeypatch.setenv("TOOLRELAY_API_KEY", "a-key-of-some-length")
    for words in (("sessions", "list"), ("doctor",), ("doctor", "--url", address)):
        ended = command(*words)
        assert (ended.code, ended.out) == (2, "")
        assert "must be http://… or https://…" in ended.err


def test_something_that_is_no_gateway_is_told_so(command: "Command", double: "Double") -> None:
    double.answers["GET /v1/sessions?limit=50"] = (200, {"data": []})
    assert "is this a toolrelay gateway?" in command("sessions", "list").err
    double.answers[f"GET /v1/sessions/{SID}/events/stream"] = (200, {})
    double.stream = "text/html"
    ended = command("sessions", "tail", SID)
    assert ended.code == 1
    assert "no stream of events" in ended.err


def checks(ended: "Ended") -> dict[str, str]:
    return {check["check"]: check["verdict"] for check in json.loads(ended.out)["checks"]}


def test_doctor_on_what_is_not_there(command: "Command", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLRELAY_API_KEY", raising=False)
    ended = command("doctor", "--url", "http://127.0.0.1:1")
    assert (ended.code, ended.err) == (1, "")
    assert ended.out == "fail  address  http://127.0.0.1:1 does not answer (ConnectError)\n"
    assert command("doctor", "--url", "ftp://x").code == 2


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [(200, b"<html>", "not as a toolrelay gateway"), (502, b"", "answers 502")],
)
def test_doctor_on_what_is_no_gateway(
    command: "Command", double: "Double", status: int, body: bytes, said: str
) -> None:
    double.answers["GET /healthz"] = (status, body)
    ended = command("doctor")
    assert ended.code == 1
    assert said in ended.out
    assert len(ended.out.splitlines()) == 1


def test_doctor_says_what_is_in_the_way(command: "Command", double: "Double") -> None:
    double.answers["GET /healthz"] = (200, ALIVE)
    double.answers["GET /readyz"] = (503, {"status": "not ready", "reasons": ["draining", "the bus"]})
    double.answers["GET /v1/agents?limit=100"] = (401, {"error": {"code": "unauthorized", "message": "who?"}})
    ended = command("doctor", "--json")
    assert ended.code == 1
    assert checks(ended) == {"address": "ok", "ready": "fail", "key": "fail", "socket": "fail"}
    for said in (
        "draining, the bus",
        "who? (401 unauthorized)",
        "refused (404): see server.allowed_hosts",
    ):
        assert said in ended.out


async def test_on_a_real_node(command: "Command", monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Node(tmp_path, agents=[demo_agent(tmp_path / "agent")]) as node:
        monkeypatch.setenv("TOOLRELAY_URL", node.url)
        monkeypatch.delenv("TOOLRELAY_API_KEY", raising=False)
        ended = command("doctor", "--json")
        assert ended.code == 0
        assert checks(ended) == {"address": "ok", "ready": "ok", "key": "skip", "socket": "ok"}
        monkeypatch.setenv("TOOLRELAY_API_KEY", API_KEY)
        ended = command("doctor")
        assert ended.code == 0
        assert "the API key reaches demo" in ended.out
        async with conversation(node) as talk:
            client = await talk.register("web", tool("look"))
            run = await talk.say(calls("client__web__look", {}), {"text": "{{results}}"})
            call = (await client.dispatched())[0]
            assert command("calls", "answer", talk.id, call["call_id"], "seen by a person").code == 0
            assert (await talk.end(run))["type"] == "run_completed"
            assert "seen by a person" in talk.said()
            late = command("calls", "answer", talk.id, call["call_id"], "too late")
            assert late.code == 1
            assert "no such call is open" in late.err
