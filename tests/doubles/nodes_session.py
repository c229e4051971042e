"""A session as a strict HTTP client sees it: its stream, its inputs, and clients that answer as a test says.

Every event that comes is checked on its way: ``seq`` without a gap, but for one that a ``log_reset`` explains.
"""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import httpx

from tests.doubles.nodes import Node

WITHIN_S = 30.0
ENDS = ("run_completed", "run_failed", "run_cancelled")
OBJECT: dict[str, Any] = {"type": "object"}

Event = dict[str, Any]
Handler = Callable[[str, dict[str, Any]], Any]


def agent_id(name: str) -> str:
    """The id of an agent that was given none (contract, Configuration)."""
    return str(uuid5(uuid5(NAMESPACE_URL, "urn:toolrelay:agent"), name))


def script(*steps: Mapping[str, Any]) -> str:
    """An input that an agent's scripted model plays."""
    return json.dumps({"steps": steps}, ensure_ascii=False)


def calls(name: str, *arguments: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A step that calls one tool, once for each of the arguments."""
    return {"calls": [{"name": name, "arguments": given} for given in arguments or ({},)], **more}


def tool(name: str, parameters: Mapping[str, Any] = OBJECT, **more: Any) -> dict[str, Any]:
    """A tool as it is registered."""
    return {"name": name, "description": f"The tool {name}.", "parameters": dict(parameters), **more}


class Stream:
    """The events of a session as they come in. ``position`` is that of the last one."""

    def __init__(self, after: int) -> None:
        self.events: list[Event] = []
        self.position = after
        self.status = 0
        self.headers: httpx.Headers | None = None
        self.open = asyncio.Event()
        self.ended = asyncio.Event()
        self._came = asyncio.Event()

    async def read(self, http: httpx.AsyncClient, path: str, headers: Mapping[str, str]) -> None:
        try:
            async with http.stream("GET", path, headers=headers, timeout=httpx.Timeout(30, read=60)) as response:
                self.status, self.headers = response.status_code, response.headers
                rest = b""
                async for piece in response.aiter_bytes():  # lines end at LF alone: U+2028 is text
                    self.open.set()
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        if line.startswith(b"data:"):
                            self.take(json.loads(line[5:]))
        except httpx.TransportError:
            pass
        finally:
            self.open.set()
            self.ended.set()
            self._wake()

    def take(self, event: Event) -> None:
        reset = event.get("kind") == "log_reset" and event["seq"] > self.position
        assert reset or event["seq"] == self.position + 1, f"{event['seq']} came after {self.position}"
        self.position = event["seq"]
        self.events.append(event)
        self._wake()

    def _wake(self) -> None:
        came, self._came = self._came, asyncio.Event()
        came.set()

    async def first(self, match: Callable[[Event], bool], within: float = WITHIN_S, *, since: int = 0) -> Event:
        """The first event after ``since`` that matches."""
        read = 0
        try:
            async with asyncio.timeout(within):
                while True:
                    came = self._came
                    for event in self.events[read:]:
                        read += 1
                        if event["seq"] > since and match(event):
                            return event
                    assert not self.ended.is_set(), f"the stream has ended ({self.status}): {self.tail()}"
                    await came.wait()
        except TimeoutError:
            raise AssertionError(f"not within {within} s; the last events: {self.tail()}") from None

    def tail(self) -> str:
        """The last events, for a person."""
        return "\n".join(json.dumps(event)[:300] for event in self.events[-12:])


class Conversation:
    """One session at one node."""

    def __init__(self, http: httpx.AsyncClient, session_id: str, token: str, stream: Stream) -> None:
        self.http = http
        self.id = session_id
        self.token = token
        self.stream = stream

    @property
    def path(self) -> str:
        return f"/v1/sessions/{self.id}"

    @property
    def events(self) -> list[Event]:
        return self.stream.events

    def of(self, *types: str, **fields: Any) -> list[Event]:
        """The events so far of these types with these fields."""
        return [event for event in self.events if _fits(event, types, fields)]

    async def event(self, *types: str, within: float = WITHIN_S, since: int = 0, **fields: Any) -> Event:
        """The first event of one of these types with these fields."""
        return await self.stream.first(lambda event: _fits(event, types, fields), within, since=since)

    async def logged(self) -> list[str]:
        """The types of the events in the log (200 at most), whatever of them the stream has brought by now."""
        return [event["type"] for event in (await self.done("GET", "/events?limit=200"))["items"]]

    async def ask(self, method: str, path: str = "", body: Any = None, **headers: str) -> httpx.Response:
        """One request below the session."""
        return await self.http.request(method, f"{self.path}{path}", json=body, headers=headers)

    async def done(self, method: str, path: str = "", body: Any = None, **headers: str) -> Any:
        """One request that must succeed; its body."""
        answer = await self.ask(method, path, body, **headers)
        assert answer.is_success, f"{answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def say(self, *steps: Mapping[str, Any] | str) -> str:
        """An input: a text, or the steps of a script. Its run."""
        text = steps[0] if isinstance(steps[0], str) else script(*steps)  # type: ignore[arg-type]
        said = await self.done("POST", "/events", {"type": "input", "text": text})
        assert said["outcome"] == "new_run"
        return said["run_id"]

    async def end(self, run_id: str, within: float = WITHIN_S, since: int = 0) -> Event:
        """How a run ended."""
        return await self.event(*ENDS, run_id=run_id, within=within, since=since)

    async def run(self, *steps: Mapping[str, Any] | str, within: float = WITHIN_S) -> str:
        """One run that must complete: the last thing that it said."""
        run_id = await self.say(*steps)
        end = await self.end(run_id, within)
        assert end["type"] == "run_completed", end
        return self.said(before=end["seq"])

    def said(self, before: int = 1 << 60) -> str:
        """The last text of the assistant before an event."""
        texts = [
            block["data"]["text"]
            for event in self.events
            if event["type"] == "message_assistant" and event["seq"] < before
            for block in event["message"]["content"]
            if block["type"] == "text"
        ]
        return texts[-1]

    async def register(self, name: str, *tools: Mapping[str, Any], ttl: int | None = None, **more: Any) -> "Client":
        """A client that answers what ``Client.serve`` is told."""
        lifetime = {"type": "never"} if ttl is None else {"type": "ttl", "data": {"seconds": ttl}}
        body = {"name": name, "lifetime": lifetime, "tools": list(tools), **more}
        return Client(self, await self.done("POST", "/clients", body))


def _fits(event: Event, types: Iterable[str], fields: Mapping[str, Any]) -> bool:
    return event["type"] in types and all(event.get(name) == value for name, value in fields.items())


class Client:
    """A registration. Each dispatch that it sees is kept; nothing is answered by itself but by ``serve``."""

    def __init__(self, talk: Conversation, registered: Mapping[str, Any]) -> None:
        self.talk = talk
        self.id: str = registered["id"]
        self.name: str = registered["name"]

    async def dispatched(self, number: int = 1, within: float = WITHIN_S) -> list[Event]:
        """The first so many calls."""

        seen = 0

        def enough(event: Event) -> bool:
            nonlocal seen
            seen += _fits(event, ("client_tool_dispatched",), {"client_id": self.id})
            return seen >= number

        await self.talk.stream.first(enough, within)
        return self.talk.of("client_tool_dispatched", client_id=self.id)

    async def post(self, call: Event, what: str, body: Any = None) -> httpx.Response:
        """``ack`` or ``result`` for a call."""
        return await self.talk.ask("POST", f"/clients/{self.id}/calls/{call['call_id']}/{what}", body)

    async def answer(self, call: Event, text: str, **more: Any) -> None:
        """A result that must be taken."""
        answer = await self.post(call, "result", {"text": text, **more})
        assert answer.status_code == 204, answer.text

    async def offer(self, *tools: Mapping[str, Any]) -> Event:
        """Replaces the list."""
        return await self.talk.done("PUT", f"/clients/{self.id}/tools", {"tools": list(tools)})

    async def leave(self) -> None:
        await self.talk.done("DELETE", f"/clients/{self.id}")

    @asynccontextmanager
    async def pings(self, every: float) -> AsyncGenerator[None]:
        """Keeps the registration alive as clients do; each ping must be taken in the end."""

        async def work() -> None:
            while True:
                await asyncio.sleep(every)
                await self.talk.done("POST", f"/clients/{self.id}/ping")

        async with _while_open(work()):
            yield

    @asynccontextmanager
    async def serve(self, handler: Handler) -> AsyncGenerator[None]:
        """Answers every call from now on with what ``handler(tool, arguments)`` gives (may be awaited)."""
        at = len(self.talk.of("client_tool_dispatched", client_id=self.id))

        async def work() -> None:
            done = at
            while True:
                call = (await self.dispatched(done + 1, within=3600))[done]
                done += 1
                value = handler(call["tool"], call["arguments"])
                await self.answer(call, await value if isinstance(value, Awaitable) else value)

        async with _while_open(work()):
            yield


@asynccontextmanager
async def _while_open(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Work that goes on until the block ends; what it raised is raised then."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def follow(
    http: httpx.AsyncClient, session_id: str, token: str = "", after: int = 0
) -> AsyncGenerator[Conversation]:
    """A session that exists, followed from a position on."""
    stream = Stream(after)
    talk = Conversation(http, session_id, token, stream)
    path = f"{talk.path}/events/stream?after_seq={after}"
    reading = asyncio.create_task(stream.read(http, path, {}))
    try:
        async with asyncio.timeout(WITHIN_S):
            await stream.open.wait()
        assert stream.status == 200
        yield talk
    finally:
        if not reading.done():
            reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading


@asynccontextmanager
async def conversation(node: Node, agent: str = "demo") -> AsyncGenerator[Conversation]:
    """A new session at a node, followed from its first event."""
    async with node.http() as http:
        answer = await http.post(
            "/v1/sessions", json={"agent_id": agent_id(agent)}, headers={"Idempotency-Key": str(uuid.uuid4())}
        )
        assert answer.status_code == 201, answer.text
        made = answer.json()
        async with follow(http, made["id"], made["session_token"]) as talk:
            yield talk
