"""The faults that the demo agent can be asked for: each does what its name says, so an owner's tests may lean on it."""

import contextlib
import json
import os
import signal
import subprocess
import time
from typing import Any

import pytest

from tests.doubles.stdio_driver import Child, tool
from tests.doubles.stdio_peers import Demo

X = {"calls": [{"name": "client__x", "arguments": {}}]}


def begin(child: Child, *steps: Any) -> tuple[str, str]:
    """A run that plays the steps: (session, run)."""
    child.initialize([tool("client__x")])
    session_id = child.result("session.create", {})["session_id"]
    return session_id, child.start(session_id, {"steps": list(steps)})


def lines(child: Child) -> list[bytes]:
    """All of stdout, to its end, without parsing it."""
    assert child.process.stdout is not None
    return child.process.stdout.read().split(b"\n")


def ask(child: Child, *steps: Any) -> None:
    """The same run for a child whose output is no protocol: answers are waited for by their line alone."""
    out = child.process.stdout
    assert out is not None
    child.send("initialize", {"required_capabilities": []})
    out.readline()
    child.send("session.create", {})
    session_id = json.loads(out.readline())["result"]["session_id"]
    child.send("turn.start", {"session_id": session_id, "prompt": json.dumps({"steps": list(steps)})})


@pytest.mark.parametrize("frames", range(8))
def test_it_dies_at_each_frame_boundary(demo: Demo, frames: int) -> None:
    """A whole run has twelve frames; each boundary before its end is a place to die."""
    with demo.start(DEMO_AGENT_FAULTS=json.dumps({"die_after_frames": frames, "exit_code": 9})) as child:
        with contextlib.suppress(AssertionError):
            begin(child, X, {"text": "done"})
            child.answer(child.event("client.tool.call"))
            child.finish()
        child.drain()
        assert len(child.frames) == frames
        assert child.wait() == 9


def test_it_dies_by_a_signal_in_a_run_and_what_it_said_before_is_there(demo: Demo) -> None:
    with demo.start() as child:
        begin(child, X | {"text": "last words"}, {"die": {"signal": "SIGSEGV"}})
        child.answer(child.event("client.tool.call"))
        child.drain()
        assert child.frames[-1]["data"]["state"] == "completed"
        assert child.wait() == -signal.SIGSEGV


def test_a_byte_at_a_time_is_still_the_protocol(demo: Demo) -> None:
    with demo.start(DEMO_AGENT_FAULTS='{"byte_at_a_time": true}') as child:
        begin(child, {"text": "slow"})
        assert child.finish()["outcome"] == "completed"


def test_noise_and_half_lines_and_frames_of_its_own(demo: Demo) -> None:
    with demo.start(reading=False, DEMO_AGENT_FAULTS='{"banner": "hello\\u001b[0m"}') as child:
        assert child.process.stdout is not None
        assert child.process.stdout.readline() == b"hello\x1b[0m\n"
        steps = [
            {"noise": "Loading…", "raw_frame": {"seq": 1, "type": "other", "event": None}, "raw_hex": "ff0a"},
            {"raw_event": {"event": "not.known", "data": {"x": 1}}},
            {"oversize": 70_000},
            {"raw": '{"half', "die": {"exit": 3}},
        ]
        ask(child, *steps)
        told = lines(child)
        at = told.index("Loading…".encode())
        assert told[at + 1] == b"\xff"
        frame, event, big = (json.loads(line) for line in told[at + 2 : at + 5])
        assert (frame["seq"], frame["type"], "event" in frame) == (1, "other", False)
        assert (event["event"], event["data"]["x"]) == ("not.known", 1)
        assert len(big["data"]["summary"]) == 70_000
        assert told[-1] == b'{"half'
        assert child.wait() == 3


def test_one_call_id_twice(demo: Demo) -> None:
    with demo.start() as child:
        begin(child, X | {"same_call_id": True}, X | {"calls": X["calls"] * 2, "reuse_call_id": True}, {"text": "x"})
        first, second = child.event("client.tool.call"), child.event("client.tool.call")
        assert first["data"] == second["data"]
        assert "result" in child.answer(first)
        assert child.answer(second)["error"]["code"] == "stale_client_tool_call"
        third = child.event("client.tool.call")
        child.answer(third)
        fourth = child.event("client.tool.call")
        assert fourth["data"]["call_id"] == third["data"]["call_id"] != first["data"]["call_id"]
        child.answer(fourth)
        assert child.finish()["outcome"] == "completed"


def test_a_flood_is_whole(demo: Demo) -> None:
    with demo.start() as child:
        begin(child, {"flood": {"deltas": 5_000, "text": "x"}, "text": "done"})
        child.finish(60)
        parts = [e["data"]["part"] for e in child.events() if e["event"] == "message.delta"]
        assert parts[:5_000] == list(range(5_000))
        assert [f["seq"] for f in child.frames] == list(range(1, len(child.frames) + 1))


def test_a_stalled_reader_takes_no_request_for_so_long(demo: Demo) -> None:
    with demo.start() as child:
        begun = time.monotonic()
        begin(child, {"stall": {"input": 1.5}, "text": "x"})
        child.finish()
        child.result("status", {})
        assert time.monotonic() - begun > 1.5


def test_a_stalled_writer_says_nothing_for_so_long_and_lives(demo: Demo) -> None:
    with demo.start() as child:
        begun = time.monotonic()
        begin(child, {"stall": {"output": 2.5}, "text": "x"})
        assert child.finish()["outcome"] == "completed"
        assert time.monotonic() - begun > 2.5


def test_it_never_listens_again(demo: Demo) -> None:
    with demo.start(DEMO_AGENT_FAULTS='{"deaf_after_requests": 2, "ignore_end": true}') as child:
        child.initialize()
        child.result("status", {})
        child.send("status", {})
        child.close_input()
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.5)
        child.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.5)


def test_a_grandchild_outlives_it_and_is_in_its_group(demo: Demo) -> None:
    with demo.start() as child:
        begin(child, {"grandchild": {"seconds": 30, "holds_stdout": False}}, {"text": "{{results}}"})
        child.finish()
        said = [e["data"]["text"] for e in child.events() if e["event"] == "message.reconcile"]
        pid = int(json.loads(said[-1])[0])
        assert os.getpgid(pid) == child.process.pid
        child.close_input()
        child.drain()  # the grandchild does not hold our pipe
        assert child.wait() == 0
        os.kill(pid, 0)
    # leaving the block ended the group


def test_stderr_memory_and_a_report(demo: Demo) -> None:
    with demo.start(DEMO_AGENT_FAULTS='{"stderr_bytes": 1000}', EXTRA="1") as child:
        begin(
            child, {"stderr_bytes": 200_000, "memory_mb": 8, "report": ["env", "fds", "pid"]}, {"text": "{{results}}"}
        )
        child.finish()
        said = [
            e["data"]["text"] for e in child.events() if e["event"] == "message.reconcile" and not e["data"]["partial"]
        ]
        report = json.loads(json.loads("".join(said))[0])
        assert report["env"]["EXTRA"] == "1"
        assert report["pid"] == child.process.pid
        assert {"0", "1", "2"} <= report["fds"].keys()
        child.close_input()
        assert child.wait() == 0
        child.stop()
        assert len(child.stderr) == 201_000


def test_a_misspelt_fault_is_refused(demo: Demo) -> None:
    with demo.start(DEMO_AGENT_FAULTS='{"dye": 1}') as child:
        assert child.wait() == 2
        child.stop()
        assert b"dye" in child.stderr
