"""Depth and doubled names, seen before anything is decoded (known failures E4)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.stdio.shape import deeper_than, members, repeats_a_name

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=25,
)


def depth(value: object) -> int:
    match value:
        case dict():
            return 1 + max(map(depth, value.values()), default=0)
        case list():
            return 1 + max(map(depth, value), default=0)
        case _:
            return 0


def count_members(value: object) -> int:
    match value:
        case dict():
            return len(value) + sum(map(count_members, value.values()))
        case list():
            return sum(map(count_members, value))
        case _:
            return 0


@settings(deadline=None)
@given(JSON, st.integers(0, 6), st.booleans())
def test_depth_and_members_are_those_of_the_value(value: object, limit: int, ascii_only: bool):
    text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert deeper_than(text, limit) == (depth(value) > limit)
    assert members(text) == count_members(value)
    assert not repeats_a_name(text)


@pytest.mark.parametrize("depth", [64, 1_000, 20_000, 200_000])
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_a_bomb_is_seen_and_costs_nothing(depth: int, opening: bytes):
    assert deeper_than(opening * depth, 32)


@pytest.mark.parametrize(
    "text", [b'["' + b"[" * 100 + b'"]', b'["\\"' + b"{[" * 50 + b'"]', b'"\\\\"' + b"[]" * 50, b"[]" * 100]
)
def test_brackets_in_strings_and_beside_each_other_are_no_depth(text: bytes):
    assert not deeper_than(text, 2)


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        (b'{"a":1,"a":2}', True),
        (b'{"a":1,"\\u0061":2}', True),
        (b'[{"x":{"b":1,"c":2,"b":3}}]', True),
        (b'{"a":{"a":1}}', False),
        (b'[{"a":1},{"a":1}]', False),
        (b'{"a":' + b"9" * 6000 + b',"b":1e999}', False),
    ],
)
def test_a_name_twice_in_one_object_is_seen_however_it_is_spelled(text: bytes, repeats: bool):
    assert repeats_a_name(text) is repeats
