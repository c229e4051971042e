"""Framing: the cut at LF and the bound on a line (stdio protocol, Framing; known failures E6, E9, F1)."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.stdio.lines import LineSplitter, OverlongLine

LIMIT = 64
MARKER = b'"mark"'


def split_up(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def lines_of(pieces: list[bytes]) -> tuple[list[bytes | OverlongLine], bytes | OverlongLine | None]:
    splitter = LineSplitter(LIMIT, MARKER)
    lines = [line for piece in pieces for line in splitter.feed(piece)]
    return lines, splitter.finish()


CHUNK = st.one_of(
    st.binary(max_size=80),
    st.sampled_from([b"\n", b"\n\n", MARKER, b"{", b" {" + MARKER, b"x" * 64, b"x" * 65, "\u2028\x85\v\f\r".encode()]),
)


@settings(deadline=None)
@given(st.lists(CHUNK, max_size=12).map(b"".join), st.lists(st.integers(0, 2000), max_size=20))
def test_any_split_of_the_bytes_gives_the_same_lines(data: bytes, cuts: list[int]):
    assert lines_of(split_up(data, cuts)) == lines_of([data])


@settings(deadline=None)
@given(st.lists(CHUNK, max_size=12).map(b"".join))
def test_lines_are_what_lies_between_lfs_and_long_ones_leave_their_size(data: bytes):
    lines, rest = lines_of([data])
    *expected, expected_rest = data.split(b"\n")
    assert len(lines) == len(expected)
    for line, text in zip([*lines, rest or b""], [*expected, expected_rest], strict=True):
        if len(text) <= LIMIT:
            assert line == text
        else:
            marked = MARKER in text and text.lstrip(b" \t\r").startswith(b"{")
            assert line == OverlongLine(len(text), marked)


def test_other_line_ends_are_text():
    text = "a\u2028b\u2029c\x85d\ve\ff\rg".encode()
    assert lines_of([text + b"\n"]) == ([text], None)


def test_an_endless_line_keeps_no_more_than_the_bound():
    splitter = LineSplitter(LIMIT, MARKER)
    for _ in range(1000):
        assert splitter.feed(b"x" * 1000) == []
        assert len(splitter._pending) + len(splitter._tail) <= LIMIT + len(MARKER)
    assert splitter.feed(b"\ngood\n") == [OverlongLine(1_000_000, False), b"good"]


def test_a_marker_that_lies_across_two_reads_of_a_long_line_is_seen():
    splitter = LineSplitter(LIMIT, MARKER)
    assert splitter.feed(b"{" + b"x" * 100 + MARKER[:3]) == []
    assert splitter.feed(MARKER[3:] + b"\n") == [OverlongLine(101 + len(MARKER), True)]
