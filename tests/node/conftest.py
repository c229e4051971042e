"""One node with the demo agent for all tests that leave it as it was; tests that end a node start their own."""

from collections.abc import Iterator

import pytest

from tests.doubles.nodes import Node, demo_agent


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    agents = [
        demo_agent(folder / "demo"),
        demo_agent(folder / "drowsy", "drowsy", idle_timeout_s=1),
        demo_agent(folder / "broken", "broken", faults={"start_error": "configuration_invalid", "stderr_bytes": 640}),
        demo_agent(folder / "dying", "dying", faults={"die_after_frames": 0, "exit_code": 3, "stderr_bytes": 640}),
    ]
    with Node(folder, agents=agents) as running:
        yield running
        running.assert_clean("violation")  # children that break the protocol are asked to, and are told of
