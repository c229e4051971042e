"""The AsyncAPI 3.0 document of the socket, made from the structs that decode and encode its frames.

Owns the assembly alone: shapes, bounds and texts are those of ``wire.py``, so that the page cannot say another thing
than the code does.
"""

from typing import Any, Final

import msgspec

from adapters.websocket import wire
from adapters.websocket.protocol import Close
from gateway.model import limits

_TEMPLATE: Final = "#/components/schemas/{name}"
ANSWERED_BY: Final[dict[str, str]] = {
    "attach": "Attached",
    "detach": "Empty",
    "register": "Registered",
    "resume": "Resumed",
    "tools": "client_tools_updated event",
    "ack": "client_tool_acked event",
    "result": "Empty",
    "leave": "Empty",
    "input": "Submitted",
    "cancel": "Cancelled",
    "approve": "approval_resolved event",
    "ping": "Time",
}


def document(*, version: str, url: str = "") -> dict[str, Any]:
    """The whole document, ready to be encoded. ``url`` is ``public_url``; empty leaves the server out."""
    from_client = list(wire.OPS)
    to_client = [wire.Ok, wire.Error, *wire.PUSHES]
    _, schemas = msgspec.json.schema_components([*from_client, *to_client, *wire.ANSWERS], ref_template=_TEMPLATE)
    for name in ("Register", "ReplaceTools"):
        schemas[name]["properties"]["tools"] = {
            "type": "array",
            "maxItems": limits.TOOLS_PER_CLIENT,
            "items": {"$ref": "#/components/schemas/Tool"},
        }
    schemas["Tool"] = _tool()
    schemas["Ok"]["properties"]["ok"] = {
        "anyOf": [*({"$ref": _TEMPLATE.format(name=answer.__name__)} for answer in wire.ANSWERS), {"type": "object"}]
    }
    messages = {struct.__name__: _message(struct, schemas) for struct in (*from_client, *to_client)}
    found: dict[str, Any] = {
        "asyncapi": "3.0.0",
        "info": {"title": "toolrelay.v1", "version": version, "description": _description()},
        "defaultContentType": "application/json",
        "channels": {
            "socket": {
                "address": "/v1/ws",
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
                "bindings": {"ws": {"method": "GET", "bindingVersion": "0.1.0"}},
            }
        },
        "operations": {
            "fromClient": _operation("receive", [struct.__name__ for struct in from_client]),
            "toClient": _operation("send", [struct.__name__ for struct in to_client]),
        },
        "components": {"messages": messages, "schemas": schemas},
    }
    if url:
        scheme, _, host = url.partition("://")
        found["servers"] = {"gateway": {"host": host, "protocol": "wss" if scheme == "https" else "ws"}}
    return found


def encoded(*, version: str, url: str = "") -> bytes:
    """The document as JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(document(version=version, url=url)), indent=2) + b"\n"


def _description() -> str:
    codes = "\n".join(f"- {close.code}: {close.reason}" for close in Close)
    return (
        f"Subprotocol `{wire.SUBPROTOCOL}`; text frames, each one JSON object, of at most {limits.SOCKET_FRAME_BYTES} "
        f"bytes ({limits.SOCKET_FRAME_BYTES_BEFORE_ATTACH} before the first attach). Answers carry the id of their "
        f"frame, pushes have none.\n\nClose codes:\n{codes}"
    )


def _message(struct: type[Any], schemas: dict[str, Any]) -> dict[str, Any]:
    name = struct.__name__
    made: dict[str, Any] = {"name": name, "payload": {"$ref": _TEMPLATE.format(name=name)}}
    if text := schemas[name].get("description"):
        made["summary"] = text
    tag = struct.__struct_config__.tag
    if tag in ANSWERED_BY:
        made["description"] = f"Answered by `ok`: {ANSWERED_BY[tag]}."
    return made


def _operation(action: str, names: list[str]) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": "#/channels/socket"},
        "messages": [{"$ref": f"#/channels/socket/messages/{name}"} for name in names],
    }


def _tool() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["name", "description", "parameters"],
        "properties": {
            "name": {"type": "string", "pattern": f"^[A-Za-z0-9_-]{{1,{limits.TOOL_NAME_CHARS}}}$"},
            "description": {"type": "string", "maxLength": limits.TOOL_DESCRIPTION_CHARS},
            "parameters": {"type": "object", "description": "A JSON Schema, local references only."},
            "timeout_ms": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "idempotent": {"type": "boolean", "default": False},
        },
    }
