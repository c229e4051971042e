"""The description of this interface, OpenAPI 3.1. Owns the document; every fact in it is the table's or a struct's.

It is made from ``routes.OPERATIONS``, the structs of ``wire`` and the events of the model, so it cannot say what the
code does not do.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from adapters.http import wire
from adapters.http.events import OLDEST
from adapters.http.resource import Operation
from gateway import __version__
from gateway.model import events, limits
from gateway.model.enquiries import CURSOR_CHARS
from gateway.model.errors import Code
from gateway.web.replies import Envelope

Json = dict[str, Any]

_REF: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"{(\w+)}")
_UUID: Final[Json] = {"type": "string", "format": "uuid"}
_SEQ: Final[Json] = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
_ORDER: Final[Json] = {"type": "string", "enum": ["asc", "desc"]}

_PATH: Final[Mapping[str, tuple[Json, str]]] = {
    "sid": (_UUID, "A session."),
    "cid": (_UUID, "A registration."),
    "token_id": (_UUID, "A session token's id."),
    "call_id": ({"type": "string", "minLength": 1, "maxLength": 1024}, "A call's or an approval's id; opaque."),
}
_QUERY: Final[Mapping[str, tuple[Json, str]]] = {
    "limit": ({"type": "integer", "minimum": 1, "maximum": limits.EVENTS_PAGE}, "How many items a page holds at most."),
    "after": ({"type": "string"}, "Where the page before ended: its `next_cursor`."),
    "order": (_ORDER, "Newest first when omitted."),
    "cursor": ({"type": "string", "minLength": 1, "maxLength": CURSOR_CHARS}, "The page before's `next_cursor`."),
    "after_seq": (_SEQ, "Events with a greater seq."),
    "before_seq": (_SEQ, "Events with a smaller seq."),
    "deltas": (
        {"type": "string", "enum": ["0", "1"]},
        "1: unlogged pieces of messages too, as frames of type `delta`.",
    ),
    "state": (
        {"type": "string", "enum": ["dispatched", "acked", "answered", "failed", "open", "settled"]},
        "Calls in this state alone.",
    ),
}
_MADE: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "create_session": ("sid", ()),
    "register_client": ("cid", ("sid",)),
}
"""Operations that make something: the parameter that its id is, and those that go with it."""
_STATUS: Final = {
    200: "Done.",
    201: "Made.",
    204: "Done; no body.",
    400: "The request is not valid; the message names the field, the parameter or the header.",
    401: "No valid credential.",
    403: "This credential or this origin may not do that.",
    404: "There is no such thing here, or not for this credential.",
    405: "This method is not allowed here.",
    408: "The body did not come in time.",
    409: "It contradicts what is recorded, or the idempotency key was used for another request.",
    413: "The body is too large.",
    415: "The body is not declared as JSON, or has a content encoding.",
    429: "Too many requests, inputs, sessions or streams; `Retry-After` says when.",
    500: "Something went wrong here.",
    503: "The bus is away, or this node is going away; `Retry-After` says when.",
}


def _event_types() -> Iterable[type[msgspec.Struct]]:
    return events.EVENT_TYPES


def _unknown(_kind: type) -> Json:
    """Any JSON: what a struct leaves to others (a tool's schema, a call's arguments)."""
    return {}


def _schemas(operations: Sequence[Operation]) -> tuple[dict[object, Json], Json]:
    """The schema of every type that an operation names, and the components that they refer to."""
    types: list[Any] = [Envelope, wire.ToolForm, *_event_types()]
    for operation in operations:
        types += [kind for kind in (operation.request, *operation.answers.values()) if kind not in (None, dict)]
    found, components = msgspec.json.schema_components(types, schema_hook=_unknown, ref_template=_REF)
    return {id(kind): schema for kind, schema in zip(types, found, strict=True)}, components


def _numbered(components: Json) -> Json:
    """Events as the log has them: with their number."""
    names = sorted(kind.__name__ for kind in _event_types())
    for name in names:
        schema = components[name]
        schema["properties"] = {"seq": {"type": "integer", "minimum": 1}, **schema["properties"]}
        schema["required"] = ["seq", *schema["required"]]
    mapping = {components[name]["properties"]["type"]["enum"][0]: _REF.format(name=name) for name in names}
    return {
        "oneOf": [{"$ref": reference} for reference in mapping.values()],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }


def _parameters(operation: Operation) -> list[Json]:
    found: list[Json] = []
    for name in _PARAMETER.findall(operation.path):
        schema, text = _PATH[name]
        found.append({"name": name, "in": "path", "required": True, "schema": schema, "description": text})
    for name in operation.query:
        schema, text = _QUERY[name]
        if name == "after" and operation.name != "list_calls":
            schema = _UUID
        found.append({"name": name, "in": "query", "schema": schema, "description": text})
    if operation.key:
        text = "The same key with the same request gives the first answer back; with another one it is refused."
        key = {"type": "string", "minLength": 1, "maxLength": limits.IDEMPOTENCY_KEY_CHARS, "pattern": "^[ -~]*$"}
        found.append({"name": "Idempotency-Key", "in": "header", "schema": key, "description": text})
    if operation.name == "stream_session_events":
        text = "Where to start; it wins over `after_seq`."
        found.append({"name": "Last-Event-ID", "in": "header", "schema": _SEQ, "description": text})
    return found


def _errors(operation: Operation) -> list[int]:
    codes = {400, 401, 403, 429, 500, 503, *operation.errors}
    if "{" in operation.path:
        codes.add(404)
    if operation.key:
        codes.add(409)
    if operation.request is not None:
        codes |= {408, 413, 415}
    return sorted(codes)


def _content(operation: Operation, status: int, kind: object, schemas: Mapping[object, Json]) -> Json:
    answer: Json = {"description": _STATUS[status]}
    if operation.name == "stream_session_events":
        answer["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    elif kind is dict:
        answer["content"] = {"application/json": {"schema": {"$ref": _REF.format(name="SessionEvent")}}}
    elif kind is not None:
        answer["content"] = {"application/json": {"schema": schemas[id(kind)]}}
    if operation.name in ("stream_session_events", "list_session_events"):
        text = "The oldest event that is kept, where older ones were asked for."
        answer["headers"] = {OLDEST.decode().title(): {"description": text, "schema": {"type": "integer"}}}
    return answer


def _links(operation: Operation, operations: Sequence[Operation]) -> Json:
    """What a thing that was made may be used for: its id stands in other operations' paths."""
    made = _MADE.get(operation.name)
    if made is None:
        return {}
    parameter, known = made
    parameters = {name: f"$request.path.{name}" for name in known} | {parameter: "$response.body#/id"}
    return {
        other.name: {
            "operationId": other.name,
            "parameters": {name: parameters[name] for name in names},
        }
        for other in operations
        if parameter in (names := _PARAMETER.findall(other.path)) and set(names) <= parameters.keys()
    }


def _operation(operation: Operation, schemas: Mapping[object, Json], operations: Sequence[Operation]) -> Json:
    answers = {str(status): _content(operation, status, kind, schemas) for status, kind in operation.answers.items()}
    if links := _links(operation, operations):
        answers["201"]["links"] = links
    for status in _errors(operation):
        answers[str(status)] = {"$ref": f"#/components/responses/{status}"}
    described: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "security": [{"api_key": []}] if operation.needs == "key" else [{"session_token": []}, {"api_key": []}],
        "parameters": _parameters(operation),
        "responses": answers,
    }
    if operation.request is not None:
        content = {"application/json": {"schema": schemas[id(operation.request)]}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _refusals() -> Json:
    shown: Json = {}
    statuses = {code.value.status for code in Code}
    for status in sorted(statuses - {421}):
        answer: Json = {
            "description": _STATUS[status],
            "content": {"application/json": {"schema": {"$ref": _REF.format(name="Envelope")}}},
        }
        if any(code.value.retry_after_s is not None for code in Code if code.value.status == status):
            text = "Seconds after which the request may succeed."
            answer["headers"] = {"Retry-After": {"description": text, "schema": {"type": "integer"}}}
        shown[str(status)] = answer
    return shown


def document(operations: Sequence[Operation]) -> Json:
    """The whole description."""
    schemas, components = _schemas(operations)
    components["SessionEvent"] = _numbered(components)
    components["EventPage"]["properties"]["items"]["items"] = {"$ref": _REF.format(name="SessionEvent")}
    components["Allow"]["properties"]["message"] = False
    codes = sorted({code.value.code for code in Code})
    components["Detail"]["properties"]["code"] = {"type": "string", "enum": codes}
    paths: dict[str, Json] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas, operations)
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "toolrelay",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "Sessions with local agents, and the clients whose tools they call.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "responses": _refusals(),
            "securitySchemes": {
                "api_key": {**bearer, "description": "A backend's key: everything, or the agents that it names."},
                "session_token": {**bearer, "description": "A token of one session, for a browser or a worker."},
            },
        },
    }


def encoded(operations: Sequence[Operation]) -> bytes:
    """The document as JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(document(operations)), indent=2) + b"\n"
