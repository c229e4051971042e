"""A whole node inside the test: the gateway on an embedded server, agents whose children are real processes, clients.

``remains`` is what must be as before when a session is over: processes, tasks, descriptors, calls.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from adapters.stdio.reaper_process import session_members
from adapters.stdio.session import AgentSession
from gateway.app import Gateway
from gateway.bus.sessions import NO_KEY
from gateway.config.secret import Secret
from gateway.config.settings import Agent, Limits, Redis, Server, Settings
from gateway.model.errors import Refusal
from gateway.model.redaction import Redactor
from gateway.model.registration import ToolSpec
from gateway.services.feeds import Reader
from gateway.services.offers import Offer
from gateway.services.pushes import Delta

DEMO = Path(__file__).parents[2] / "examples" / "demo_agent"
WAIT_S = 60.0
ENDS = ("run_completed", "run_cancelled", "run_failed")
Event = dict[str, Any]


def demo_agent(folder: Path, name: str = "demo", faults: Mapping[str, Any] | None = None, **more: Any) -> Agent:
    """The demo agent as an agent of the node; ``faults`` are those of its whole life."""
    env = {"MC_HOME": Secret(str(folder / "homes" / name))}
    if faults is not None:
        env["DEMO_AGENT_FAULTS"] = Secret(json.dumps(faults))
    command = (sys.executable, str(DEMO), "serve", "--stdio")
    return Agent(name=name, command=command, cwd=str(folder / "cwd" / "{session_id}"), env=env, **more)


def tool(name: str = "x", schema: Event | None = None, **more: Any) -> ToolSpec:
    """A client's tool."""
    parameters = json.dumps(schema or {"type": "object"}).encode()
    return ToolSpec(name=name, description="A tool.", parameters=parameters, **more)


def steps(*given: Event) -> str:
    """A prompt that the child plays."""
    return json.dumps({"steps": given})


def call(name: str = "client__web__x", arguments: Event | None = None, **more: Any) -> Event:
    """A step that calls one tool."""
    return {"calls": [{"name": name, "arguments": arguments or {}}], **more}


SAY: Event = {"text": "It said: {{results}}"}


@dataclass(frozen=True)
class Remains:
    """What this process holds."""

    tasks: int
    descriptors: int
    children: frozenset[int]
    calls: int
    registered: int


class Talk:
    """One session, its log as it comes, and what is done to it."""

    def __init__(self, world: "World", session_id: str, reader: Reader) -> None:
        self.world = world
        self.id = session_id
        self.events: list[Event] = []
        self.deltas: list[Event] = []
        self._reader = reader

    async def register(self, *tools: ToolSpec, name: str = "web") -> str:
        """A client: its id."""
        client_id = str(uuid4())
        await self.world.gateway.offers.register(self.id, client_id, Offer(name, 0, tools or (tool(),)))
        return client_id

    async def say(self, *given: Event | str) -> str:
        """An input: its run's id."""
        text = given[0] if len(given) == 1 and isinstance(given[0], str) else steps(*given)  # pyright: ignore[reportArgumentType]
        return await self.world.gateway.conversations.submit(self.id, str(text), NO_KEY)

    async def find(self, accept: Callable[[Event], bool], within: float = WAIT_S) -> Event:
        """The first event of the whole log that is accepted."""
        at = 0
        async with asyncio.timeout(within):
            while True:
                while at < len(self.events):
                    if accept(self.events[at]):
                        return self.events[at]
                    at += 1
                await self._pull()

    async def _pull(self) -> None:
        found = await self._reader.next()
        if isinstance(found, list):
            self.events += [json.loads(entry.event) for entry in found]
        elif isinstance(found, Delta):
            self.deltas.append(json.loads(found.body))

    async def event(self, kind: str, within: float = WAIT_S, **fields: Any) -> Event:
        """The first event of a kind with these fields."""

        def fits(event: Event) -> bool:
            return event["type"] == kind and all(event.get(name) == value for name, value in fields.items())

        return await self.find(fits, within)

    async def end(self, run_id: str, within: float = WAIT_S) -> Event:
        """How a run ended."""
        return await self.find(lambda event: event["type"] in ENDS and event["run_id"] == run_id, within)

    async def run(self, *given: Event | str) -> str:
        """A whole run that completes: the last thing said."""
        ended = await self.end(await self.say(*given))
        assert ended["type"] == "run_completed", ended
        return self.said()

    def said(self) -> str:
        """The last message of the agent with text."""
        texts = [
            block["data"]["text"]
            for event in self.of("message_assistant")
            for block in event["message"]["content"]
            if block["type"] == "text"
        ]
        return texts[-1]

    def of(self, *kinds: str, **fields: Any) -> list[Event]:
        """What has been read of these kinds."""
        return [
            event
            for event in self.events
            if event["type"] in kinds and all(event.get(name) == value for name, value in fields.items())
        ]

    async def dispatched(self, count: int = 1) -> list[Event]:
        """The first ``count`` dispatched calls of the whole log."""
        async with asyncio.timeout(WAIT_S):
            while len(found := self.of("client_tool_dispatched")) < count:
                await self._pull()
        return found[:count]

    async def answer(
        self, dispatched: Event, text: str = "done", *, error: bool = False, structured: Any = None
    ) -> None:
        """A client's answer."""
        encoded = None if structured is None else json.dumps(structured, separators=(",", ":")).encode()
        await self.world.gateway.answers.answer(
            self.id, dispatched["client_id"], dispatched["call_id"], text=text, is_error=error, structured=encoded
        )

    async def cancel(self) -> str | None:
        """Ends the active run."""
        return await self.world.gateway.conversations.cancel(self.id, NO_KEY)

    async def open_calls(self) -> int:
        """Calls that stand open on the bus."""
        return len(await self.world.gateway.calls.open(self.id))

    @property
    def runner(self) -> AgentSession:
        """Whoever runs it on this node."""
        runner = self.world.gateway.owners._runners[self.id]
        assert isinstance(runner, AgentSession)
        return runner

    @property
    def child(self) -> Any:
        """The child in service."""
        current = self.runner._lineage.current
        assert current is not None
        return current.child

    async def close(self) -> None:
        """Ends its runner and its reader; the session stays on the bus."""
        self._reader.close()
        runner = self.world.gateway.owners._runners.pop(self.id, None)
        if runner is not None:
            await runner.close()


class World:
    """One node and its sessions."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._talks: list[Talk] = []

    async def talk(self, agent: str = "demo") -> Talk:
        """A new session."""
        session_id = str(uuid4())
        agent_id = next(a.id for a in self.gateway.settings.agents if a.name == agent)
        await self.gateway.conversations.create(
            session_id,
            agent_id=agent_id,
            agent_version="1",
            display_name="",
            label="test",
            token_hash="0" * 64,
            token_ttl_ms=600_000,
            idempotency=NO_KEY,
        )
        return await self.look(session_id)

    async def look(self, session_id: str) -> Talk:
        """A session that is there already."""
        reader = await self.gateway.feeds.open(session_id, 0, deltas=True)
        made = Talk(self, session_id, reader)
        self._talks.append(made)
        return made

    async def remains(self) -> Remains:
        """What is held now."""
        children = {
            int(entry)
            for entry in os.listdir("/proc")
            if entry.isdigit() and _parent(int(entry)) == os.getpid() and int(entry) != self.gateway._reaper.pid
        }
        calls = 0
        for talk in self._talks:
            calls += await talk.open_calls()
        return Remains(
            len(asyncio.all_tasks()),
            len(os.listdir("/proc/self/fd")),
            frozenset(children),
            calls,
            len(self.gateway._reaper.sessions),
        )

    async def settles(self, before: Remains, within: float = 30.0) -> None:
        """Everything is as before, within a bound; says what is not."""
        end = asyncio.get_running_loop().time() + within
        while (now := await self.remains()) != before:
            assert asyncio.get_running_loop().time() < end, f"left: {now}, before: {before}, {_names()}"
            await asyncio.sleep(0.05)

    async def close_all(self) -> None:
        """Ends every session's runner."""
        await asyncio.gather(*(talk.close() for talk in self._talks))


def _names() -> list[str]:
    return sorted(task.get_name() for task in asyncio.all_tasks())


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def processes_of(pid: int) -> list[int]:
    """The living processes of a child's session."""
    return session_members(pid)


@asynccontextmanager
async def agent_world(url: str, agents: Sequence[Agent], *, prefix: str = "", **limits: Any) -> AsyncGenerator[World]:
    """A node with these agents on the server at ``url``, under a prefix of its own unless one is given."""
    settings = Settings(
        server=Server(),
        redis=Redis(prefix=prefix or f"t{uuid4().hex[:8]}"),
        limits=Limits(**limits),
        agents=tuple(agents),
    )
    gateway = Gateway(settings, node_name="node-a", redis_url=url, redactor=Redactor(()))
    await gateway.start(timeout=10)
    made = World(gateway)
    try:
        yield made
    finally:
        for talk in made._talks:
            talk._reader.close()
        await gateway.close()


@asynccontextmanager
async def settling_world(url: str, agents: Sequence[Agent], **limits: Any) -> AsyncGenerator[World]:
    """The same, and when the block is left every session is ended and nothing of it may be left: no process, task,
    descriptor, call or registration with the reaper. The first agent, a sound one, lives once before the count."""
    async with agent_world(url, agents, **limits) as made:
        warm = await made.talk(agents[0].name)  # what lives as long as a node: the reaper, threads, readers
        await warm.run("echo warm")
        await warm.close()
        before = await made.remains()
        yield made
        await made.close_all()
        await made.settles(before)


async def eventually(condition: Callable[[], object], within: float = WAIT_S) -> None:
    """Waits for something that nobody tells."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def answering(talk: Talk, answer: Callable[[Event], str]) -> AsyncGenerator[None]:
    """A client that answers every call of the session, each once, while the block runs."""
    reader = await talk.world.gateway.feeds.open(talk.id, None)

    async def serve() -> None:
        while True:
            found = await reader.next()
            for entry in found if isinstance(found, list) else []:
                event = json.loads(entry.event)
                if event["type"] == "client_tool_dispatched":
                    with suppress(Refusal):  # its run may be over
                        await talk.answer(event, answer(event))

    serving = asyncio.create_task(serve())
    try:
        yield
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        reader.close()
