"""Each case runs on one node and on two: ``pair`` is where the one side speaks and where the other does."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.doubles.socket_world import Client, Node, World, bus, world


@dataclass
class Pair:
    """``here`` and ``there`` are one node or two, on one bus."""

    world: World
    here: Node
    there: Node

    async def client(self, session_id: str, token: str, *, there: bool = False, **fields: object) -> Client:
        return await self.world.attached(self.there if there else self.here, session_id, token, **fields)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bus_url() -> AsyncGenerator[str]:
    async with bus() as url:
        yield url


@pytest.fixture
async def bus_world(bus_url: str) -> AsyncGenerator[World]:
    async with world(bus_url) as made:
        yield made


@pytest.fixture(params=["one node", "two nodes"])
async def pair(request: pytest.FixtureRequest, bus_world: World) -> Pair:
    here = await bus_world.node()
    return Pair(bus_world, here, here if request.param == "one node" else await bus_world.node())
