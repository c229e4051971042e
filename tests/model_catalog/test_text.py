"""Cleaning, measuring and cutting text (bridge 4, 6)."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model.text import child_description, clean_text, cut_bytes, escaped_bytes


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("a\x00b\x07\x7f\x85c", "abc"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link", "textlink"),
        ("\x1bPdata\x1b\\text\x1b(B", "text"),
        ("\x9b31mred", "red"),
        ("\x1b]never ends", "never ends"),
        ("\x1b", ""),
        ("\x1b[", ""),
        ("a\u2028b\u2029c\ufeff", "a\u2028b\u2029c\ufeff"),
        ("a\ud800b", "a\ufffdb"),
        ("😀é", "😀é"),
        (r"\u0000 \x1b", r"\u0000 \x1b"),
    ],
)
def test_cleaning(text: str, clean: str) -> None:
    assert clean_text(text) == clean


@given(st.text(st.characters() | st.sampled_from("\x1b[]\x9b\x07\\P0m\r\n"), max_size=60))
def test_clean_text_has_no_controls_and_stays_clean(text: str) -> None:
    clean = clean_text(text)
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in clean)
    assert clean_text(clean) == clean


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=60))
def test_what_has_no_controls_stays_whole(text: str) -> None:
    assert clean_text(text) == text


@pytest.mark.parametrize("unit", ["\x1b]", "\x1bP", "\x1b[0", "\x1b]0;", "\x9d", "\x1b", "\r"])
def test_cleaning_is_linear(unit: str) -> None:
    start = time.process_time()
    clean_text(unit * (500_000 // len(unit)))
    assert time.process_time() - start < 2


def test_cuts_fall_on_characters() -> None:
    assert cut_bytes("aé😀", 7) == "aé😀"
    assert cut_bytes("aé😀", 6) == "aé"
    assert cut_bytes("aé😀", 2) == "a"
    assert escaped_bytes('a"\n😀') == 1 + 2 + 2 + 4


def test_descriptions() -> None:
    assert child_description("d", "tool") == ("d", None)
    assert child_description(" \n\t\u2003", "tool") == ("tool", "the description was blank")
    assert child_description("a" * 2048, "tool") == ("a" * 2048, None)
    text, note = child_description("a" * 2049, "tool")
    assert (text, len(text.encode())) == ("a" * 2045 + "…", 2048)
    assert note == "the description was cut to 2048 bytes"
    text, _ = child_description("😀" * 513, "tool")
    assert text == "😀" * 511 + "…"
