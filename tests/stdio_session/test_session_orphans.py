"""SIGKILL of a whole node: its child, the child's own children and their background jobs are gone within 5 s (bridge 9;
known failures F10, F11)."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.stdio.reaper_process import session_members
from tests.doubles.nodes import AgentTable, Node, alive, demo_agent, shared_server, wait_until
from tests.doubles.nodes_session import conversation
from tests.doubles.peers import MAGI_CODE, magi_agent
from tests.doubles.scripted_model import scripted_model

GONE_S = 5.0
JOB = "sleep 600 & echo started; sleep 600; echo done"  # a last command of its own would be run in the shell's stead
WORK: dict[str, tuple[dict[str, Any], int]] = {
    "demo": ({"grandchild": {"seconds": 600}, "sleep_s": 0.1}, 2),
    "magi": ({"calls": [{"name": "bash", "arguments": {"intent": "wait", "command": JOB}}]}, 4),
}
"""For each agent a step that starts processes, and how many it has then: the child, its shell, their jobs."""


@pytest.fixture
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AgentTable]:
    if request.param == "demo":
        yield demo_agent(tmp_path / "demo")
        return
    if not MAGI_CODE.exists():
        pytest.skip("magi-code 0.104.0 is not in the peers' cache")
    with scripted_model() as port:
        yield magi_agent(tmp_path / "magi", port)


@pytest.mark.parametrize("agent", ["demo", pytest.param("magi", marks=pytest.mark.peers)], indirect=True)
async def test_a_node_that_is_killed_leaves_no_process_of_its_agents(agent: AgentTable, tmp_path: Path):
    step, least = WORK[agent.name]
    with shared_server() as redis, Node(tmp_path / "node", redis=redis, agents=[agent]) as node:
        async with conversation(node, agent.name) as talk:
            await talk.say(step, {"sleep_s": 600, "text": "never"})
            (child,) = wait_until(node.children, 30, "the child")
            members = wait_until(_at_least(child, least), 30, "its jobs")
            os.kill(node.pid, signal.SIGKILL)
            wait_until(lambda: not any(alive(pid) for pid in members), GONE_S, f"the end of {members}")
            assert session_members(child) == []


def _at_least(child: int, least: int) -> Callable[[], list[int]]:
    def found() -> list[int]:
        members = session_members(child)
        return members if len(members) >= least else []

    return found
