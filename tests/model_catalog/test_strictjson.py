"""The gate before every parser: bytes, nesting, numbers, names twice, Unicode (known failures E2, E4, E7)."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model.errors import Code, Refusal
from gateway.model.strictjson import (
    check_json,
    compact,
    json_depth,
    outside_strings,
    parse_json,
    replace_surrogates,
)


def refused(raw: bytes, **bounds: int) -> Refusal:
    with pytest.raises(Refusal) as caught:
        check_json(raw, **bounds)
    return caught.value


@pytest.mark.parametrize(
    "raw",
    [
        b"NaN",
        b"[Infinity]",
        b'{"a":-Infinity}',
        b"1e400",
        b"-1e400",
        b"9" * 309,
        b"[" + b"1" * 400 + b"]",
        b"",
        b" ",
        b"{",
        b'{"a":1,}',
        b"[1 2]",
        b"01",
        b"{} {}",
        b"\xef\xbb\xbf{}",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'{"\xc0\xaf":1}',
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\n"',
        b"'a'",
    ],
)
def test_what_is_not_strict_json_is_refused_without_a_quote(raw: bytes) -> None:
    refusal = refused(raw)
    assert refusal.code is Code.INVALID_REQUEST
    assert refusal.message.startswith("not valid JSON")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":1}',
        b'{"x":[{"a":{"b":1,"b":2}}]}',
        b'{"ab":1,"a\\u0062":2}',
        b'{"a":1,"a":"\\u003a"}',
        b'{"a":":::","a":1}',
        b'{"":1,"":2}',
    ],
)
def test_a_name_twice_is_refused_anywhere(raw: bytes) -> None:
    assert refused(raw).message == "an object in the JSON has the same name twice"


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":{"b":1},"c":{"b":2}}',
        b'{"a":"b\\":1,\\"a"}',
        b'{"\\u003a":":","\\\\":"\\""}',
        b'{"__proto__":{"a":1},"constructor":2}',
        b'"\\u0000 \\\\u0000 \\u2028 \\ud83d\\ude00"',
        b"1e-400",
        b"123456789012345678901234567890",
        b'"' + b"1" * 400 + b'"',
    ],
)
def test_what_is_strict_json_passes(raw: bytes) -> None:
    check_json(raw)
    assert parse_json(raw) == json.loads(raw)
    assert json.loads(compact(parse_json(raw))) == json.loads(raw)


def test_the_bound_on_bytes_is_exact_and_named() -> None:
    check_json(b'"12345678"', max_bytes=10)
    refusal = refused(b'"123456789"', max_bytes=10)
    assert refusal.code is Code.TOO_LARGE
    assert "10 bytes" in refusal.message


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
@pytest.mark.parametrize("levels", [64, 129, 1_000, 20_000, 200_000])
def test_a_depth_bomb_is_refused_by_its_depth(opening: bytes, closing: bytes, levels: int) -> None:
    per = opening.count(b"[") + opening.count(b"{")
    bomb = opening * levels + b"1" + closing * levels
    if levels * per <= 128:
        check_json(bomb)
        assert json_depth(bomb) == levels * per
        return
    what = "has more than 100000 objects and lists" if levels * per > 100_000 else "is nested more than 128 deep"
    assert refused(bomb).message == f"the JSON {what}"
    assert refused(opening * levels).message == f"the JSON {what}"


def test_the_bound_on_containers_is_exact() -> None:
    check_json(b"[" + b"{}," * 99_998 + b"[]]")
    assert refused(b"[" + b"{}," * 99_999 + b"[]]").message == "the JSON has more than 100000 objects and lists"
    check_json(b'"' + b"[" * 200_000 + b'"')


def test_the_bound_on_depth_is_exact() -> None:
    check_json(b"[" * 128 + b"]" * 128)
    refused(b"[" * 129 + b"]" * 129)
    check_json(b'[[["[[[[",{"a":"}"}],[]],1]', max_depth=4)
    refused(b'[[["[[[[",{"a":"}"}],[]],1]', max_depth=3)


def test_brackets_in_strings_are_text() -> None:
    check_json(b'"' + b"[" * 1000 + b'"')
    check_json(b'["\\\\","' + b"[" * 1000 + b'\\"' + b"{" * 1000 + b'"]')


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def slow_depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(slow_depth, value.values()), default=0)
    return 1 + max(map(slow_depth, value), default=0) if isinstance(value, list) else 0


@given(JSON, st.booleans())
def test_any_json_passes_and_its_depth_is_counted(value: Any, ascii_only: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert json_depth(raw) == slow_depth(value)
    assert parse_json(raw) == value
    if slow_depth(value) > 0:
        refused(raw, max_depth=slow_depth(value) - 1)


@given(JSON, st.text(max_size=3), st.integers(0, 3))
def test_a_name_twice_is_found_wherever_it_is(value: Any, name: str, levels: int) -> None:
    inner = b"{%b:%b,%b:%b}" % (compact(name), compact(value), json.dumps(name).encode(), compact(value))
    refused(b"[" * levels + inner + b"]" * levels)


def test_lone_surrogates_become_replacement_characters_when_asked() -> None:
    raw = rb'{"a\udc00":["\ud800x","\ud83d\ude00","\\ud800","\uD800\uD83D\uDE00","\\\ud800"]}'
    assert parse_json(raw, mend_surrogates=True) == {"a\ufffd": ["\ufffdx", "😀", "\\ud800", "\ufffd😀", "\\\ufffd"]}
    assert replace_surrogates(rb'"\ud83d\ude00"') == rb'"\ud83d\ude00"'
    with pytest.raises(Refusal, match="same name twice"):
        parse_json(rb'{"\ud800":1,"\udc00":2}', mend_surrogates=True)


@pytest.mark.parametrize(
    "unit",
    [
        b'{"text":"h\xc3\xa9llo \\"x\\"\\n"},',
        b'{"a":1,"b":[{}],"c":"some text to fill it"},',
        b'"",',
        b"[" * 100 + b"]" * 100 + b"," + b'"text",' * 200,
        b'[],"some text to fill it",',
    ],
    ids=["text", "objects", "strings", "deep", "flat"],
)
def test_a_megabyte_costs_time_linear_in_its_size(unit: bytes) -> None:
    raw = b"[" + unit * ((1 << 20) // len(unit)) + b"1]"
    start = time.process_time()
    check_json(raw)
    # Some 20 to 100 ms on a free machine; anything quadratic in a megabyte takes minutes.
    assert time.process_time() - start < 3


def test_a_bomb_of_a_megabyte_is_refused_at_once() -> None:
    start = time.process_time()
    refused(b"[" * (1 << 20))
    assert time.process_time() - start < 3


PROSE = 'He said: "{[ C:\\dir ]}", and left.\n' * 120  # long enough for the way of long texts


@pytest.mark.parametrize(
    "raw",
    [
        b'{"text":%b,"text":1}',
        b'{"a":"\\u003a","text":%b,"a":1}',
        b'{"a":1,"text":%b,"a":"\\u003A"}',
        b'{"text":%b,"inner":{"b":1,"b":"\\u003a"}}',
        b'{"text":%b,"number":' + b"7" * 309 + b"}",
        b'{"text":%b,"deep":' + b"[" * 300 + b"]" * 300 + b"}",
    ],
)
def test_a_long_text_hides_nothing(raw: bytes) -> None:
    assert refused(raw % json.dumps(PROSE).encode()).code is Code.INVALID_REQUEST


@pytest.mark.parametrize("more", [b"", b',"a":"\\u003a\\u003A"', b',"inner":{"x":"1:2"},"b":[{"y":":"}]'])
def test_a_long_text_is_taken_as_it_is(more: bytes) -> None:
    raw = b'{"text":%b%b}' % (json.dumps(PROSE).encode(), more)
    assert parse_json(raw) == json.loads(raw)


@given(st.lists(st.text(alphabet='"\\:{}[]a', max_size=12), max_size=8), st.booleans())
def test_what_is_outside_of_strings_does_not_depend_on_the_length(texts: list[str], long: bool) -> None:
    value = {"texts": texts, "filled": "f" * (3_000 if long else 0)}
    outside = outside_strings(json.dumps(value, separators=(",", ":")).encode())
    assert outside == b"{:[" + b"," * max(0, len(texts) - 1) + b"],:}"


def test_a_run_of_backslashes_costs_linear_time() -> None:
    raw = b'{"a":"' + b"\\\\" * 400_000 + b'"}'
    began = time.process_time()
    assert outside_strings(raw) == b"{:}"
    assert time.process_time() - began < 1
