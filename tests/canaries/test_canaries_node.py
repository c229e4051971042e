"""Canaries of every kind go in at every input of a whole gateway; none comes out where bridge 11 forbids it."""

import pytest

from gateway.model.redaction import RULES
from tests.doubles.canaries import Canaries
from tests.doubles.canary_play import play
from tests.doubles.canary_stage import KNOWN, Heard

OUTPUTS = (
    "the child", "clients", "Redis: keys", "Redis: values", "Redis: commands", "log of the owner", "log of the edge",
    "stdout of the owner", "stdout of the edge", "metrics of the owner", "metrics of the edge", "crashes",
)  # fmt: skip
EXECUTING = frozenset({"clients", "Redis: commands"})
"""Where the named values of an open call's arguments may be seen: at its client, and in its record."""


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Heard:
    return play(tmp_path_factory.mktemp("canaries"))


@pytest.mark.parametrize("output", [output for output in OUTPUTS if output not in EXECUTING])
def test_no_canary_comes_out(heard: Heard, output: str) -> None:
    assert heard.canaries.found_in(heard.outputs[output]) == []


@pytest.mark.parametrize("output", sorted(EXECUTING))
def test_nothing_but_what_an_open_call_needs_comes_out(heard: Heard, output: str) -> None:
    found = heard.canaries.found_in(heard.outputs[output])
    assert found == ["named value, put in at argument under a name, demo"]


def test_no_way_out_is_forgotten(heard: Heard) -> None:
    assert set(heard.outputs) == set(OUTPUTS)
    assert [name for name, output in heard.outputs.items() if not output] == []


def test_what_stood_beside_the_canaries_did_come_out(heard: Heard) -> None:
    assert [f"{mark} at {way}" for mark, way in heard.marks if mark.encode() not in heard.outputs[way]] == []


def test_every_kind_was_removed(heard: Heard) -> None:
    shown = heard.outputs["clients"]
    assert [rule.name for rule in RULES if f"[redacted:{rule.name}]".encode() not in shown] == []


def test_a_session_token_is_nowhere_but_in_its_answer(heard: Heard) -> None:
    assert len(heard.tokens) > 10
    for token in heard.tokens:
        assert [name for name, output in heard.outputs.items() if token.encode() in output] == []


@pytest.mark.parametrize("form", ["{}", "a%3A{}", '"x\\u0041{}"', "b\\x41{}"])
def test_a_canary_that_comes_out_is_seen(form: str) -> None:
    canaries = Canaries(KNOWN)
    rule = RULES[3]
    canary = canaries.of(rule, "here")
    output = form.replace("{}", canary.parts[0]).encode()
    assert canaries.found_in(output) == [f"{rule.name}, put in at here"]
    assert canaries.found_in(b"nothing of it") == []
    assert canaries.found_in(KNOWN["the operator key"].encode().hex().encode()) == []


def test_a_canary_cut_in_two_by_a_chunk_is_seen() -> None:
    canaries = Canaries({})
    text = canaries.of(RULES[3], "here").parts[0]
    assert canaries.found_in(f"{text[:5]}\r\n1f\r\n{text[5:]}".encode())
