"""SIGKILL of a whole node: its child, the child's grandchild and its background job are gone within 5 s (bridge 9;
faults 1; known failures F11)."""

import asyncio
import time
from pathlib import Path

from tests.doubles.nodes import Node, alive, demo_agent, wait_until
from tests.doubles.nodes_session import calls, conversation, tool


async def test_nothing_outlives_a_node_that_was_killed(tmp_path: Path):
    with Node(tmp_path, agents=[demo_agent(tmp_path / "demo")]) as node:
        async with conversation(node) as talk:
            client = await talk.register("web", tool("x"))
            jobs = [{"grandchild": {"seconds": 600}}, {"grandchild": {"seconds": 600, "holds_stdout": False}}]
            await talk.say(*jobs, {"stderr_bytes": 64}, calls("client__web__x"), {"text": "never"})
            await client.dispatched()
            (child,) = [pid for pid in node.children() if b"demo_agent" in command(pid) and session_of(pid) == pid]
            members = [pid for pid in processes() if session_of(pid) == child]
            assert len(members) == 3, "the child and two that it started"
            began = time.monotonic()
            await asyncio.to_thread(node.kill)
            await asyncio.to_thread(wait_until, lambda: not any(map(alive, members)), 5, "the end of all of them")
            assert time.monotonic() - began < 5


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def session_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return 0
