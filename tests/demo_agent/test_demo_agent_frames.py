"""Framing: what a line must be, what a bad one is answered with, when the child ends (stdio protocol, "Framing")."""

import subprocess
import time
from typing import Any

import pytest

from tests.doubles.stdio_driver import PROTOCOL, encode
from tests.doubles.stdio_peers import Demo, Peer

HEAD = b'{"protocol":"magi-code.local-agent","version":1,'
STATUS = b'"method":"status","params":'


def nested(depth: int) -> bytes:
    """A status request that many containers deep, itself included."""
    inner = b'{"a":' * (depth - 2) + b"{}" + b"}" * (depth - 2)
    return HEAD + b'"id":"deep",' + STATUS + inner + b"}"


NO_IDENTITY = {
    "empty": (b"", "invalid_request"),
    "CR alone": (b"\r", "invalid_request"),
    "no JSON": (b"not json", "invalid_request"),
    "no object": (b"[]", "invalid_request"),
    "no fields": (b"{}", "invalid_request"),
    "not UTF-8": (b'"\xff"', "invalid_request"),
    "a BOM": (b"\xef\xbb\xbf" + HEAD + b'"id":"a",' + STATUS + b"{}}", "invalid_request"),
    "more behind it": (HEAD + b'"id":"a",' + STATUS + b"{}} x", "invalid_request"),
    "a space in the id": (HEAD + b'"id":"a b",' + STATUS + b"{}}", "invalid_request"),
    "an empty id": (HEAD + b'"id":"",' + STATUS + b"{}}", "invalid_request"),
    "a number as id": (HEAD + b'"id":5,' + STATUS + b"{}}", "invalid_request"),
    "an id of 65": (HEAD + b'"id":"' + b"a" * 65 + b'",' + STATUS + b"{}}", "invalid_request"),
    "an unknown field": (HEAD + b'"id":"a","x":1,' + STATUS + b"{}}", "invalid_request"),
    "a field twice": (HEAD + b'"id":"a","id":"a",' + STATUS + b"{}}", "invalid_request"),
    "no params": (HEAD + b'"id":"a","method":"status"}', "invalid_request"),
    "a space in the method": (HEAD + b'"id":"a","method":"a b","params":{}}', "invalid_request"),
    "no method name": (HEAD + b'"id":"a","method":"","params":{}}', "invalid_request"),
    "a number as method": (HEAD + b'"id":"a","method":5,"params":{}}', "invalid_request"),
    "NaN": (HEAD + b'"id":"a",' + STATUS + b'{"a":NaN}}', "invalid_request"),
    "a raw tab in a string": (HEAD + b'"id":"a",' + STATUS + b'{"a":"\t"}}', "invalid_request"),
    "version 1.0": (
        b'{"protocol":"magi-code.local-agent","version":1.0,"id":"a",' + STATUS + b"{}}",
        "invalid_request",
    ),
    "version true": (
        b'{"protocol":"magi-code.local-agent","version":true,"id":"a",' + STATUS + b"{}}",
        "invalid_request",
    ),
    "33 deep": (nested(33), "invalid_frame"),
    "closes too much": (b"]", "invalid_frame"),
    "never closes": (b"[[[", "invalid_frame"),
    "a string that never ends": (b'{"a":"b', "invalid_frame"),
    "crossed brackets": (b"{]", "invalid_request"),
}


@pytest.mark.parametrize(("line", "code"), NO_IDENTITY.values(), ids=NO_IDENTITY.keys())
def test_a_line_without_identity_is_answered_without_an_id_and_hurts_nobody(peer: Peer, line: bytes, code: str) -> None:
    with peer.start() as child:
        child.raw(line + b"\n")
        assert child.null_error() == code
        assert child.error("status", {}) == "not_initialized"


ACCEPTED = {
    "32 deep": nested(32),
    "brackets in a string": HEAD + b'"id":"deep",' + STATUS + b'"' + b"[" * 40 + b'"}',
    "CR before LF": HEAD + b'"id":"deep",' + STATUS + b"{}}\r",
    "spaces around": b"  " + HEAD + b'"id":"deep",' + STATUS + b"{}}  ",
    "a lone surrogate in unread params": HEAD + b'"id":"deep",' + STATUS + b'{"a":"\\ud800"}}',
    "65,536 bytes": HEAD + b'"id":"deep",' + STATUS + b'"' + b"x" * (65_536 - 100) + b'"}',
}


@pytest.mark.parametrize("line", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_a_line_at_the_bound_is_a_request(peer: Peer, line: bytes) -> None:
    with peer.start() as child:
        child.raw(line + b"\n")
        assert child.response("deep")["error"]["code"] == "not_initialized"


def full_frame(size: int) -> bytes:
    """A status request of so many bytes without its LF."""
    start, end = HEAD + b'"id":"big",' + STATUS + b'{"a":"', b'"}}'
    return start + b"x" * (size - len(start) - len(end)) + end


def test_a_frame_at_its_bound_is_taken_and_one_byte_more_ends_the_child(peer: Peer) -> None:
    with peer.start() as child:
        child.raw(full_frame(65_536) + b"\n")
        assert child.response("big")["error"]["code"] == "not_initialized"
        child.raw(full_frame(65_537)[:65_537])
        child.drain()
        assert child.frames[-1]["id"] is None
        assert child.frames[-1]["error"]["code"] == "frame_too_large"
        assert child.wait() == 0


def test_an_id_is_used_once_and_a_rejected_line_uses_none(peer: Peer) -> None:
    with peer.start() as child:
        child.raw(HEAD + b'"id":"a","x":1,' + STATUS + b"{}}\n")
        assert child.null_error() == "invalid_request"
        first = child.response(child.send("status", {}, "a"))
        assert first["error"]["code"] == "not_initialized"
        seen = len(child.frames)
        child.send("initialize", {"required_capabilities": []}, "a")
        assert child.response("a", after=seen)["error"]["code"] == "duplicate_id"
        assert child.error("status", {}) == "not_initialized"  # the duplicate did nothing


def test_4096_ids_and_then_the_end(peer: Peer) -> None:
    with peer.start() as child:
        child.initialize()
        for number in range(4_095):
            assert "result" in child.response(child.send("status", {}, f"s{number}"), after=len(child.frames) - 1)
        child.send("status", {}, "last")
        child.drain()
        assert (child.frames[-1]["id"], child.frames[-1]["error"]["code"]) == ("last", "request_limit")
        assert child.wait() == 0


@pytest.mark.parametrize("changed", [{"protocol": "x"}, {"version": 2}], ids=["protocol", "version"])
def test_another_protocol_is_refused_and_ends_the_child(peer: Peer, changed: dict[str, Any]) -> None:
    frame = {"protocol": PROTOCOL, "version": 1, "id": "a", "method": "status", "params": {}} | changed
    with peer.start() as child:
        child.raw(str(frame).replace("'", '"').encode() + b"\n")
        child.drain()
        assert [(f["id"], f["error"]["code"]) for f in child.frames] == [("a", "protocol_mismatch")]
        assert child.wait() == 0


def test_sequence_and_instance(peer: Peer) -> None:
    with peer.start() as child, peer.start(home="other") as other:
        for one in (child, other):
            one.initialize()
            one.error("nothing.here", {})
            one.raw(b"\n")
            one.null_error()
            assert [f["seq"] for f in one.frames] == [1, 2, 3]
            assert len({f["instance_id"] for f in one.frames}) == 1
        assert child.frames[0]["instance_id"] != other.frames[0]["instance_id"]
        assert all((f["protocol"], f["version"]) == (PROTOCOL, 1) for f in child.frames)


@pytest.mark.parametrize(("last", "code"), [(b"", None), (b"half", "incomplete_frame")], ids=["clean", "half a line"])
def test_the_end_of_input_is_a_clean_end(peer: Peer, last: bytes, code: str | None) -> None:
    with peer.start() as child:
        child.raw(last)
        child.close_input()
        assert [f["error"]["code"] for f in child.drain()] == ([code] if code else [])
        assert child.wait() == 0
        assert bytes(child.stderr) == b""


def test_32_answers_may_wait_and_33_may_not(peer: Peer) -> None:
    with peer.start() as child:
        child.initialize()
        child.raw(b"".join(encode(f"a{n}", "status", {}) for n in range(32)))
        assert "result" in child.response("a31")
        child.raw(b"".join(encode(f"b{n}", "status", {}) for n in range(33)))
        assert child.wait() == 1


def test_output_that_nobody_reads_ends_the_child_after_two_seconds(peer: Peer) -> None:
    with peer.start(reading=False) as child:
        assert child.process.stdout is not None
        child.raw(encode("i", "initialize", {"required_capabilities": []}))
        child.process.stdout.readline()
        child.raw(encode("s", "status", {}))
        size = len(child.process.stdout.readline())
        begun = time.monotonic()
        for number in range(16 * (4_096 // size) + 4):  # a pipe of 16 pages, and a few that wait
            child.raw(encode(f"s{number}", "status", {})[:-1] + b" " * 4_000 + b"\n")  # one read each
        assert child.wait(10) == 1
        assert time.monotonic() - begun > 1.9
        assert bytes(child.stderr) == b""


def test_wrong_launches(demo: Demo) -> None:
    for arguments in (("serve",), ("--stdio", "serve"), ("serve", "--stdio", "--model", "x")):
        with demo.start(*arguments) as child:
            assert child.wait() == 2
            assert child.drain() == []


def test_what_is_no_pipe_is_refused(peer: Peer) -> None:
    command, env = peer.launch(peer.folder / "home")
    with (peer.folder / "out").open("wb") as out:
        launch = [*command, "serve", "--stdio"]
        done = subprocess.run(launch, stdin=subprocess.DEVNULL, stdout=out, env=env, timeout=5, check=False)
    assert done.returncode == 1
    assert (peer.folder / "out").read_bytes() == b""
