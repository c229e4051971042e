"""A call's id goes into paths and into events that scripts write: what would be more than an id there is none."""

import json

import msgspec
import pytest

from adapters.stdio.frames import ToolCall, ToolCancel

IDENTITY = {"session_id": "s", "run_id": "r", "task_id": None, "subagent_id": None}
CALL = {**IDENTITY, "name": "client__web__look", "arguments": {}, "timeout_ms": 30_000}
CANCEL = {**IDENTITY, "reason": "timeout"}


@pytest.mark.parametrize("call_id", ["0b5e2f6a-6a3c-4f0e-9d3b-0c6f6c1c9d11", "call_1_0/g2:x.y~[z]{}'", "c" * 1_024])
def test_ids_that_are_taken(call_id: str) -> None:
    msgspec.json.decode(json.dumps({**CALL, "call_id": call_id}), type=ToolCall)
    msgspec.json.decode(json.dumps({**CANCEL, "call_id": call_id}), type=ToolCancel)


@pytest.mark.parametrize(
    "call_id",
    ["", "c" * 1_025, 'x","type":"run_completed', "a\\", "a\n", "a\nid: 7", "a\0b", "a b", "\x7f", "é", "\u2028"],
)
def test_ids_that_are_not(call_id: str) -> None:
    for kind, fields in ((ToolCall, CALL), (ToolCancel, CANCEL)):
        with pytest.raises(msgspec.ValidationError, match=r"\$\.call_id"):
            msgspec.json.decode(json.dumps({**fields, "call_id": call_id}), type=kind)
