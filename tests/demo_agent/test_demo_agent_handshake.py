"""``initialize``: what is negotiated and which registries are taken (stdio protocol, "Negotiate once")."""

import json
from typing import Any

import pytest

from tests.doubles.stdio_driver import Frame, tool
from tests.doubles.stdio_peers import Demo, Peer

TOOLS = "client.tools"
A = "client__a"


def preflight(names: Any, *tools: Any, **more: Any) -> dict[str, Any]:
    """Params of ``initialize``; with tools when any are given (one None: no tools, but the field)."""
    given = {"client_tools": [t for t in tools if t is not None]} if tools else {}
    return {"required_capabilities": names, **given, **more}


PREFLIGHT: list[tuple[str, dict[str, Any], str]] = [
    ("nothing", {}, "invalid_params"),
    ("null", preflight(None), "invalid_params"),
    ("a text", preflight("status"), "invalid_params"),
    ("a number", preflight([1]), "invalid_params"),
    ("a bad name", preflight(["bad name"]), "invalid_params"),
    ("an empty name", preflight([""]), "invalid_params"),
    ("a name of 65", preflight(["a" * 65]), "invalid_params"),
    ("an unknown field", preflight(["status"], x=1), "invalid_params"),
    ("16 unknown", preflight(["x"] * 16), "unsupported_capability"),
    ("17", preflight(["status"] * 17), "invalid_params"),
    ("18 with tools", preflight(["x"] * 17 + [TOOLS], None), "unsupported_capability"),
    ("19 with tools", preflight(["status"] * 18 + [TOOLS], None), "invalid_params"),
    ("tools without the field", preflight([TOOLS]), "invalid_params"),
    ("the field without tools", preflight([], None), "invalid_params"),
    ("a null field", preflight([TOOLS], client_tools=None), "invalid_params"),
    ("an object", preflight([TOOLS], client_tools={}), "invalid_params"),
    ("an unknown name goes before a missing one", preflight([TOOLS, "x"]), "unsupported_capability"),
    ("a bad registry goes before an unknown name", preflight([TOOLS, "x"], 1), "invalid_params"),
    ("a method is no capability", preflight(["client.tool.result"]), "unsupported_capability"),
]


def test_a_refused_preflight_may_be_tried_again_and_an_admitted_one_may_not(peer: Peer) -> None:
    with peer.start() as child:
        for name, params, code in PREFLIGHT:
            assert child.error("initialize", params) == code, name
        result = child.initialize([tool(A)], "session.create", "turn.start")
        assert result["capabilities"][-1] == TOOLS
        assert len(result["capabilities"]) == 17
        assert result["client_tools"]["tools"] == [A]
        descriptor = result["extensions"][TOOLS]
        assert descriptor == {"schema_version": 1, "registration": "startup_only", **result["client_tools"]}
        assert result["client_tools"]["limits"]["pending_calls"] == 16
        assert child.error("initialize", {}) == "already_initialized"


def test_without_client_tools_there_is_no_trace_of_them(peer: Peer) -> None:
    with peer.start() as child:
        result = child.initialize()
        assert len(result["capabilities"]) == 16
        assert result.keys() == {"capabilities", "limits", "status"}
        assert child.error("client.tool.result", {}) == "unsupported_method"
        assert child.error("no.such.method", {}) == "unsupported_method"


def test_capabilities_that_must_be_required(peer: Peer) -> None:
    on_request = ("session.discover", "model.catalog.status", "model.refresh", "operation.cancel")
    with peer.start() as child:
        child.initialize()
        assert [child.error(method, {}) for method in on_request] == ["unsupported_capability"] * 4
    with peer.start() as child:
        result = child.initialize(None, *on_request)
        assert result["extensions"].keys() == {"session.discover", "model.refresh"}
        assert child.result("session.discover", {})["progress"] == "complete"
        assert child.result("model.catalog.status", {})["configuration_reload"] == "restart_child"
        assert child.error("operation.cancel", {"request_id": "none"}) == "operation_missing"
        assert child.error("model.refresh", {"provider": "none"}) == "invalid_params"


def test_before_initialize_most_methods_are_closed(peer: Peer) -> None:
    closed = (
        "status",
        "session.create",
        "session.open",
        "turn.start",
        "history.page",
        "model.refresh",
        "selection.set",
    )
    with peer.start() as child:
        assert [child.error(method, {"x": 1}) for method in closed] == ["not_initialized"] * len(closed)
        assert child.error("turn.cancel", {}) == "invalid_params"
        assert child.error("approval.answer", {}) == "invalid_params"
        assert child.error("operation.cancel", {}) == "unsupported_capability"
        assert child.error("shutdown", {"x": 1}) == "invalid_params"
        assert child.result("shutdown", {}) == {"state": "stopping"}
        child.drain()
        assert child.wait() == 0


def test_requests_behind_a_start_that_is_shut_down(peer: Peer) -> None:
    from tests.doubles.stdio_driver import encode

    names = ("status", "session.create", "initialize", "shutdown")
    params: list[Any] = [{}, {}, {"required_capabilities": []}, {}]
    with peer.start() as child:
        first = encode("i", "initialize", {"required_capabilities": []})
        child.raw(first + b"".join(encode(name, name, p) for name, p in zip(names, params, strict=True)))
        child.drain()
        answers = {f["id"]: f.get("error", {}).get("code") or f["result"]["state"] for f in child.frames}
        assert answers == {
            "i": "startup_cancelled",
            "status": "starting",
            "session.create": "not_initialized",
            "initialize": "already_initialized",
            "shutdown": "stopping",
        }
        assert child.wait() == 0


@pytest.mark.parametrize("home", ["relative", ""])
def test_a_home_that_is_not_absolute_fails_the_start_for_good(peer: Peer, home: str) -> None:
    with peer.start(MC_HOME=home) as child:
        assert child.error("initialize", {"required_capabilities": []}) == "configuration_invalid"
        status = child.result("status", {})
        assert (status["state"], status["readiness"], status["selection"]) == ("failed", "configuration_invalid", None)
        assert child.error("session.create", {}) == "configuration_invalid"
        assert child.error("initialize", {"required_capabilities": []}) == "already_initialized"


def test_the_environment_shows_in_the_status(peer: Peer) -> None:
    with peer.start(MC_DISABLE_SKILLS="0", MC_DISABLE_MCP="", MC_FORCE_STANDARD_SPEED="") as child:
        status = child.initialize()["status"]
        restrictions = status["capability_restrictions"]
        assert restrictions == {"skills_disabled": True, "mcp_disabled": True, "subagents_disabled": False}
        assert status["standard_speed_forced"] is True
        assert (status["state"], status["session_id"], status["run_id"]) == ("idle", None, None)


# Registries.


def of(**keywords: Any) -> Frame:
    """A registry of one tool with this schema."""
    return tool(A, schema={"type": "object", **keywords})


def deep(levels: int) -> Frame:
    """A schema so many containers deep."""
    schema: Frame = {"type": "object"}
    for _ in range(levels - 1):
        schema = {"type": "object", "not": schema}
    return tool(A, schema=schema)


def sized(size: int) -> Frame:
    """A schema of so many bytes."""
    left = size - len(json.dumps({"type": "object", "title": ""}, separators=(",", ":")))
    return of(title="x" * left)


def registry(size: int) -> list[Frame]:
    """A registry of so many bytes, the default timeouts counted."""
    tools = [tool(f"client__{n:02}", "x" * 2_000) for n in range(15)] + [tool("client__last", "x")]
    spent = len(json.dumps([t | {"timeout_ms": 30_000} for t in tools], separators=(",", ":")))
    tools[-1]["description"] += "x" * (size - spent)
    return tools


ANY: dict[str, Any] = {"a": {}}
TAKEN: dict[str, list[Frame]] = {
    "none": [],
    "32": [tool(f"client__{n}") for n in range(32)],
    "case matters": [tool("client__a"), tool("client__A")],
    "name of 64": [tool("client__" + "a" * 56)],
    "underscores": [tool("client___")],
    "LF, tab, U+2028": [tool(A, "a\n\tb\u2028c")],
    "2,048 bytes": [tool(A, "é" * 1_024)],
    "zero width": [tool(A, "\u200b")],
    "timeout 1000": [tool(A, timeout_ms=1_000)],
    "timeout 300000": [tool(A, timeout_ms=300_000)],
    "depth 16": [deep(16)],
    "depth 16 with data": [of(enum=[json.loads("[" * 14 + "]" * 14)])],
    "8,192 bytes": [sized(8_192)],
    "32,768 bytes": registry(32_768),
    "booleans": [of(properties={"a": True}, items=False, additionalProperties=False)],
    "lists": [of(allOf=[{}], anyOf=[True], oneOf=[{}], prefixItems=[{}])],
    "maps": [of(properties=ANY, definitions=ANY, patternProperties={"(": {}}, **{"$defs": ANY})],
    "schemas": [of(contains={}, propertyNames={}, **{"not": {}})],
    "types": [of(properties={"a": {"type": ["string", "null"]}, "b": {"type": "integer"}})],
    "data": [of(const=None, default={"$ref": "x"}, examples={}, enum=[1, 1])],
    "texts": [of(description="\x00", title="", pattern="(", format="x", **{"$comment": ""})],
    "numbers": [of(minimum=-1, maximum=1.5, exclusiveMinimum=1e3, exclusiveMaximum=10**30, multipleOf=0.5)],
    "counts": [of(minLength=0, maxLength=2**64 - 1, minItems=1, maxItems=0, minProperties=1, maxProperties=1)],
    "contains": [of(minContains=0, maxContains=1)],
    "flags": [of(uniqueItems=True, readOnly=False, writeOnly=True, deprecated=False)],
    "required": [of(required=["undeclared"])],
    "names that are keywords": [of(properties={"$ref": {}, "": {}, "type": {"type": "object"}})],
}


@pytest.mark.parametrize("tools", TAKEN.values(), ids=TAKEN.keys())
def test_registries_that_are_taken(peer: Peer, tools: list[Frame]) -> None:
    with peer.start() as child:
        assert child.initialize(tools)["client_tools"]["tools"] == [t["name"] for t in tools]


NAMES = ("client__", "client__" + "a" * 57, "client__a-b", "client__a b", "client__é", "Client__a", "bash", 1)
DESCRIPTIONS = ("", " \n\t", "\u00a0", "a\rb", "a\x7f", "a\x85", "x" * 2_049, "é" * 1_025, "\ud800", None)
TIMEOUTS = (999, 300_001, None, 30_000.0, "1000", True, -1)
UNKNOWN = (
    *("$ref", "$id", "$schema", "$anchor", "if", "then", "dependentRequired", "dependencies", "unevaluatedProperties"),
    *("contentMediaType", "nullable", "additionalItems", "discriminator", "example", "x-y"),
)
BAD_VALUES: dict[str, tuple[Any, ...]] = {
    "type": ("array", "banana", ["object"], [], 1, None),
    "properties": ([], {"a": 1}, None, {"a": {"type": "Object"}}, {"a": {"type": []}}, {"a": {"$ref": "#"}}),
    "$defs": ({"a": 1},),
    "items": ([{}], None),
    "additionalProperties": (1,),
    "allOf": ([],),
    "oneOf": ({},),
    "prefixItems": ([],),
    "anyOf": ([1],),
    "required": (["a", "a"], [1], "a", None),
    "enum": ([], "a"),
    "description": (1,),
    "pattern": (1,),
    "$comment": (1,),
    "minimum": ("1", None),
    "exclusiveMinimum": (True,),
    "multipleOf": (0, -1, "1"),
    "minLength": (-1, 1.0, 2**64, True, None),
    "uniqueItems": (1,),
    "deprecated": (None,),
}
REFUSED: dict[str, list[Any]] = {
    **{f"name {n!r:.20}": [tool(A) | {"name": n}] for n in NAMES},
    **{f"description {d!r:.12} {n}": [tool(A) | {"description": d}] for n, d in enumerate(DESCRIPTIONS)},
    **{f"timeout {t!r}": [tool(A, timeout_ms=t)] for t in TIMEOUTS},
    **{f"keyword {k}": [of(**{k: {}})] for k in UNKNOWN},
    **{f"{k} {v!r}": [of(**{k: v})] for k, values in BAD_VALUES.items() for v in values},
    "no type": [tool(A) | {"input_schema": {}}],
    "a boolean": [tool(A) | {"input_schema": True}],
    "33": [tool(f"client__{n}") for n in range(33)],
    "twice": [tool(A), tool(A)],
    "an unknown field": [tool(A, x=1)],
    "no description": [{"name": A, "input_schema": {"type": "object"}}],
    "a text": ["client__a"],
    "depth 17": [deep(17)],
    "depth 17 with data": [of(enum=[json.loads("[" * 15 + "]" * 15)])],
    "8,193 bytes": [sized(8_193)],
    "32,769 bytes": registry(32_769),
}


def test_registries_that_are_refused_as_a_whole(peer: Peer) -> None:
    with peer.start() as child:
        for name, tools in REFUSED.items():
            good = [tool("client__good")] if len(tools) < 30 else []
            assert child.error("initialize", preflight([TOOLS], *good, *tools)) == "invalid_params", name
        child.initialize([])


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        (b'{"name":"client__a","name":"client__a","description":"d","input_schema":{"type":"object"}}', False),
        (b'{"name":"client__a","description":"d","input_schema":{"type":"object","type":"object"}}', True),
        (b'{"name":"client__a","description":"d","input_schema":{"type":"object","default":1e999}}', False),
        (b'{"name":"client__a","description":"d","input_schema":{"type":"object","minLength":-0}}', False),
    ],
    ids=["a field twice", "a keyword twice", "an infinity", "minus zero"],
)
def test_what_only_raw_json_can_say(peer: Peer, body: bytes, taken: bool) -> None:
    with peer.start() as child:
        head = b'{"protocol":"magi-code.local-agent","version":1,"id":"i","method":"initialize","params":'
        child.raw(head + b'{"required_capabilities":["client.tools"],"client_tools":[' + body + b"]}}\n")
        assert ("result" in child.response("i")) is taken


def test_a_start_that_takes_long_and_one_that_fails(demo: Demo) -> None:
    with demo.start(DEMO_AGENT_FAULTS='{"start_error": "provider_unavailable", "start_s": 0.2}') as child:
        assert child.error("initialize", {"required_capabilities": []}) == "provider_unavailable"
        assert child.result("status", {})["readiness"] == "provider_unavailable"
        assert child.error("session.create", {}) == "provider_unavailable"
