"""A bus of two nodes under a prefix of its own, on one real server; after each test every key has a lifetime."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from gateway.bus.embedded import EmbeddedServer
from tests.doubles.bus import Bus, bus, keys_without_lifetime


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A server without persistence."""
    with asyncio.Runner() as runner:
        server = EmbeddedServer(restart=False)
        runner.run(server.start())
        yield server.url
        runner.run(server.stop())


@pytest.fixture
async def nodes(redis_url: str) -> AsyncIterator[tuple[Bus, Bus]]:
    """Two nodes. What a test leaves behind is looked at before it is removed."""
    prefix = f"t{uuid4().hex[:8]}"
    async with bus(redis_url, prefix) as a, bus(redis_url, prefix) as b:
        yield a, b
        try:
            assert await keys_without_lifetime(a.topology, prefix) == []
        finally:
            await a.topology.all()[0].call("FLUSHALL")


@pytest.fixture
def a(nodes: tuple[Bus, Bus]) -> Bus:
    """The owner's node."""
    return nodes[0]


@pytest.fixture
def b(nodes: tuple[Bus, Bus]) -> Bus:
    """Another node."""
    return nodes[1]
