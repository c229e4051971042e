"""Arguments against the client's own schema (bridge 4): whole, offline, bounded, and without a value in the error."""

import json
import time
from typing import Any

import pytest

from gateway.model.arguments import BadSchemaError, check_arguments, check_schema, without_intent

NODE: dict[str, Any] = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
            "required": ["v"],
        }
    },
}


def found(schema: Any, arguments: dict[str, Any]) -> str | None:
    mismatch = check_arguments(json.dumps(schema).encode(), arguments)
    return None if mismatch is None else str(mismatch)


@pytest.mark.parametrize(
    ("schema", "arguments", "text"),
    [
        ({"required": ["q"]}, {}, 'arguments "q" is a required property'),
        ({"properties": {"x": {"type": "integer"}}}, {"x": "s3cret"}, 'arguments.x is not of type "integer"'),
        ({"properties": {"x": {"enum": ["a"]}}}, {"x": "s3cret"}, 'arguments.x is not one of "a"'),
        ({"properties": {"x": {"pattern": "^a"}}}, {"x": "s3cret"}, 'arguments.x does not match "^a"'),
        (
            {"properties": {"r": {"items": {"properties": {"id": {"minimum": 4}}}}}},
            {"r": [{}, {"id": 3}]},
            "arguments.r[1].id is less than the minimum of 4",
        ),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}, 'arguments "b" is a required property'),
    ],
)
def test_a_mismatch_names_the_path(schema: Any, arguments: dict[str, Any], text: str) -> None:
    assert found(schema, arguments) == text


@pytest.mark.parametrize(
    "schema",
    [
        {"additionalProperties": False},
        {"unevaluatedProperties": False},
        {"propertyNames": {"maxLength": 2}},
        {"maxProperties": 0},
        {"additionalProperties": {"not": {"type": "string"}}},
        {"additionalProperties": {"anyOf": [{"type": "null"}, {"type": "integer"}]}},
        {"additionalProperties": {"const": 1}},
        {"additionalProperties": {"maxLength": 1}},
        {"additionalProperties": {"oneOf": [{}, {}]}},
        {"patternProperties": {"^s": {"format": "x", "minLength": 99}}},
        {"not": {}},
    ],
)
def test_a_mismatch_quotes_no_value(schema: Any) -> None:
    text = found(schema, {"s3cret key": "hunter2 is the value"})
    assert text is not None
    assert "hunter2" not in text
    assert "s3cret" not in text


def test_recursion_is_checked_by_the_whole_schema() -> None:
    assert found(NODE, {"v": 1, "next": {"v": 2, "next": None}}) is None
    text = found(NODE, {"v": 1, "next": {"v": 2, "next": {"v": "x"}}})
    assert text is not None
    assert text.startswith("arguments.next")


def test_formats_do_not_refuse() -> None:
    for dialect in ("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"):
        assert found({"$schema": dialect, "properties": {"x": {"format": "email"}}}, {"x": "no"}) is None


def test_draft_7_is_checked_as_draft_7() -> None:
    tuples = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"t": {"items": [{"type": "string"}]}},
    }
    assert found(tuples, {"t": ["a", 1]}) is None
    assert found(tuples, {"t": [1]}) == 'arguments.t[0] is not of type "string"'


@pytest.mark.parametrize("expression", ["(?=a)b", r"(a)\1", "(?<!a)b", "((a{100}){100}){10}", "("])
def test_an_expression_that_the_linear_engine_refuses_is_noted_and_not_enforced(expression: str) -> None:
    schema = {
        "properties": {"x": {"type": "string", "pattern": expression}, "y": {"type": "integer"}},
        "patternProperties": {expression: {"type": "null"}},
        "additionalProperties": False,
    }
    notes = check_schema(json.dumps(schema).encode()).notes
    assert notes == ("regular expressions not enforced here: 1 (not linear, or too large)",)
    assert found(schema, {"x": "anything", "other": 1}) is None
    assert found(schema, {"y": "s"}) == 'arguments.y is not of type "integer"'
    # Under a not, dropping the expression alone would refuse everything.
    assert found({"properties": {"x": {"not": {"pattern": expression}}}}, {"x": "s"}) is None


def test_an_evil_expression_costs_nothing() -> None:
    schema = {"properties": {"x": {"pattern": "^(a+)+$"}}}
    start = time.process_time()
    assert found(schema, {"x": "a" * 10_000 + "!"}) is not None
    assert time.process_time() - start < 1


def doubled(levels: int) -> dict[str, Any]:
    chain = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**chain, f"a{levels}": {"required": ["x"]}}, "$ref": "#/$defs/a0"}


def deep(levels: int, innermost: Any) -> Any:
    for _ in range(levels):
        innermost = {"x": innermost}
    return innermost


def alternatives(count: int) -> dict[str, Any]:
    branch = {"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["x"]}
    return {
        "$defs": {"n": {"anyOf": [*[branch] * count, {"type": "integer"}]}},
        "properties": {"x": {"$ref": "#/$defs/n"}},
    }


def test_references_that_multiply_do_not_hold_up_a_node() -> None:
    start = time.process_time()
    assert found(doubled(4), {}) == 'arguments "x" is a required property'
    assert found(doubled(60), {}) is None  # said in the notes
    assert "enforced in part" in check_schema(json.dumps(doubled(60)).encode()).notes[0]
    for count in (2, 5):
        for levels in (3, 10, 27):
            found(alternatives(count), deep(levels, "not an integer"))
            assert found(alternatives(count), deep(levels, 1)) is None
    assert found(alternatives(2), deep(12, "not an integer")) is not None
    assert time.process_time() - start < 5


IN_PLACE: dict[str, Any] = {
    "allOf": lambda inner: {"allOf": [inner, inner]},
    "anyOf": lambda inner: {"anyOf": [inner, inner]},
    "if": lambda inner: {"if": inner, "then": inner, "else": inner},
    "dependentSchemas": lambda inner: {"dependentSchemas": {"a": inner, "b": inner}},
    "beside": lambda inner: {**inner, "allOf": [inner]},
}


def chained(levels: int, way: str, reference: str = "#/$defs/a%d", **each: Any) -> dict[str, Any]:
    chain = {f"a{n}": {**IN_PLACE[way]({"$ref": reference % (n + 1)})} for n in range(levels)}
    chain[f"a{levels}"] = {"properties": {"x": {}}}
    for n, inner in enumerate(chain.values()):
        inner.update({word: value.replace("%d", str(n)) for word, value in each.items()})
    return {"$defs": chain, "$ref": reference % 0}


@pytest.mark.parametrize("word", ["unevaluatedProperties", "unevaluatedItems"])
@pytest.mark.parametrize("way", IN_PLACE)
def test_no_schema_takes_long_to_compile(word: str, way: str) -> None:
    start = time.process_time()
    for schema in (
        {**chained(40, way), word: False},
        {"properties": {"y": {"items": {**chained(40, way), word: False}}}, "$defs": chained(40, way)["$defs"]},
        {"hidden": {word: False, "$ref": "#/$defs/a0"}, "$defs": chained(40, way)["$defs"], "$ref": "#/hidden"},
        {"not": {"not": {**chained(40, way), word: False}}, "$defs": chained(40, way)["$defs"]},
    ):
        assert "not enforced here: unevaluated" in check_schema(json.dumps(schema).encode()).notes[0]
        assert found(schema, {"z": 1}) is None
    assert time.process_time() - start < 2


def test_what_does_not_multiply_is_enforced_whole() -> None:
    schema = {**chained(3, "allOf"), "unevaluatedProperties": False}
    assert not check_schema(json.dumps(schema).encode()).notes
    assert found(schema, {"x": 1}) is None
    assert found(schema, {"z": 1}) is not None
    one_id = {**chained(3, "allOf", "r#/$defs/a%d"), "$id": "r", "unevaluatedProperties": False}
    assert found(one_id, {"z": 1}) is not None
    with pytest.raises(BadSchemaError, match="not valid JSON Schema"):
        check_schema(json.dumps({**chained(40, "allOf"), "unevaluatedProperties": False, "minimum": "x"}).encode())


@pytest.mark.parametrize(
    "schema",
    [
        {**chained(40, "allOf", "r#/$defs/a%d"), "$id": "r"},
        {**chained(40, "allOf", "http://x/r#a%d", **{"$anchor": "a%d"}), "$id": "http://x/r"},
        {**chained(40, "allOf", "a%d", **{"$id": "a%d"}), "$id": "http://x/r"},
        {**chained(40, "allOf", "#a%d", **{"$anchor": "a%d"}), "properties": {"z": {"$id": "q", "$anchor": "a0"}}},
        {"$defs": {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(1_000)} | {"a1000": {}}, "$ref": "#/$defs/a0"},
    ],
)
def test_references_in_every_form_do_not_hold_up_a_node(schema: dict[str, Any]) -> None:
    start = time.process_time()
    assert found(schema, {}) is None
    assert found({**schema, "unevaluatedProperties": False}, {}) is None
    assert time.process_time() - start < 2


def test_expressions_are_counted_wherever_a_reference_may_find_them() -> None:
    hidden = {f"h{n}": {"pattern": f"a{n}"} for n in range(257)}
    with pytest.raises(BadSchemaError, match="more than 256 regular expressions"):
        check_schema(json.dumps({"hidden": hidden}).encode())


def test_the_intent_of_code_mode_goes_where_the_schema_does_not_declare_it() -> None:
    plain = b'{"properties":{"a":{}},"additionalProperties":false}'
    assert without_intent(plain, {"a": 1, "intent": "why"}) == {"a": 1}
    assert without_intent(plain, {"a": 1, "intent": 5}) == {"a": 1, "intent": 5}
    for declared in (
        b'{"properties":{"intent":{}}}',
        b'{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"intent":{}}}}}',
        b'{"anyOf":[{},{"required":["intent"]}]}',
    ):
        assert without_intent(declared, {"intent": "why"}) == {"intent": "why"}
