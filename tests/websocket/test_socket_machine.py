"""The protocol machine without a socket, exact."""

import json
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from adapters.websocket import protocol, wire
from adapters.websocket.protocol import BadAnswer, Close, Closing, Command, Held, Machine, Rate
from gateway.model.errors import Code, Refusal

SID, OTHER, CID = str(uuid4()), str(uuid4()), str(uuid4())


def machine(*sessions: str, held: dict[str, Held] | None = None, opened: bool = True, burst: float = 1000) -> Machine:
    made = Machine(dict.fromkeys(sessions, object()), held or {}, Rate(1, burst))
    made.open = opened
    return made


def frame(**fields: Any) -> bytes:
    return json.dumps({"id": 1, **fields}).encode()


def given(made: Machine, **fields: Any) -> Command:
    what = made.receive(frame(**fields), 0.0)
    assert isinstance(what, Command), what
    return what


def refused(made: Machine, **fields: Any) -> dict[str, str]:
    what = made.receive(frame(**fields), 0.0)
    assert isinstance(what, bytes), what
    return msgspec.json.decode(what)["error"]


def test_the_close_codes_are_those_of_the_protocol() -> None:
    assert {close.code for close in Close} == {4400, 4401, 4403, 4404, 4408, 4413, 4429, 1012}
    assert all(len(close.reason.encode()) <= 123 for close in Close)


def test_every_op_of_the_page_is_known() -> None:
    names = [
        "attach",
        "detach",
        "register",
        "resume",
        "tools",
        "ack",
        "result",
        "leave",
        "input",
        "cancel",
        "approve",
        "ping",
    ]
    assert sorted(wire.OP_NAMES) == sorted(names)


def test_a_session_is_found_by_what_the_socket_holds_then_by_being_the_only_one() -> None:
    held = {CID: Held(CID, OTHER, "h", "n:1")}
    both = machine(SID, OTHER, held=held)
    assert given(both, op="leave", client_id=CID).session_id == OTHER
    assert given(both, op="leave", client_id=CID, session_id=SID).session_id == SID
    assert "session_id" in refused(both, op="leave", client_id="else")["message"]
    assert given(machine(SID), op="leave", client_id="else").session_id == SID
    assert given(machine(SID), op="leave", client_id="else", session_id=OTHER.upper()).session_id == OTHER
    assert refused(machine(SID), op="leave", client_id="else", session_id="{" + SID + "}")["code"] == "not_found"


def test_before_the_first_attach() -> None:
    made = machine(opened=False)
    assert refused(made, op="detach", session_id=SID)["code"] == "unauthorized"
    assert refused(made, op="ack", client_id=CID, call_id="c")["code"] == "unauthorized"
    assert given(made, op="ping").session_id == ""
    assert given(made, op="attach", session_id=SID).session_id == SID
    for size, fits in ((8192, True), (8193, False)):
        head = frame(op="ping", x="")
        raw = head[:-2] + b"x" * (size - len(head)) + b'"}'
        assert len(raw) == size
        if fits:
            assert isinstance(made.receive(raw, 0.0), Command)
        else:
            with pytest.raises(Closing) as closing:
                made.receive(raw, 0.0)
            assert closing.value.close is Close.TOO_LARGE


def test_a_bad_result_names_its_call_so_that_it_is_not_used_up() -> None:
    bad = machine(SID).receive(frame(op="result", client_id=CID, call_id="c", text="x" * 65_537), 0.0)
    assert isinstance(bad, BadAnswer)
    assert (bad.id, bad.session_id, bad.client_id, bad.call_id) == (1, SID, CID, "c")
    assert bad.why.envelope_code == "invalid_request"
    assert "65536" in bad.why.message
    assert refused(machine(SID), op="result", client_id=CID, text="t")["message"].startswith("Object missing")


def test_text_is_counted_in_code_points_and_lone_surrogates_are_mended() -> None:
    assert isinstance(given(machine(SID), op="result", client_id=CID, call_id="c", text="😀" * 65_536), Command)
    what = machine(SID).receive(b'{"id":1,"op":"result","client_id":"a","call_id":"c","text":"a\\ud800b"}', 0.0)
    assert isinstance(what, Command)
    assert isinstance(what.op, wire.Result)
    assert what.op.text == "a\ufffdb"


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ('{ "a" : 1.0 , "b":[1e2, 12345678901234567890123]}', '{"a":1.0,"b":[1e2,12345678901234567890123]}'),
        ("0.1000", "0.1000"),
        ('" "', '" "'),
        ("false", "false"),
        ("[]", "[]"),
    ],
)
def test_structured_keeps_every_number_as_it_was_written(written: str, kept: str) -> None:
    raw = f'{{"id":1,"op":"result","client_id":"{CID}","call_id":"c","text":"","structured":{written}}}'
    what = machine(SID).receive(raw.encode(), 0.0)
    assert isinstance(what, Command)
    assert what.structured == kept.encode()


def test_structured_null_is_none() -> None:
    assert given(machine(SID), op="result", client_id=CID, call_id="c", text="", structured=None).structured is None


def test_structured_is_bounded_compact() -> None:
    fits = given(machine(SID), op="result", client_id=CID, call_id="c", text="", structured="x" * 65_534)
    assert fits.structured is not None
    assert len(fits.structured) == 65_536
    bad = machine(SID).receive(frame(op="result", client_id=CID, call_id="c", text="", structured="x" * 65_535), 0.0)
    assert isinstance(bad, BadAnswer)
    assert bad.why.envelope_code == "invalid_request"


def test_refusals_never_quote_what_was_sent() -> None:
    for fields in (
        {"op": "SECRET"},
        {"op": "approve", "session_id": SID, "call_id": "c", "decision": "SECRET"},
        {"op": "register", "session_id": SID, "name": "SECRET", "lifetime": {"type": "never"}},
        {"op": "register", "session_id": SID, "name": "a", "lifetime": {"type": "SECRET"}},
        {"op": "register", "session_id": SID, "name": "a", "lifetime": "SECRET"},
        {"op": "attach", "session_id": SID, "after_seq": "SECRET"},
    ):
        assert "SECRET" not in str(refused(machine(SID), **fields))


def test_the_rate_lets_a_burst_and_then_an_average_pass() -> None:
    rate = Rate(8, 5)
    assert [rate.take(100.0) for _ in range(6)] == [True] * 5 + [False]
    assert rate.take(100.125)
    assert not rate.take(100.125)
    assert [rate.take(200.0) for _ in range(6)] == [True] * 5 + [False]


def test_frames_are_spliced_and_never_decoded() -> None:
    head = protocol.push_head(SID)
    assert protocol.event(head, b'{"seq":1.0}') == f'{{"session_id":"{SID}","event":{{"seq":1.0}}}}'.encode()
    assert protocol.delta(head, b"{}") == f'{{"session_id":"{SID}","delta":{{}}}}'.encode()
    assert protocol.reset(head, 7) == f'{{"session_id":"{SID}","reset":{{"seq":7}}}}'.encode()
    assert protocol.closed(SID, "deleted") == f'{{"session_id":"{SID}","closed":{{"reason":"deleted"}}}}'.encode()
    assert protocol.closed(SID, "taken_over", CID).endswith(f'"client_id":"{CID}"}}}}'.encode())
    assert protocol.keepalive("t") == b'{"keepalive":"t"}'
    assert protocol.ok(-(10**30), b"{}") == b'{"id":-1%s,"ok":{}}' % (b"0" * 30)
    assert protocol.error(3, Refusal(Code.NOT_FOUND, "m")) == b'{"id":3,"error":{"code":"not_found","message":"m"}}'
