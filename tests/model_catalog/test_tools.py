"""What a client may register, and how a refusal names the place (HTTP protocol, Registrations; bridge 4)."""

import json
from typing import Any

import pytest

from gateway.model.errors import Code, Refusal
from gateway.model.registration import ToolSpec
from gateway.model.tools import parse_tools

OBJECT: dict[str, Any] = {"type": "object"}


def tool(**fields: Any) -> dict[str, Any]:
    return {"name": "t", "description": "d", "parameters": OBJECT, **fields}


def refusal(raw: object) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse_tools(raw)
    return caught.value


def test_a_list_as_it_is_kept() -> None:
    parameters = {"type": "object", "properties": {"b": {}, "a": {"title": "é"}}}
    assert parse_tools([tool(parameters=parameters, timeout_ms=5000, idempotent=True), tool(name="u-1_A")]) == (
        ToolSpec(
            name="t",
            description="d",
            parameters='{"type":"object","properties":{"b":{},"a":{"title":"é"}}}'.encode(),
            timeout_ms=5000,
            idempotent=True,
        ),
        ToolSpec(name="u-1_A", description="d", parameters=b'{"type":"object"}'),
    )
    assert parse_tools([]) == ()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "tools must be a list"),
        ([tool(name=f"t{n}") for n in range(65)], "tools has more than 64 entries"),
        ([tool(), "x"], "tools[1] must be an object"),
        ([tool(name="")], "tools[0].name must be"),
        ([tool(name="a.b")], "tools[0].name must be"),
        ([tool(name="é")], "tools[0].name must be"),
        ([tool(name="a\n")], "tools[0].name must be"),
        ([tool(name="a" * 65)], "tools[0].name must be"),
        ([tool(name=1)], "tools[0].name must be"),
        ([tool(), tool(name="u"), tool()], "tools[2].name is that of tools[0] too"),
        ([tool(description=None)], "tools[0].description must be a string"),
        ([tool(description="a" * 4097)], "tools[0].description has more than 4096 characters"),
        ([tool(idempotent=1)], "tools[0].idempotent must be"),
        ([tool(timeout_ms="5")], "tools[0].timeout_ms must be"),
        ([tool(timeout_ms=True)], "tools[0].timeout_ms must be"),
        ([tool(timeout_ms=0)], "tools[0].timeout_ms must be"),
        ([tool(timeout_ms=2.5)], "tools[0].timeout_ms must be"),
        ([tool(parameters=True)], "tools[0].parameters must be a JSON Schema object"),
        ([tool(parameters={"type": "string"})], "tools[0].parameters.type must be object"),
        ([tool(parameters={"properties": {"x": {"type": "banana"}}})], "tools[0].parameters.properties.x.type is not"),
        (
            [tool(parameters={"properties": {"a b": {"minLength": -1}}})],
            "tools[0].parameters.properties.….minLength is",
        ),
        ([tool(parameters={"anyOf": [{}, {"required": "x"}]})], "tools[0].parameters.anyOf[1].required is not valid"),
        (
            [tool(parameters={"properties": {"x": {"$ref": "#/$defs/y"}}})],
            "tools[0].parameters.properties.x.$ref leads",
        ),
        ([tool(parameters={"$schema": "http://example.com/mine"})], "tools[0].parameters.$schema names no dialect"),
    ],
)
def test_one_bad_tool_refuses_the_list_and_is_named(raw: object, message: str) -> None:
    refused = refusal(raw)
    assert refused.code is Code.INVALID_REQUEST
    assert refused.message.startswith(message)


@pytest.mark.parametrize(
    "reference",
    [
        "http://127.0.0.1:1/x",
        "file:///etc/passwd",
        "other.json#/a",
        "https://json-schema.org/draft/2020-12/schema",
        "urn:x:y",
    ],
)
@pytest.mark.parametrize("word", ["$ref", "$dynamicRef"])
def test_references_that_lead_out_are_refused_even_where_nothing_uses_them(reference: str, word: str) -> None:
    refused = refusal([tool(parameters={"$defs": {"x": {word: reference}}})])
    assert refused.message == (
        f"tools[0].parameters.$defs.x.{word} must stay inside the schema: remote references are not followed"
    )


def test_references_to_an_id_of_the_same_schema_stay_inside() -> None:
    tree = {"$id": "T0", "type": "object", "properties": {"n": {"type": "array", "items": {"$ref": "T0"}}}}
    assert parse_tools([tool(parameters=tree)])


def test_names_like_ref_in_data_are_no_references() -> None:
    assert parse_tools(
        [tool(parameters={"properties": {"$ref": {"const": {"$ref": "http://x/"}}}, "default": {"$ref": "y"}})]
    )


def test_bounds_are_exact() -> None:
    def sized(size: int) -> dict[str, Any]:
        frame = len(json.dumps({"title": ""}, separators=(",", ":")))
        return {"title": "t" * (size - frame)}

    assert parse_tools([tool(description="😀" * 4096)])
    assert parse_tools([tool(parameters=sized(32 * 1024))])
    refused = refusal([tool(parameters=sized(32 * 1024 + 1))])
    assert refused.code is Code.TOO_LARGE
    assert refused.message == "tools[0].parameters has more than 32768 bytes"
    refused = refusal([tool(name=f"t{n}", parameters=sized(32 * 1024)) for n in range(17)])
    assert refused.code is Code.TOO_LARGE
    assert refused.message == "tools has more than 524288 bytes"


@pytest.mark.parametrize(("asked", "kept"), [(1, 1000), (999, 1000), (1000, 1000), (300_001, 300_000), (None, None)])
def test_timeouts_are_brought_in(asked: int | None, kept: int | None) -> None:
    assert parse_tools([tool(timeout_ms=asked)])[0].timeout_ms == kept


def test_what_a_newer_client_sends_beside_is_ignored() -> None:
    assert parse_tools([tool(title="T", annotations={"readOnlyHint": True})])


def test_the_number_of_regular_expressions_is_bounded_over_the_list() -> None:
    def with_expressions(count: int) -> dict[str, Any]:
        return {"properties": {f"p{n}": {"pattern": f"^a{n}"} for n in range(count)}}

    assert parse_tools([tool(parameters=with_expressions(256))])
    assert "regular expressions" in refusal([tool(parameters=with_expressions(257))]).message
    several = [tool(name=f"t{n}", parameters=with_expressions(100)) for n in range(3)]
    assert refusal(several).message == "tools has more than 256 regular expressions"
