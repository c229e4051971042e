"""A bus on an embedded server, nodes of the socket alone on it, and their clients."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.doubles.socket_world import World, world


@pytest.fixture
async def bus_world(tmp_path: Path) -> AsyncIterator[World]:
    async with world() as made:
        yield made
