"""A bus on an embedded server, nodes of the socket alone on it, and their clients."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.doubles.socket_world import World, bus, world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bus_url() -> AsyncGenerator[str]:
    async with bus() as url:
        yield url


@pytest.fixture
async def bus_world(bus_url: str) -> AsyncGenerator[World]:
    async with world(bus_url) as made:
        yield made
