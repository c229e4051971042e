"""Gateways for the client libraries: nodes of the socket alone, on a real server; the test plays a session's owner."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.clients.driven import Driven, driven, prepare_js
from tests.clients.site import Site, pages
from tests.doubles.socket_world import Node, World, bus, world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bus_url() -> AsyncGenerator[str]:
    async with bus() as url:
        yield url


@pytest.fixture
async def bus_world(bus_url: str) -> AsyncGenerator[World]:
    async with world(bus_url) as made:
        yield made


@pytest.fixture(scope="session")
def js_client() -> None:
    """The built JavaScript client."""
    if lack := prepare_js():
        pytest.skip(f"this machine lacks {lack}")


@dataclass
class Scene:
    """A session that the test owns, and a client of it."""

    node: Node
    session_id: str
    token: str
    epoch: int
    client: Driven

    async def connect(self, port: int = 0, **options: Any) -> str:
        """Connects and waits until it is online: the registration's id."""
        options = {"tools": ["echo", "hold"], "ttl": 60, "token": self.token, "key": "tab-1", **options}
        url = f"http://127.0.0.1:{port or self.node.port}"
        await self.client.do("connect", url=url, session=self.session_id, **options)
        registration = await self.client.hear("registration")
        await self.client.hear("state", state="online")
        return str(registration["client_id"])

    async def dispatch(self, client_id: str, tool: str) -> str:
        return await self.node.dispatch(self.session_id, self.epoch, client_id, tool=tool)


@pytest.fixture(params=["js", pytest.param("js, its own socket", marks=pytest.mark.peers), "python"])
async def scene(request: pytest.FixtureRequest, bus_world: World) -> AsyncGenerator[Scene]:
    if request.param != "python":
        request.getfixturevalue("js_client")
    node = await bus_world.node()
    session_id, token = await node.session()
    epoch = await node.own(session_id)
    async with driven(request.param) as client:
        yield Scene(node, session_id, token, epoch, client)


@pytest.fixture
async def site(bus_world: World, js_client: None) -> AsyncGenerator[Site]:
    async with pages(bus_world) as made:
        yield made
