"""The child's copy of a schema (bridge 4): it takes whatever the original takes, and the child takes the copy."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, event, given, settings

from gateway.model.narrowing import Narrowed, narrow
from tests.model_catalog.child_subset import problem
from tests.model_catalog.schema_strategies import SAMPLES, schemas

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
DRAFT7 = "http://json-schema.org/draft-07/schema#"


def narrowed(schema: Any) -> Narrowed:
    return narrow(json.dumps(schema, ensure_ascii=False, separators=(",", ":")).encode())


def copy_of(schema: Any) -> Any:
    made = narrowed(schema).schema
    assert made is not None
    return json.loads(made)


def validator(schema: Any, cls: Any = jsonschema_rs.Draft202012Validator) -> Any:
    # The engine with look-arounds is the reference here: the copy keeps expressions as they are.
    return cls(schema, offline=True, validate_formats=False)


def narrower_than(original: Any, copy: Any) -> list[Any]:
    return [value for value in SAMPLES if original.is_valid(value) and not copy.is_valid(value)]


def wider_than(original: Any, copy: Any) -> list[Any]:
    return [value for value in SAMPLES if copy.is_valid(value) and not original.is_valid(value)]


@settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=SLOW,
)
@given(schemas())
def test_what_the_original_takes_the_copy_takes(schema: Any) -> None:
    try:
        original = validator(schema)
    except jsonschema_rs.ValidationError:
        event("not a valid schema")
        return
    made = narrowed(schema)
    if made.schema is None:
        event("not native")
        if any("accepts no object" in note for note in made.notes):
            assert not any(map(original.is_valid, SAMPLES))
        return
    assert problem(made.schema) is None
    copy = validator(json.loads(made.schema))
    assert narrower_than(original, copy) == []
    event("as narrow" if wider_than(original, copy) == [] else "wider")


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=SLOW,
)
@given(schemas())
def test_the_same_for_draft_7(schema: Any) -> None:
    schema = {**schema, "$schema": DRAFT7}
    try:
        original = validator(schema, jsonschema_rs.Draft7Validator)
    except jsonschema_rs.ValidationError:
        return
    made = narrowed(schema)
    if made.schema is not None:
        assert problem(made.schema) is None
        assert narrower_than(original, validator(json.loads(made.schema))) == []


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=SLOW,
)
@given(schemas(references=False))
def test_a_copy_that_says_it_is_exact_is_exact(schema: Any) -> None:
    try:
        original = validator(schema)
    except jsonschema_rs.ValidationError:
        return
    made = narrowed(schema)
    if made.schema is not None and not any(note.startswith(("dropped: ", "oneOf", "not ")) for note in made.notes):
        assert wider_than(original, validator(json.loads(made.schema))) == []


@pytest.mark.parametrize(
    ("schema", "copy"),
    [
        ({}, {"type": "object"}),
        ({"type": ["object", "null"]}, {"type": "object"}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"required": ["x"]}}}, {"type": "object", "required": ["x"]}),
        ({"properties": {"x": {"minLength": 1.0}}}, {"type": "object", "properties": {"x": {"minLength": 1}}}),
        ({"properties": {"x": {"minLength": 2**64}}}, {"type": "object", "properties": {"x": {}}}),
        ({"required": ["a", "a"]}, {"type": "object", "required": ["a"]}),
        (
            {"properties": {"x": {"type": ["banana", "null"]}}},
            {"type": "object", "properties": {"x": {"type": ["null"]}}},
        ),
        ({"properties": {"x": {"type": "banana"}}}, {"type": "object", "properties": {"x": {}}}),
        ({"properties": {"x": {"enum": []}}}, {"type": "object", "properties": {"x": {}}}),
        ({"properties": {"x": True, "y": False}}, {"type": "object", "properties": {"x": True, "y": False}}),
        (
            {"properties": {"x": {"const": {"$ref": "data"}}}},
            {"type": "object", "properties": {"x": {"const": {"$ref": "data"}}}},
        ),
        ({"not": {"if": {}, "required": ["x"]}}, {"type": "object"}),
        ({"not": {"properties": {"x": {"$ref": "#"}}}}, {"type": "object"}),
        ({"not": {"$dynamicRef": "#"}}, {"type": "object"}),
        (
            {"$id": "a", "properties": {"x": {"$id": "b", "not": {"$ref": "a#/none"}}}},
            {"type": "object", "properties": {"x": {}}},
        ),
        ({"not": {"required": ["x"]}}, {"type": "object", "not": {"required": ["x"]}}),
        ({"oneOf": [{"required": ["x"]}, {"then": {}}]}, {"type": "object", "anyOf": [{"required": ["x"]}, {}]}),
        ({"oneOf": [{"required": ["x"]}]}, {"type": "object", "oneOf": [{"required": ["x"]}]}),
        (
            {"oneOf": [{"if": {}}], "anyOf": [{"minProperties": 1}]},
            {"type": "object", "anyOf": [{"minProperties": 1}], "allOf": [{"anyOf": [{}]}]},
        ),
        (
            {"properties": {"l": {"contains": {"unevaluatedItems": False}, "minContains": 1, "maxContains": 2}}},
            {"type": "object", "properties": {"l": {"contains": {}, "minContains": 1}}},
        ),
        (
            {
                "properties": {"n": {"$ref": "#/$defs/n", "description": "D"}},
                "$defs": {"n": {"type": "null", "title": "N"}},
            },
            {"type": "object", "properties": {"n": {"type": "null", "title": "N", "description": "D"}}},
        ),
        (
            {"properties": {"n": {"$ref": "#/$defs/n", "minimum": 2}}, "$defs": {"n": {"type": "integer"}}},
            {"type": "object", "properties": {"n": {"minimum": 2, "allOf": [{"type": "integer"}]}}},
        ),
        (
            {"properties": {"next": {"$ref": "#"}}, "required": ["next"]},
            {
                "type": "object",
                "properties": {"next": {"properties": {"next": {}}, "required": ["next"]}},
                "required": ["next"],
            },
        ),
        (
            {"$schema": DRAFT7, "properties": {"t": {"items": [{"type": "null"}], "additionalItems": False}}},
            {"type": "object", "properties": {"t": {"prefixItems": [{"type": "null"}], "items": False}}},
        ),
        (
            {
                "$schema": DRAFT7,
                "properties": {"t": {"$ref": "#/definitions/a", "minimum": 2}},
                "definitions": {"a": {}},
            },
            {"type": "object", "properties": {"t": {}}},
        ),
        (
            {"properties": {"t": {"$id": "T0", "properties": {"n": {"$ref": "T0"}}}}},
            {"type": "object", "properties": {"t": {"properties": {"n": {"properties": {"n": {}}}}}}},
        ),
    ],
)
def test_each_rule(schema: Any, copy: Any) -> None:
    assert copy_of(schema) == copy
    assert problem(json.dumps(copy).encode()) is None


def test_notes_name_what_was_dropped_and_where() -> None:
    made = narrowed({"properties": {"x": {"if": {}, "nullable": True}, "n": {"$ref": "#"}}, "oneOf": [{"then": {}}]})
    assert made.notes == (
        "dropped: if, nullable, then",
        "recursion was cut at properties.n.properties.n",
        "oneOf became anyOf at properties.n",
        "oneOf became anyOf at the root",
    )


def test_notes_are_bounded() -> None:
    made = narrowed({"properties": {f"p{n}": {"not": {"if": {}}} for n in range(100)}})
    assert len(made.notes) == 12
    assert made.notes[-1] == "and 90 changes more"


def test_a_schema_that_accepts_no_object_is_not_native() -> None:
    assert narrowed({"$ref": "#/$defs/no", "$defs": {"no": False}}).schema is None
    assert narrowed({"$ref": "#/$defs/no", "$defs": {"no": {"type": "string"}}}).schema is None


def test_examples_go_first_then_titles_then_descriptions_deepest_first() -> None:
    def built(examples: int, titles: int, descriptions: int) -> Any:
        deep = {"type": "object", "properties": {"y": {"title": "t" * titles, "description": "deep " * descriptions}}}
        return {
            "type": "object",
            "title": "t" * titles,
            "description": "root " * descriptions,
            "properties": {"x": {**deep, "examples": ["e" * examples]}},
        }

    assert "dropped" not in " ".join(narrowed(built(10, 10, 10)).notes)
    assert narrowed(built(9000, 10, 10)).notes == ("dropped to fit: examples",)
    made = narrowed(built(9000, 9000, 10))
    assert made.notes == ("dropped to fit: examples, title",)
    made = narrowed(built(10, 10, 1000))
    assert made.notes == ("dropped to fit: examples, title, description",)
    assert made.schema is not None
    assert json.loads(made.schema)["description"].startswith("root")
    assert problem(made.schema) is None


def test_exactly_at_the_bound_nothing_goes() -> None:
    frame = len(json.dumps({"type": "object", "title": ""}, separators=(",", ":")))
    assert narrowed({"type": "object", "title": "t" * (8192 - frame)}).notes == ()
    assert narrowed({"type": "object", "title": "t" * (8193 - frame)}).notes == ("dropped to fit: title",)


def nested(levels: int, innermost: Any) -> Any:
    for _ in range(levels):
        innermost = {"properties": {"x": innermost}}
    return innermost


def test_sixteen_levels_are_native_and_seventeen_are_not() -> None:
    assert narrowed(nested(7, {"items": {}})).schema is not None  # 14 for seven, the last two
    assert narrowed(nested(8, {})).schema is None
    made = narrowed(nested(7, {"default": {"a": {}}}))
    assert made.notes == ("dropped to fit: default",)
    assert made.schema is not None


def test_a_property_called_like_a_keyword_is_not_dropped() -> None:
    big = {"type": "object", "properties": {"title": {"type": "string"}, "examples": {}}, "title": "t" * 9000}
    assert copy_of(big) == {"type": "object", "properties": {"title": {"type": "string"}, "examples": {}}}


def test_a_schema_that_unfolds_without_end_is_not_native() -> None:
    chain = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    made = narrowed({"$defs": {**chain, "a40": {}}, "$ref": "#/$defs/a0"})
    assert made.schema is None
    limit = "1000 subschemas, or 150 inside one another,"
    assert made.notes == (f"not native: more than {limit} when its references are followed",)
    chain = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(1_000)}
    assert narrowed({"$defs": {**chain, "a1000": {}}, "$ref": "#/$defs/a0"}).notes == made.notes
