"""The real child takes every registry that a catalog makes, and refuses what our checker of its subset refuses."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.model.catalog import registry_json
from tests.model_catalog.child_subset import problem
from tests.model_catalog.offered import catalog, client, tool
from tests.model_catalog.real_child import BINARY, RealChild
from tests.model_catalog.schema_strategies import schemas

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(not BINARY.exists(), reason="magi-code 0.104.0 is not installed"),
]


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealChild]:
    judge = RealChild(tmp_path_factory.mktemp("child"))
    yield judge
    judge.end()


def valid(schema: Any) -> bool:
    try:
        jsonschema_rs.Draft202012Validator(schema, offline=True)
    except jsonschema_rs.ValidationError:
        return False
    return True


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=SLOW,
)
@given(st.lists(schemas().filter(valid), min_size=1, max_size=12))
def test_no_narrowed_schema_is_refused(child: RealChild, made: list[Any]) -> None:
    offered = catalog(client(1, "web", *(tool(f"t{n}", schema=schema) for n, schema in enumerate(made))))
    assert child.answer(registry_json(offered.descriptors)) == "taken"


@pytest.mark.parametrize(
    "description", ["", " \t\n", "a\tb\nc", "é" * 1025, "😀" * 600, "\u2028", 'quotes "and" \\ more', "x" * 4096]
)
def test_no_description_is_refused(child: RealChild, description: str) -> None:
    assert child.answer(registry_json(catalog(client(1, "web", tool("a", description))).descriptors)) == "taken"


def test_full_registries_are_taken(child: RealChild) -> None:
    big = {"type": "object", "description": 'x"\\é\u2028' * 500, "default": {"a": 1e300, "b": [-0.0, 1.0, 10**300]}}
    for schema, count in ((big, 40), ({"type": "object"}, 64)):
        tools = [tool(f"{'t' * 60}{n}", 'd"\n' * 60, schema, 1000 + n) for n in range(count)]
        made = catalog(client(1, "web", *tools))
        assert child.answer(registry_json(made.descriptors)) == "taken"
    fixed = catalog(client(1, "web", *tools), dynamic_tools=False)
    assert child.answer(registry_json(fixed.descriptors)) == "taken"
    assert child.answer(registry_json(catalog().descriptors)) == "taken"


@pytest.mark.parametrize(
    "inner",
    [
        {"type": []},
        {"type": ["string", "string"]},
        {"type": "banana"},
        {"required": []},
        {"required": ["a", "a"]},
        {"enum": []},
        {"enum": [1, 1]},
        {"minLength": 1.0},
        {"minLength": 2**64},
        {"minLength": 2**64 - 1},
        {"minimum": 10**30},
        {"multipleOf": 0},
        {"anyOf": []},
        {"items": []},
        {"exclusiveMinimum": True},
        {"readOnly": "x"},
        {"$ref": "#"},
        {"if": {}},
        {"nullable": True},
        {"$comment": "x"},
        {"const": None},
        {"examples": []},
        {"default": {"$ref": "x"}},
        {"properties": {"$ref": True}},
        {"description": "a\u0001"},
        {"pattern": "("},
        {"propertyNames": False},
    ],
)
def test_the_checker_of_the_subset_judges_as_the_child_does(child: RealChild, inner: Any) -> None:
    schema = {"type": "object", "properties": {"x": inner}}
    raw = json.dumps(schema, separators=(",", ":")).encode()
    registry = b'[{"name":"client__a__b","description":"d","input_schema":%b}]' % raw
    assert (child.answer(registry) == "taken") is (problem(raw) is None)


def test_the_checker_knows_the_bounds(child: RealChild) -> None:
    frame = len('{"type":"object","title":""}')
    deep: Any = {}
    for _ in range(7):
        deep = {"properties": {"x": deep}}
    for schema in (
        {"type": "object", "title": "t" * (8192 - frame)},
        {"type": "object", "title": "t" * (8193 - frame)},
        {"type": "object", **deep, "items": {}},
        {"type": "object", "properties": {"x": deep}},
    ):
        raw = json.dumps(schema, separators=(",", ":")).encode()
        registry = b'[{"name":"client__a__b","description":"d","input_schema":%b}]' % raw
        assert (child.answer(registry) == "taken") is (problem(raw) is None)
