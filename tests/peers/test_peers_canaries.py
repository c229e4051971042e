"""Canaries go in at every input of a gateway whose child is the real one; none comes out where bridge 11 forbids it.

The child's stdin is what the gateway lets it see; the model's requests are what the child made of that. Neither holds
a secret of a prompt, a result or an argument.
"""

import pytest

from gateway.model.redaction import RULES
from tests.doubles.canary_peers import OWN_FILE, play_with_the_real_child
from tests.doubles.canary_stage import Heard
from tests.doubles.peers import MAGI_CODE

pytestmark = pytest.mark.peers

OUTPUTS = (
    "the child", "the model", "clients", "Redis: keys", "Redis: values", "Redis: commands", "log of the owner",
    "log of the edge", "stdout of the owner", "stdout of the edge", "metrics of the owner", "metrics of the edge",
)  # fmt: skip
EXECUTING = frozenset({"clients", "Redis: commands"})
"""Where the named values of an open call's arguments may be seen: at its client, and in its record."""


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Heard:
    if not MAGI_CODE.exists():
        pytest.skip("magi-code 0.104.0 is not in the peers' cache")
    return play_with_the_real_child(tmp_path_factory.mktemp("canaries"))


@pytest.mark.parametrize("output", [output for output in OUTPUTS if output not in {*EXECUTING, "the model"}])
def test_no_canary_comes_out(heard: Heard, output: str) -> None:
    assert heard.canaries.found_in(heard.outputs[output]) == []


@pytest.mark.parametrize("output", sorted(EXECUTING))
def test_nothing_but_what_an_open_call_needs_comes_out(heard: Heard, output: str) -> None:
    found = heard.canaries.found_in(heard.outputs[output])
    assert found == ["named value, put in at argument under a name, demo"]


def test_the_model_reads_no_secret_but_those_that_the_agent_reads_itself(heard: Heard) -> None:
    found = heard.canaries.found_in(heard.outputs["the model"])
    others = [leak for leak in found if not leak.endswith(f", put in at {OWN_FILE}")]
    assert others == ["known: a value of an agent's environment, put in at anywhere"]
    assert len(found) > 1, "the agent has read its file"


def test_no_way_out_is_forgotten(heard: Heard) -> None:
    assert set(heard.outputs) == set(OUTPUTS)
    assert [name for name, output in heard.outputs.items() if not output] == []


def test_what_stood_beside_the_canaries_did_come_out(heard: Heard) -> None:
    assert [f"{mark} at {way}" for mark, way in heard.marks if mark.encode() not in heard.outputs[way]] == []


@pytest.mark.parametrize("output", ["the child", "clients"])
def test_every_kind_was_removed(heard: Heard, output: str) -> None:
    shown = heard.outputs[output]
    assert [rule.name for rule in RULES if f"[redacted:{rule.name}]".encode() not in shown] == []


def test_a_session_token_is_nowhere_but_in_its_answer(heard: Heard) -> None:
    assert len(heard.tokens) > 5
    for token in heard.tokens:
        assert [name for name, output in heard.outputs.items() if token.encode() in output] == []
