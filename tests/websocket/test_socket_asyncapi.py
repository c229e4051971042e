"""The AsyncAPI document: whole, without a reference that leads nowhere, and true to the structs."""

import json
import re
from typing import Any

import jsonschema_rs
import msgspec

from adapters.websocket import asyncapi, wire
from adapters.websocket.protocol import Close

DOCUMENT: dict[str, Any] = json.loads(msgspec.json.encode(asyncapi.document(version="1", url="https://t.example")))


def _at(pointer: str) -> Any:
    place: Any = DOCUMENT
    for step in pointer.removeprefix("#/").split("/"):
        place = place[step]
    return place


def _valid(name: str, value: Any) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return jsonschema_rs.is_valid(schema, value)


def test_every_reference_leads_somewhere() -> None:
    found = re.findall(r'"\$ref": "([^"]+)"', json.dumps(DOCUMENT))
    assert len(found) > 40
    for pointer in found:
        assert _at(pointer)


def test_every_op_push_and_close_code_is_in_it() -> None:
    messages = DOCUMENT["components"]["messages"]
    assert {op.__name__ for op in wire.OPS} <= messages.keys()
    assert {push.__name__ for push in wire.PUSHES} <= messages.keys()
    for op in wire.OPS:
        tag = DOCUMENT["components"]["schemas"][op.__name__]["properties"]["op"]
        assert tag["enum"] == [op.__struct_config__.tag]
        assert messages[op.__name__]["description"].startswith("Answered by")
    assert all(str(close.code) in DOCUMENT["info"]["description"] for close in Close)
    assert DOCUMENT["servers"]["gateway"] == {"host": "t.example", "protocol": "wss"}


def test_it_says_of_frames_what_the_structs_say() -> None:
    register = {"id": 1, "op": "register", "session_id": "s", "name": "web", "lifetime": {"type": "never"}}
    assert _valid("Register", register)
    assert _valid("Register", {**register, "lifetime": {"type": "ttl", "data": {"seconds": 5}}})
    for wrong in (
        {"name": "Web"},
        {"name": "web\n"},
        {"lifetime": {"type": "ttl", "data": {"seconds": 4}}},
        {"key": "x"},
        {"tools": [{"name": "a b"}]},
        {"id": "1"},
    ):
        assert not _valid("Register", {**register, **wrong}), wrong
    assert _valid("KeepalivePush", {"keepalive": "t"})
    assert _valid("ClosedPush", {"session_id": "s", "closed": {"reason": "deleted"}})
    assert not _valid("ClosedPush", {"session_id": "s", "closed": {"reason": "bored"}})
