"""Redis' clock is set while calls are open: nothing is due early, nothing late (docs/design/0005-bus-clock.md)."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.bus.connection import Connection
from tests.doubles.faked_clocks import SteppedServer
from tests.doubles.nodes import Node, demo_agent
from tests.doubles.nodes_session import Conversation, calls, conversation, follow, tool
from tests.doubles.valkey_servers import connected, until
from tests.faults.conftest import PREFIX, Fleet, assert_lifetimes

DEADLINE_S = 5.0
TTL_S = 5
EARLY_S, LATE_S = 0.75, 1.5  # a deadline has a margin of half a second; a lapse is declared within one
SAY = {"text": "It said: {{results}}"}


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[SteppedServer]:
    """A server whose clock can be set."""
    server = SteppedServer(tmp_path)
    async with server:
        yield server


async def _server_says(connection: Connection) -> float:
    seconds, micros = await connection.call("TIME")  # type: ignore[misc]
    return int(seconds) + int(micros) / 1e6


class Clients:
    """Clients of one session that wait for something when the clock is set."""

    def __init__(self, talk: Conversation, there: Conversation) -> None:
        self.talk = talk
        self.there = there

    async def gather(self, number: int) -> None:
        """Two calls are open, one client is about to lapse, one pings."""
        self.web = await self.there.register(f"web{number}", tool("look", timeout_ms=int(DEADLINE_S * 1000)))
        self.steady = await self.there.register(f"steady{number}", ttl=TTL_S)
        name = f"client__{self.web.name}__look"
        self.run_id = await self.talk.say(calls(name, {}, {}, parallel=True), calls(name), SAY)
        self.open = await self.web.dispatched(2)
        self.began = time.monotonic()
        self.brief = await self.there.register(f"brief{number}", ttl=TTL_S)

    async def ping(self) -> None:
        """Keeps the steady one alive, and no other."""
        while True:
            await self.talk.done("POST", f"/clients/{self.steady.id}/ping")
            await asyncio.sleep(1)

    async def see_it_through(self) -> None:
        """What was open when the clock was set, and what begins behind it, ends in its time."""
        late, answered = self.open
        await self.web.answer(answered, "in time")  # at once, before any node can have looked at the clock
        failed, left = await asyncio.gather(
            _when(self.there, "client_tool_failed", call_id=late["call_id"]),
            _when(self.there, "client_left", client_id=self.brief.id),
        )
        assert DEADLINE_S - EARLY_S < failed - self.began < DEADLINE_S + LATE_S
        assert TTL_S - 0.1 < left - self.began < TTL_S + LATE_S
        third = (await self.web.dispatched(3))[2]
        assert DEADLINE_S - 1 < third["remaining_ms"] / 1000 <= DEADLINE_S
        await self.web.answer(third, "in time too")
        assert (await self.there.end(self.run_id))["type"] == "run_completed"
        assert not self.there.of("client_left", client_id=self.steady.id)


async def _when(there: Conversation, kind: str, **fields: Any) -> float:
    await there.event(kind, **fields)
    return time.monotonic()


@pytest.mark.parametrize("steps", [(600, -3600), (-600, 3600)], ids=str)
async def test_deadlines_and_lapses_when_the_clock_of_redis_is_set(
    redis: SteppedServer, fleet: Fleet, steps: tuple[int, ...]
):
    owner, edge = await fleet.nodes(
        redis.url,
        owner={"agents": [demo_agent(fleet.folder / "owner")]},
        edge={"roles": ["edge"], "agents": [demo_agent(fleet.folder / "edge")]},
    )
    nodes: list[Node] = [owner, edge]
    async with AsyncExitStack() as stack:
        clock = await connected(redis)
        stack.push_async_callback(clock.close)
        talk = await stack.enter_async_context(conversation(owner))
        there = await stack.enter_async_context(follow(await stack.enter_async_context(edge.http()), talk.id))
        for number, step in enumerate(steps):
            clients = Clients(talk, there)
            await clients.gather(number)
            pings = asyncio.create_task(clients.ping())
            before = await _server_says(clock)
            redis.step(step)
            # A server goes by the clock of its loop's turn, and that turn may have begun before.
            await until(lambda set_to=before + step: _is_about(clock, set_to), 2, "the clock is set")
            try:
                await clients.see_it_through()
            finally:
                pings.cancel()
            await until(lambda n=number: _agreed(clock, n + 1), 10, "the nodes agree on the step")
        # Who comes now learns the deployment's clock: what it stamps is for the others to check.
        young = await fleet.node("young", redis.url, agents=[demo_agent(fleet.folder / "young")])
        nodes.append(young)
        other = await stack.enter_async_context(conversation(young))
        theirs = await stack.enter_async_context(follow(edge_http := edge.http(), other.id))
        stack.push_async_callback(edge_http.aclose)
        clients = Clients(other, theirs)
        await clients.gather(9)
        clients.steady = await theirs.register("steady")
        await clients.see_it_through()
    for node in nodes:
        node.assert_clean()
        assert "changes hands" not in node.everything(), "an owner that lived was held for dead"
    await assert_lifetimes(redis.url)


async def _is_about(clock: Connection, seconds: float) -> bool:
    return abs(await _server_says(clock) - seconds) < 5


async def _agreed(clock: Connection, generation: int) -> bool:
    stored = await clock.call("GET", f"{PREFIX}:{{nodes}}:clock")
    return stored is not None and int(bytes(stored).split()[0]) == generation  # type: ignore[arg-type]
