"""Every place of the plain text is found in the encoded value, however that is escaped."""

import json
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model.redaction.places import Places, plain

_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"(\s*:)?|[^"]', re.DOTALL)


def encoded(text: bytes) -> bytes:
    return json.dumps(text.decode("utf-8", "surrogatepass"))[1:-1].encode()


def strings_of(raw: bytes) -> Iterator[tuple[int, int, bool] | None]:
    """For each byte of the plain text the string that it is inside of: where its inside begins and ends in the value,
    and whether it is a key. None for the others."""
    for token in _TOKEN.finditer(raw):
        if token.start(1) < 0:
            yield None
            continue
        yield None
        inside = json.loads(b'"' + token.group(1) + b'"')
        for _ in inside.encode("utf-8", "surrogatepass"):
            yield (*token.span(1), token.start(2) >= 0)
        yield from [None] * (token.end() - token.end(1))


def check(raw: bytes) -> None:
    expected = list(strings_of(raw))
    places = Places(raw)
    assert len(places.text) == len(places.marked) == len(expected)
    for place, outer in enumerate(expected):
        string = places.string_at(place)
        assert (string is None) == (outer is None), place
        if string and outer:
            start, end = string
            at, until, is_key = outer
            assert places.decoded(start, end) == json.loads(b'"' + raw[at:until] + b'"')
            assert places.is_key(end) == is_key
            assert places.next_quote(place) == end
    places = Places(raw)
    seen = 0
    for place, outer in enumerate(expected):
        if outer is None:  # what is in no string is the same in both
            at = places.in_value(place)
            assert at >= seen
            assert raw[at] == places.marked[place]
            seen = at + 1
    assert plain(raw) == places.text.replace(b"\0", b'"').replace(b"\1", b"\0") or b"\\u000" in raw


characters = st.sampled_from('ab"\\/\n\t\x01\b\fé€\U0001f600,:{}[]u0041\ud800\udc00')
texts = st.text(characters, max_size=40) | st.text(max_size=10)
values = st.recursive(
    texts | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
)


@given(value=values, ascii_only=st.booleans(), indent=st.none() | st.just(1))
def test_any_value(value: object, ascii_only: bool, indent: int | None) -> None:
    check(json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("size", [1, 7, 8, 15, 16, 17, 64])
@pytest.mark.parametrize(
    "piece",
    [
        "\\\\", '\\"', "\\n", "\\u0041", "\\u0022", "\\u005c", "\\u005C\\u0022", "\\ud83d\\ude00", "\\ud83d", "\\/",
        "a", '","', "\\\\u0041", "\\\\\\u0041", "\\r\\b\\f\\t",
    ],
)  # fmt: skip
def test_pieces_again_and_again(piece: str, size: int) -> None:
    check(f'["{piece * size}","x{piece * size}\\\\"]'.encode())


def test_numbers_and_words_outside_of_strings() -> None:
    raw = b'{"a\\n": [1234567 ,true],"b":-5e3}'
    places = Places(raw)
    found = [places.scalar_at(place, 0) for place in range(len(places.text)) if places.string_at(place) is None]
    assert {
        raw[places.in_value(start) : places.in_value(end - 1) + 1] for start, end in sorted({*filter(None, found)})
    } == {
        b"1234567",
        b"true",
        b"-5e3",
    }


def test_a_string_that_is_not_closed() -> None:
    with pytest.raises(ValueError, match="not JSON"):
        Places(b'["abc').string_at(3)
