"""Two nodes on one server: one owns children (the real one, and the demo agent), clients are at the other."""

import dataclasses
import uuid
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.nodes import Node, demo_agent, shared_server
from tests.doubles.peers import MAGI_CODE, ModelLog, magi_agent
from tests.doubles.peers_judge import SETTINGS as JUDGE_SETTINGS
from tests.doubles.peers_judge import risky_judge
from tests.doubles.round_robin import round_robin
from tests.doubles.scripted_model import scripted_model

if TYPE_CHECKING:
    from tests.doubles.sdk_talk import Talk


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


# For the SDK alone: the demo agent, two nodes of both roles.


def port_of(node: Node) -> int:
    return int(node.url.rpartition(":")[2])


class SdkNodes:
    """Two nodes of both roles; ``more`` starts a further edge on the same server."""

    def __init__(self, folder: Path, redis: str, agents: Any, both: list[Node]) -> None:
        self.folder, self.redis, self.agents, self.both = folder, redis, agents, both

    def more(self) -> Node:
        return Node(self.folder / uuid.uuid4().hex[:8], redis=self.redis, roles=["edge"], agents=self.agents)


@pytest.fixture(scope="session")
def sdk_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkNodes]:
    folder = tmp_path_factory.mktemp("scenarios")
    agents = [
        demo_agent(folder / "demo"),
        demo_agent(folder / "open", "open", tokens_may_approve=True),
    ]
    with shared_server() as redis:
        with (
            Node(folder / "a", redis=redis, agents=agents) as a,
            Node(folder / "b", redis=redis, agents=agents) as b,
        ):
            yield SdkNodes(folder, redis, agents, [a, b])
            for node in (a, b):
                node.assert_clean()


@pytest.fixture
async def url(sdk_nodes: SdkNodes) -> AsyncGenerator[str]:
    async with round_robin([port_of(node) for node in sdk_nodes.both]) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def talk(url: str) -> AsyncGenerator["Talk"]:
    from tests.doubles.sdk_talk import sdk_talk

    async with sdk_talk(url) as made:
        yield made
