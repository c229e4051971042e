"""What a canary's scenes play on: the gateway's nodes, its clients, and what is kept of what they said."""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from tests.doubles.canaries import Canaries
from tests.doubles.nodes import API_KEY, Node
from tests.doubles.nodes_session import Conversation, conversation, follow
from tests.doubles.overheard import Ear, Mouth

ENV_SECRET = "CANARY_OF_THE_ENVIRONMENT"  # the variable's name
KNOWN = {
    "an API key": API_KEY,
    "the operator key": "opk-canary-for-consoles-5Kx8",
    "the password of Redis": "redis-canary-7Yt2-pass",
    "a value of an agent's environment": "plain-words-of-an-upstream-9Qz4",
}
SHORT = 3_000  # characters of canaries in one value where a limit is near


PATIENCE_S: Final = 2.0  # a request that is put off for longer is refused


@dataclass
class Heard:
    """What came out, by the name of the way out. ``marks``: words that stood beside the canaries, by the ways on which
    they must be found: without them nothing was tested."""

    canaries: Canaries
    outputs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    marks: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    tokens: list[str] = field(default_factory=list[str])
    executing: list[str] = field(default_factory=list[str])  # named values in arguments

    def must_show(self, mark: str, *ways: str) -> None:
        """Where a mark has to come out."""
        self.marks += [(mark, way) for way in ways]


@dataclass
class Stage:
    """What a scene plays on."""

    heard: Heard
    mouth: Mouth
    owner: Node
    edge: Node
    ear: Ear
    http: httpx.AsyncClient  # through the ear, with the backend's key

    @property
    def canaries(self) -> Canaries:
        return self.heard.canaries

    @asynccontextmanager
    async def talk(self, agent: str = "demo") -> AsyncGenerator[Conversation]:
        """A session that is made out of the ear's hearing, as its token is shown then, and read within it."""
        async with conversation(self.edge, agent) as made:
            self.heard.tokens.append(made.token)
            async with follow(self.http, made.id, made.token) as talk:
                yield talk

    async def tried(self, method: str, path: str, **more: Any) -> int:
        """A request that may fail; its status, 0 where there is no answer. One that is put off is sent again."""
        while True:
            try:
                answer = await self.http.request(method, path, **more)
            except (httpx.HTTPError, httpx.InvalidURL):
                return 0
            if answer.status_code not in (429, 503) or float(answer.headers.get("Retry-After", "inf")) > PATIENCE_S:
                return answer.status_code
            await asyncio.sleep(float(answer.headers["Retry-After"]))

    async def refused(self, method: str, path: str, **more: Any) -> None:
        """A request that must be refused as a wrong one."""
        status = await self.tried(method, path, **more)
        assert status == 400, f"{method} {path} {more}: {status}"


def parted(lines: list[str], size: int) -> list[list[str]]:
    return [lines[at : at + size] for at in range(0, len(lines), size)]


@asynccontextmanager
async def reading(stage: Stage, talk: Conversation) -> AsyncGenerator["asyncio.Task[None]"]:
    """A socket that reads a session, deltas too, within the ear's hearing."""
    url = f"ws://127.0.0.1:{stage.ear.port}/v1/ws"
    async with connect(url, subprotocols=["toolrelay.v1"], max_size=None) as link:  # type: ignore[list-item]
        await asked(link, op="attach", session_id=talk.id, token=talk.token, after_seq=0)

        async def read() -> None:
            async for _ in link:
                pass

        reading = asyncio.create_task(read())
        try:
            yield reading
        finally:
            reading.cancel()


async def asked(link: ClientConnection, **fields: Any) -> dict[str, Any]:
    number = uuid.uuid4().int % 1_000_000
    await link.send(json.dumps({"id": number, **fields}))
    async with asyncio.timeout(30):
        while True:
            frame: dict[str, Any] = json.loads(await link.recv())
            if frame.get("id") == number:
                return frame


async def thrown(url: str, text: str, protocols: Iterable[str] = ("toolrelay.v1",)) -> None:
    """One frame to a socket of its own; its answer or its close is waited for."""
    try:
        async with asyncio.timeout(10), connect(url, subprotocols=list(protocols), max_size=None) as link:  # type: ignore[arg-type]
            await link.send(text)
            await link.recv()
    except (WebSocketException, OSError, ValueError):
        pass
