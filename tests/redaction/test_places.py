"""Every place of the plain text is found in the encoded value, however that is escaped and cut."""

import json
import re
from collections.abc import Iterator
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model.redaction import places
from gateway.model.redaction.places import Places, plain

_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"|.', re.DOTALL)


def strings_of(raw: bytes) -> Iterator[tuple[int, bytes | None]]:
    """For each byte of the plain text the string that it is inside of, as (where it begins, its inside)."""
    for token in _TOKEN.finditer(raw):
        if token.start(1) < 0:
            yield (-1, None)
            continue
        yield (-1, None)
        for _ in plain(token.group(1)):
            yield (token.start(), token.group(1))
        yield (-1, None)


def check(raw: bytes) -> None:
    expected = list(strings_of(raw))
    found = Places(raw)
    assert found.text == plain(raw)
    assert len(found.text) == len(expected)
    for place, (start, inside) in enumerate(expected):
        string = found.string_at(place)
        assert (string is None) == (inside is None), place
        if string:
            assert (string.start(), string.group(1)) == (start, inside)
            assert found.end_of(string) == place + len(list(next(groupby(expected[place:]))[1]))


texts = st.text(st.sampled_from('ab"\\/\n\t\x01\b\fé€\U0001f600,:{}[]u0041\ud800'), max_size=40)
values = st.recursive(
    texts | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
)


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "BLOCK", 16)


@settings(max_examples=300, deadline=None)
@given(value=values, ascii_only=st.booleans(), indent=st.none() | st.just(1))
def test_any_value(value: object, ascii_only: bool, indent: int | None) -> None:
    check(json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("size", [1, 7, 8, 15, 16, 17, 64])
@pytest.mark.parametrize("piece", ["\\\\", '\\"', "\\n", "\\u0041", "\\ud83d\\ude00", "\\/", "a", '","'])
def test_pieces_again_and_again(piece: str, size: int) -> None:
    check(f'["{piece * size}","x{piece * size}\\\\"]'.encode())


@pytest.mark.parametrize("at", range(40))
def test_places_out_of_order(at: int) -> None:
    raw = json.dumps(["a\n" * 9, {'k"\n': "é\u2028" * 9}]).encode()
    found = Places(raw)
    whole = [found.string_at(place) for place in range(len(found.text))]
    again = Places(raw)
    for place in (at, 0, at // 2, at):
        before, after = whole[place], again.string_at(place)
        assert (before and before.span()) == (after and after.span())


def test_a_string_that_is_not_closed() -> None:
    with pytest.raises(ValueError, match="not JSON"):
        Places(b'["abc').string_at(3)
