"""Servers that a test may stop, fill or kill, and nodes of one deployment that it may end as it likes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.bus.topology import connect
from tests.doubles.bus import keys_without_lifetime
from tests.doubles.nodes import Node
from tests.doubles.valkey_servers import Server

PREFIX = "t"


@pytest.fixture
async def redis(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    """A server of the test's own; the fixture's parameter, if there is one, are arguments for it."""
    async with Server(*getattr(request, "param", ())) as server:
        yield server


class Fleet:
    """Nodes on one bus. Each has a folder of its own, and ends with the test whatever became of it."""

    def __init__(self, folder: Path, stack: contextlib.AsyncExitStack) -> None:
        self.folder = folder
        self._stack = stack

    async def node(self, name: str, url: str, **options: Any) -> Node:
        """A node that is ready."""
        node = Node(self.folder / name, redis=url, prefix=PREFIX, **options)
        self._stack.push_async_callback(asyncio.to_thread, _end, node)
        await asyncio.to_thread(node.start)
        return node

    async def nodes(self, url: str, **options: Callable[[], Any] | dict[str, Any]) -> list[Node]:
        """Several at once, by their names."""
        starts = [self.node(name, url, **given) for name, given in options.items()]  # type: ignore[arg-type]
        return list(await asyncio.gather(*starts))


def _end(node: Node) -> None:
    """At once: how a node drains is not for every test to see."""
    if node.process is not None and node.process.poll() is None:
        node.kill()
    node.close()


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with contextlib.AsyncExitStack() as stack:
        yield Fleet(tmp_path, stack)


async def assert_lifetimes(url: str) -> None:
    """Every key on the bus has a lifetime, or is on the permanent list."""
    async with connect(url) as topology:
        assert await keys_without_lifetime(topology, PREFIX) == []
