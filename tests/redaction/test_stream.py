"""A stream's output is that of the whole text, for any split."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.model.redaction import RULES, KnownSecret, Redactor
from gateway.model.redaction.known import KnownForms, forms
from gateway.model.redaction.rule import HEAD_BYTES
from gateway.model.redaction.samples import made
from gateway.model.redaction.scan import Scanner

KNOWN = 'Zwölf Boxkämpfer/12 & "mehr"'
REDACTOR = Redactor([KnownSecret(KNOWN, "fighter"), KnownSecret("correct-horse-battery-staple-12", "horse")])

SCANNER = Scanner(KnownForms([]))
_GLUE = [
    " ", "\n", "\r\n", "\t", "\"", "'", "\\", "\\n", "\\\"", "=", ": ", ":", "-", "_", ".", "/", "@", "&", "%3D",
    ",", ";", "é", "€", "\U0001f600", "\ud800", "[redacted:x]", "password", "api_key", "next_token", "token=",
    "Bearer ", "Authorization: ", "eyJ", "-----", "-----BEGIN RSA ", "PRIVATE KEY-----\n", "-----END",
    "-----END RSA PRIVATE KEY-----", "https://u:", "Cookie: a=", "\x1b[31m", "a", "Z9", "(",
    "machine h login l password ", "--token ", "<password>", "</", "0" * 70, "correct-horse-battery",
]  # fmt: skip


@st.composite
def texts(draw: st.DrawFn) -> str:
    rng = Random(draw(st.integers(0, 2**32)))
    samples = st.sampled_from(RULES).map(lambda rule: made(rule.example, rng)[0])
    counters = st.sampled_from(RULES).map(lambda rule: made(rule.counter, rng)[0])
    cut = st.tuples(samples, st.integers(0, 60), st.integers(0, 60)).map(lambda t: t[0][t[1] : len(t[0]) - t[2]])
    known = st.sampled_from(sorted(forms(KNOWN))).map(lambda form: form.decode("utf-8"))
    cut_known = st.tuples(known, st.integers(0, 20)).map(lambda t: t[0][: len(t[0]) - t[1]])
    piece = st.one_of(st.sampled_from(_GLUE), samples, counters, cut, known, cut_known, st.text(max_size=8))
    return "".join(draw(st.lists(piece, max_size=12)))


def streamed(parts: list[str]) -> str:
    stream = REDACTOR.deltas()
    return "".join([*(stream.feed(part) for part in parts), stream.flush()])


def split(text: str, at: list[int]) -> list[str]:
    cuts = [0, *sorted({place % (len(text) + 1) for place in at}), len(text)]
    return [text[a:b] for a, b in pairwise(cuts)]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=texts(), at=st.lists(st.integers(0, 5_000), max_size=12))
@example(text="password = ", at=[8])
@example(
    text="x-----BEGIN RSA PRIVATE KEY-----\n" + "A" * 64 + "\n-----END RSA PRIVATE KEY----- rest", at=[70, 100, 110]
)
def test_any_split_gives_the_same(text: str, at: list[int]) -> None:
    assert streamed(split(text, at)) == REDACTOR.log_text(text)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=texts())
def test_the_gate_opens_for_whatever_a_rule_finds(text: str) -> None:
    encoded = text.encode("utf-8", "surrogatepass")
    everything = range(1, len(RULES) + 1)
    found = {span.rank for span in SCANNER.spans(encoded, everything, 0, len(encoded))}
    assert found <= {index - 1 for index in SCANNER.gate(encoded)}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=texts())
def test_character_by_character(text: str) -> None:
    assert streamed(list(text)) == REDACTOR.log_text(text)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=texts())
@example(text="machine h login l password " + made(RULES[0].example, Random(3))[0])
def test_redacting_twice_changes_no_placeholder(text: str) -> None:
    once = REDACTOR.log_text(text)
    for part in once.split("[redacted:")[1:]:
        assert f"[redacted:{part.split(']')[0]}]" in REDACTOR.log_text(once)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_example_split_anywhere(rule: object) -> None:
    text, _ = made(next(r for r in RULES if r is rule).example, Random(5))
    whole = REDACTOR.log_text(f"one {text} two")
    for at in range(1, len(text)):
        assert streamed([f"one {text[:at]}", f"{text[at:]} two"]) == whole


def test_held_back_text_is_bounded() -> None:
    stream = REDACTOR.deltas()
    for part in ["x" * 100] * 200 + ['password="', "y" * 9_000] + ["z " * 50] * 200:
        stream.feed(part)
        assert stream.held <= HEAD_BYTES


def test_a_long_key_is_dropped_as_it_comes() -> None:
    stream = REDACTOR.deltas()
    out = stream.feed("before -----BEGIN " + "PRIVATE KEY-----\n")
    for _ in range(500):
        out += stream.feed("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 2 + "\n")
        assert stream.held <= HEAD_BYTES
    out += stream.feed("-----END " + "PRIVATE KEY-----\nafter")
    assert out + stream.flush() == "before [redacted:private-key]\nafter"


def test_plain_words_are_held_for_one_word_only() -> None:
    stream = REDACTOR.deltas()
    assert stream.feed("The quick brown fox") == "The quick brown "
    assert stream.feed(" jumps over") == "fox jumps "


def test_a_flushed_stream_starts_anew() -> None:
    stream = REDACTOR.deltas()
    stream.feed("pass")
    assert stream.flush() == "pass"
    assert stream.feed("word=abc123xyz or") == "word=abc123xyz "
