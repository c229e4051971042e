"""Pages that use the client, of a session that the test owns."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from gateway.bus.log import Log
from gateway.config.settings import Agent, Server, Settings
from tests.clients.driven import JS
from tests.doubles.page_server import page_server
from tests.doubles.socket_world import Node, World

PAGES = Path(__file__).parent / "pages"
WAIT_S = 20.0


@dataclass
class Site:
    """A session that the test owns, and pages of an origin that may use it."""

    node: Node
    origin: str
    session_id: str
    token: str
    epoch: int

    def address(self, *, tools: tuple[str, ...] = ("echo", "hold"), port: int = 0, **options: Any) -> str:
        """A page's: the key is its own unless one is given."""
        url = f"http://127.0.0.1:{port or self.node.port}"
        made = {"url": url, "session": self.session_id, "token": self.token, "key": uuid4().hex, **options}
        return f"{self.origin}/page.html#{quote(json.dumps({'options': made, 'tools': tools}))}"

    async def log(self) -> list[Any]:
        return [json.loads(entry.event) for entry in await Log(self.node.store).after(self.session_id, 0, 500)]

    async def logged(self, type_: str, *, within_s: float = WAIT_S, **wanted: Any) -> Any:
        """The first event like this, once it is there."""
        async with asyncio.timeout(within_s):
            while True:
                for event in await self.log():
                    if event["type"] == type_ and all(event[name] == value for name, value in wanted.items()):
                        return event
                await asyncio.sleep(0.01)

    async def answer(self, call_id: str, within_s: float = WAIT_S) -> str:
        return (await self.logged("tool_result", within_s=within_s, call_id=call_id))["content"][0]["data"]["text"]

    async def registered(self, count: int = 1) -> str:
        """The newest of so many registrations: its id."""
        async with asyncio.timeout(WAIT_S):
            while True:
                ids = [event["client_id"] for event in await self.log() if event["type"] == "client_registered"]
                if len(ids) == count:
                    return ids[-1]
                await asyncio.sleep(0.01)

    async def dispatch(self, client_id: str, tool: str, **more: Any) -> str:
        return await self.node.dispatch(self.session_id, self.epoch, client_id, tool=tool, **more)


@asynccontextmanager
async def pages(world: World) -> AsyncGenerator[Site]:
    with page_server({"/": PAGES, "/client/": JS / "dist"}) as origin:
        agent = Agent(name="pages", command=("true",), cwd="/", allowed_origins=(origin,))
        node = await world.node(settings=Settings(server=Server(), agents=(agent,)))
        session_id, token = await node.session(agent)
        yield Site(node, origin, session_id, token, await node.own(session_id))
