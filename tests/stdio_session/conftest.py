"""A server for all, and for each test a node on it that is checked for what it leaves behind."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.bus.embedded import EmbeddedServer
from tests.doubles.agent_world import World, agent_world, demo_agent


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A server without persistence."""
    with asyncio.Runner() as runner:
        server = EmbeddedServer(restart=False)
        runner.run(server.start())
        yield server.url
        runner.run(server.stop())


@pytest.fixture
async def world(redis_url: str, tmp_path: Path) -> AsyncIterator[World]:
    """A node with the demo agent. After the test its sessions are ended, and nothing of them may be left: no process,
    task, descriptor, call or registration with the reaper."""
    async with agent_world(redis_url, [demo_agent(tmp_path)]) as made:
        warm = await made.talk()  # what lives as long as a node is there from here on: the reaper, threads, readers
        await warm.run("echo warm")
        await warm.close()
        before = await made.remains()
        yield made
        await made.close_all()
        await made.settles(before)
