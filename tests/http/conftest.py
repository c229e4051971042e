"""One real server for all HTTP tests of a worker, and nodes on it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from gateway.bus.embedded import EmbeddedServer
from tests.doubles.http_node import SUPPORT, Node, http_node


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A server without persistence."""
    with asyncio.Runner() as runner:
        server = EmbeddedServer(restart=False)
        runner.run(server.start())
        yield server.url
        runner.run(server.stop())


@pytest.fixture
async def node(redis_url: str) -> AsyncIterator[Node]:
    """A node with the defaults."""
    async with http_node(redis_url) as made:
        yield made


@dataclass
class Talk:
    """A session with its token and clients that hold it or the key."""

    id: str
    token: str
    key: httpx.AsyncClient
    page: httpx.AsyncClient

    @property
    def path(self) -> str:
        return f"/v1/sessions/{self.id}"


async def new_session(client: httpx.AsyncClient, agent_id: str = SUPPORT.id) -> dict[str, Any]:
    answer = await client.post("/v1/sessions", json={"agent_id": agent_id})
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.fixture
async def key(node: Node) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the backend's key."""
    async with node.client() as client:
        yield client


@pytest.fixture
async def talk(node: Node, key: httpx.AsyncClient) -> AsyncIterator[Talk]:
    """A session of the agent ``support``."""
    made = await new_session(key)
    async with node.client(made["session_token"]) as page:
        yield Talk(made["id"], made["session_token"], key, page)
