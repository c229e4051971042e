"""The same interface twice: one node, and two behind a proxy where each request lands on the other one."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from gateway.bus.embedded import EmbeddedServer
from tests.doubles import described
from tests.doubles.http_node import KEY, SUPPORT, Node, http_node
from tests.doubles.round_robin import round_robin
from tests.doubles.sse_reader import open_stream


@dataclass
class Front:
    """The way in. ``owner`` is the node by which a test plays the session's owner."""

    port: int
    owner: Node
    nodes: list[Node]

    async def ask(
        self, method: str, path: str, body: Any = None, *, by: str = KEY, key: str | None = None, **headers: str
    ) -> httpx.Response:
        """One request on a connection of its own."""
        headers["Authorization"] = f"Bearer {by}"
        if key is not None:
            headers["Idempotency-Key"] = key
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}", verify=False, event_hooks={"response": [described.check]}
        ) as client:
            return await client.request(method, path, json=body, headers={**headers, "Connection": "close"})

    def stream(self, path: str, by: str, **headers: str) -> Any:
        """A stream on a connection of its own."""
        return open_stream(self.port, f"{path}/events/stream", by, **headers)

    async def session(self) -> "Session":
        """A session of the agent ``support``."""
        made = await self.ask("POST", "/v1/sessions", {"agent_id": SUPPORT.id})
        assert made.status_code == 201
        return Session(self, made.json()["id"], made.json()["session_token"])


@dataclass
class Session:
    """A session and its token."""

    front: Front
    id: str
    token: str

    @property
    def path(self) -> str:
        return f"/v1/sessions/{self.id}"

    async def ask(self, method: str, path: str = "", body: Any = None, **more: Any) -> httpx.Response:
        """A request with the session's token, or with ``by``."""
        return await self.front.ask(method, self.path + path, body, **{"by": self.token, **more})

    async def register(self, name: str = "web", **more: Any) -> dict[str, Any]:
        """A client with one tool."""
        tool = {"name": "highlight_row", "description": "d", "parameters": {"type": "object"}}
        body = {"name": name, "lifetime": {"type": "ttl", "data": {"seconds": 60}}, "tools": [tool], **more}
        answer = await self.ask("POST", "/clients", body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    async def log(self) -> list[dict[str, Any]]:
        """All events."""
        return (await self.ask("GET", "/events?order=asc&limit=200")).json()["items"]

    def stream(self, **headers: str) -> Any:
        """Its stream."""
        return self.front.stream(self.path, self.token, **headers)


@pytest.fixture(scope="session")
def bus_url() -> Iterator[str]:
    """A server without persistence."""
    with asyncio.Runner() as runner:
        server = EmbeddedServer(restart=False)
        runner.run(server.start())
        yield server.url
        runner.run(server.stop())


@pytest.fixture(params=["one node", "two nodes"])
async def front(request: pytest.FixtureRequest, bus_url: str) -> AsyncIterator[Front]:
    """One node, or two of which each gets every second request."""
    async with AsyncExitStack() as stack:
        count = 1 if request.param == "one node" else 2
        nodes = [await stack.enter_async_context(http_node(bus_url)) for _ in range(count)]
        port = await stack.enter_async_context(round_robin([node.port for node in nodes]))
        yield Front(port, nodes[0], nodes)


@pytest.fixture
async def session(front: Front) -> Session:
    """A session."""
    return await front.session()
