# pyright: reportMissingImports=false, reportUntypedBaseClass=false
"""The SDK as a user has it, with its waits scaled; a session and its connection. Needs the peers' environment."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pydantic
import subako
from subako.generated import models

from tests.doubles.nodes import API_KEY
from tests.doubles.nodes_session import agent_id, script

WITHIN_S = 30.0
SCALE = 0.2
ENDS = ("run_completed", "run_failed", "run_cancelled")


class Row(pydantic.BaseModel):
    row_id: str


async def scaled_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds * SCALE)


@asynccontextmanager
async def sdk_client(url: str, credential: Any = API_KEY, *, sleep: Any = scaled_sleep) -> AsyncGenerator[Any]:
    """The SDK's client; each request has a connection of its own, so that a proxy may send it anywhere."""
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(limits=limits, verify=False) as http:
        kind = "api_key" if credential is API_KEY else "access_token"
        async with subako.SubakoClient(base_url=url, http_client=http, sleep=sleep, **{kind: credential}) as client:
            yield client


class Talk:
    """A session and the SDK's connection to it."""

    def __init__(self, client: Any, session: Any, connection: Any) -> None:
        self.client, self.session, self.connection = client, session, connection

    @property
    def id(self) -> str:
        return str(self.session.id)

    async def first(self, *types: str, within: float = WITHIN_S, **fields: Any) -> Any:
        """The first event of one of these types with these fields."""
        async with asyncio.timeout(within):
            async for event in self.connection:
                if event.type in types and all(getattr(event, name, None) == want for name, want in fields.items()):
                    return event
        raise AssertionError(f"the connection ended: {self.connection.error}")

    def of(self, *types: str) -> list[Any]:
        """The events so far of these types."""
        return [event for event in self.connection.events if event.type in types]

    async def say(self, *steps: Any) -> str:
        """An input: its run."""
        return str((await self.connection.send(script(*steps))).run_id)

    async def end(self, run_id: str, within: float = WITHIN_S) -> Any:
        """How a run ended."""
        return await self.first(*ENDS, run_id=run_id, within=within)

    async def run(self, *steps: Any, within: float = WITHIN_S) -> str:
        """One run that must complete: the last thing that was said."""
        end = await self.end(await self.say(*steps), within)
        assert end.type == "run_completed", end
        return self.said()

    def said(self) -> str:
        """The assistant's last words."""
        words = [
            block.data.text
            for message in self.connection.transcript
            if message.role.value == "assistant"
            for block in message.message.content
            if block.type == "text"
        ]
        return words[-1]

    async def serve(self, name: str = "web", lifetime: Any = None, **tools: Callable[[Row], Any]) -> Any:
        """A tool client of the SDK with these tools."""
        client = self.connection.create_tool_client(name, lifetime=lifetime)
        for tool, execute in tools.items():
            client.add_tool(tool, sdk_tool(execute))
        await client.ready()
        return client


def sdk_tool(execute: Callable[[Row], Any]) -> Any:
    """A tool with one argument, ``row_id``."""

    async def run(arguments: Row, _call: Any) -> Any:
        value = execute(arguments)
        return await value if asyncio.iscoroutine(value) else value

    return subako.Tool(description="A tool.", parameters=Row, execute=run)


def sdk_lifetime(seconds: int) -> Any:
    """A lifetime that pings keep up."""
    return models.TtlClientLifetimeForm.model_validate({"type": "ttl", "data": {"seconds": seconds}})


async def new_session(client: Any, agent: str = "demo") -> Any:
    """A session."""
    return await client.sessions.create(models.CreateSessionBody(agent_id=uuid.UUID(agent_id(agent))))


@asynccontextmanager
async def sdk_talk(url: str, agent: str = "demo", **options: Any) -> AsyncGenerator[Talk]:
    """A new session, followed from its first event."""
    async with sdk_client(url) as client:
        session = await new_session(client, agent)
        async with client.sessions.connect(session.id, after_seq=0, **options) as connection:
            yield Talk(client, session, connection)
