"""Two nodes on one server: one owns children (the real one, and the demo agent), clients are at the other."""

import dataclasses
from collections.abc import Iterator

import pytest

from tests.doubles.nodes import Node, demo_agent, shared_server
from tests.doubles.peers import MAGI_CODE, ModelLog, magi_agent
from tests.doubles.peers_judge import SETTINGS as JUDGE_SETTINGS
from tests.doubles.peers_judge import risky_judge
from tests.doubles.scripted_model import scripted_model


@dataclasses.dataclass
class Pair:
    """``owner`` runs the children of all sessions, ``edge`` serves the clients; ``model`` is the child's."""

    owner: Node
    edge: Node
    model: ModelLog


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    if not MAGI_CODE.exists():
        pytest.skip("magi-code 0.104.0 is not in the peers' cache")
    folder = tmp_path_factory.mktemp("pair")
    log = folder / "requests.jsonl"
    log.touch()
    with (
        shared_server() as redis,
        scripted_model(log) as port,
        risky_judge(folder / "judge") as judge,
    ):
        agents = [
            magi_agent(folder / "magi", port, allowed_origins=["https://app.example"]),
            magi_agent(folder / "careful", port, name="careful", env=judge, tooling=JUDGE_SETTINGS),
            demo_agent(folder / "demo"),
        ]
        with (
            Node(folder / "owner", redis=redis, roles=["agents"], agents=agents) as owner,
            Node(folder / "edge", redis=redis, roles=["edge"], agents=agents) as edge,
        ):
            yield Pair(owner, edge, ModelLog(log))
            for node in (owner, edge):
                node.assert_clean()
