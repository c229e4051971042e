"""The time of a text of four times the length is at most eight times as long: a square would take sixteen.

The nightly ones look closer and at more: a mebibyte takes at most 2.5 times as long as half of one.
"""

import contextlib
import gc
import time
from collections.abc import Callable
from random import Random

import pytest

from gateway.model.redaction import RULES, KnownSecret, Redactor, Rule
from gateway.model.redaction.samples import made

REDACTOR = Redactor([KnownSecret("abababababab-abababab", "ab")])
SIZE = 64 * 1024
HALF = 512 * 1024


def worst(rule: Rule) -> list[str]:
    """Texts that keep a rule busy: its match again and again, its beginning again and again, its value without end."""
    text, parts = made(rule.example, Random(11))
    begin = text[: max(1, len(text) // 2)]
    last = parts[-1]
    return [text, text + " ", begin, begin + " ", text[: text.index(last)] + last * 400, last[:3]]


def seconds(run: Callable[[str], object], text: str) -> float:
    begin = time.process_time()
    run(text)
    return time.process_time() - begin


def check(
    run: Callable[[str], object], piece: str, size: int = SIZE, *, begin: str = "", times: int = 4, most: float = 8
) -> None:
    """Compare the least times seen, in turns: what the work costs, not what else the machine does. A square stays a
    square in any number of turns."""
    once, longer = (begin + piece * (length // len(piece) + 1) for length in (size, size * times))
    run(longer)
    single: list[float] = []
    multiple: list[float] = []
    gc.disable()
    try:
        for _ in range(40):
            single.append(seconds(run, once))
            multiple.append(seconds(run, longer))
            if min(multiple) <= most * max(1e-4, min(single)):
                return
    finally:
        gc.enable()
    found = f"{min(multiple) / min(single):.2f} times as long for {times} times the text"
    raise AssertionError(f"{found}: {begin[:60]!r} and again and again {piece[:60]!r}")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_rule(rule: Rule) -> None:
    for piece in worst(rule)[:: 2 if rule.name != "assignment" else 1]:
        check(REDACTOR.log_text, piece)


@pytest.mark.nightly
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_mebibyte_of_each_rule(rule: Rule) -> None:
    """Its worst texts again and again, and one match whose last part never ends."""
    for piece in worst(rule):
        check(REDACTOR.log_text, piece, HALF, times=2, most=2.5)
    text, parts = made(rule.example, Random(11))
    check(REDACTOR.log_text, parts[-1], HALF, begin=text[: text.index(parts[-1])], times=2, most=2.5)


@pytest.mark.parametrize(
    "piece", ["ab", "a", '"', "\\", "-----BEGIN ", "eyJ", "a=", "://a:", "password", "Bearer ", " "]
)
def test_other_texts(piece: str) -> None:
    check(REDACTOR.log_text, piece)


@pytest.mark.parametrize(
    "piece",
    [
        '{"password":', "[", '"a\\n",', '"\\"', '{"next_token":"x","a":"b"},', '"a=b","token=abc1234",',
        '{"password":"x"},', '{"token":{"a":', '{"token":{"type":', '"secrets":[1,[', '"\\u0070assword":', "\\u0041",
        "\\n", "abababababab-abababab,", '"a',
    ],
)  # fmt: skip
def test_json(piece: str) -> None:
    def run(text: str) -> None:
        with contextlib.suppress(ValueError):
            REDACTOR.log_json(text.encode())

    check(run, piece)


@pytest.mark.parametrize(
    "piece", ["token=abc123def ", "plain words in a row ", 'password="', "-----BEGIN PRIVATE KEY-----\n", "abab"]
)
def test_streams(piece: str) -> None:
    def run(text: str) -> None:
        stream = REDACTOR.deltas()
        for at in range(0, len(text), 64):
            stream.feed(text[at : at + 64])
        stream.flush()

    check(run, piece, 16 * 1024)
