"""A server for all, and for each test a node on it that is checked for what it leaves behind."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.bus.embedded import EmbeddedServer
from tests.doubles.agent_world import World, demo_agent, settling_world


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
    """A node with the demo agent, which is checked for what the test's sessions leave behind."""
    async with settling_world(redis_url, [demo_agent(tmp_path)]) as made:
        yield made
