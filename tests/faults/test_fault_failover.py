"""Servers of a Sentinel deployment and of a Cluster die under load (redis.md, "Things that happen to a bus").

A failover may lose acknowledged writes. So each call that a client was told of has one end at most; one end exactly
where the log kept its dispatch; whoever reads is told of a loss; nothing hangs; and nobody restarts a node.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.doubles.nodes import Node, demo_agent
from tests.doubles.nodes_session import ENDS, Conversation, agent_id, calls, conversation, script, tool
from tests.doubles.valkey_servers import ClusterSet, SentinelSet
from tests.faults.conftest import Fleet, assert_lifetimes
from tests.faults.test_fault_redis import ready_again

SAY = {"text": "It said: {{results}}"}
SESSIONS = 6
SETTLED_S = 30.0
BACK_S = 60.0  # until each session has completed a run that began after the death


class Load:
    """Sessions that call a tool again and again, with one client each that reads the stream from wherever it can.

    Events are kept by their seq; what the log says after a loss (``log_reset``) is above all that went before.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self.stop = asyncio.Event()
        self.sessions = [
            Loaded(nodes[number % len(nodes)], nodes[(number + 1) % len(nodes)]) for number in range(SESSIONS)
        ]

    async def run(self, one: "Loaded") -> None:
        await one.make()
        reading = asyncio.create_task(one.read())
        answering = asyncio.create_task(one.answer())
        try:
            while not self.stop.is_set():
                await one.turn()
            await one.settled()
        finally:
            for task in (reading, answering):
                task.cancel()
            await asyncio.gather(reading, answering, return_exceptions=True)


class Loaded:
    """One session under load."""

    def __init__(self, edge: Node, owner: Node) -> None:
        self.edge, self.owner = edge, owner
        self.id = ""
        self.client = ""
        self.position = 0
        self.events: list[dict[str, Any]] = []
        self.todo: asyncio.Queue[str] = asyncio.Queue()
        self.came = asyncio.Condition()
        self.completed = 0

    async def ask(self, node: Node, method: str, path: str, body: Any = None, key: str = "") -> httpx.Response:
        """One request, tried again as clients do: under its key."""
        end = time.monotonic() + SETTLED_S
        headers = {"Idempotency-Key": key} if key else {}
        async with node.http(**headers) as http:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    answer = await http.request(method, path, json=body)
                    if answer.status_code < 500:
                        return answer
                assert time.monotonic() < end, f"{method} {path} hangs"
                await asyncio.sleep(0.2)

    async def make(self) -> None:
        made = await self.ask(self.edge, "POST", "/v1/sessions", {"agent_id": agent_id("demo")})
        self.id = made.json()["id"]
        body = {"name": "web", "lifetime": {"type": "never"}, "tools": [tool("act")]}
        registered = await self.ask(self.edge, "POST", f"/v1/sessions/{self.id}/clients", body)
        self.client = registered.json()["id"]

    async def read(self) -> None:
        while True:
            with contextlib.suppress(httpx.TransportError):
                async with self.edge.http() as http:
                    path = f"/v1/sessions/{self.id}/events/stream?after_seq={self.position}"
                    async with http.stream("GET", path, timeout=httpx.Timeout(5, read=30)) as response:
                        async for line in response.aiter_lines():
                            if line.startswith("data:"):
                                await self.take(httpx.Response(200, content=line[5:]).json())
            await asyncio.sleep(0.1)

    async def take(self, event: dict[str, Any]) -> None:
        if event["type"] == "client_tool_dispatched":
            self.todo.put_nowait(event["call_id"])
        async with self.came:
            self.position = event["seq"]
            self.events.append(event)
            self.came.notify_all()

    async def answer(self) -> None:
        while True:
            call_id = await self.todo.get()
            path = f"/v1/sessions/{self.id}/clients/{self.client}/calls/{call_id}/result"
            answer = await self.ask(self.edge, "POST", path, {"text": "done"})
            assert answer.status_code in (204, 404, 409), answer.text

    async def turn(self) -> None:
        step = calls("client__web__act", {})
        body = {"type": "input", "text": script(step, SAY)}
        known = len(self.events)
        answer = await self.ask(
            self.owner, "POST", f"/v1/sessions/{self.id}/events", body, key=f"k{time.monotonic_ns()}"
        )
        assert answer.status_code == 200, answer.text
        end = await self.end(answer.json()["run_id"], known)
        self.completed += end["type"] == "run_completed"

    async def end(self, run_id: str, known: int) -> dict[str, Any]:
        """Its end, or the news that what was acknowledged is lost: the first of them after the ``known`` events."""
        try:
            async with asyncio.timeout(SETTLED_S), self.came:
                while True:
                    for event in self.events[known:]:
                        if (event["type"] in ENDS and event["run_id"] == run_id) or event.get("kind") == "log_reset":
                            return event
                    known = len(self.events)
                    await self.came.wait()
        except TimeoutError:
            said = f"{(await self.log())[-6:]} {self.owner.everything()[-3000:]}"
            raise AssertionError(f"{run_id} hangs: {said}") from None

    async def settled(self) -> None:
        """Nothing is open any more, on the bus."""
        async with asyncio.timeout(SETTLED_S):
            while True:
                found = (await self.ask(self.edge, "GET", f"/v1/sessions/{self.id}")).json()
                if found.get("status") != "active" and not await self.open_calls():
                    return
                await asyncio.sleep(0.2)

    async def open_calls(self) -> list[str]:
        log = await self.log()
        told = {e["call_id"] for e in log if e["type"] == "client_tool_dispatched"}
        ended = {e["call_id"] for e in log if e["type"] == "tool_result"}
        return sorted(told - ended)

    async def log(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        while True:
            after = events[-1]["seq"] if events else 0
            path = f"/v1/sessions/{self.id}/events?order=asc&limit=200&after_seq={after}"
            page = (await self.ask(self.edge, "GET", path)).json()
            if not page["items"]:
                return events
            events += page["items"]

    async def judge(self) -> bool:
        """One end of each call. Returns whether readers were told of a loss."""
        log = await self.log()
        seqs = [event["seq"] for event in log]
        assert seqs == sorted(set(seqs)), "no number twice"
        for event in log:
            if event["type"] == "client_tool_dispatched":
                ends = [e for e in log if e["type"] == "tool_result" and e["call_id"] == event["call_id"]]
                assert len(ends) == 1, event
        for event in self.events:
            if event["type"] == "tool_result":
                same = [e for e in self.events if e["type"] == "tool_result" and e["call_id"] == event["call_id"]]
                assert len(same) == 1, "nobody hears two ends of one call"
        lost = [event for event in log if event.get("kind") == "log_reset"]
        gaps = [a for a, b in pairwise(seqs) if b != a + 1]
        assert len(gaps) <= len(lost), "a gap without the word for it"
        return bool(lost)


@asynccontextmanager
async def _load(nodes: list[Node]) -> AsyncGenerator[Load]:
    """Load before, during and after what the block does, until each session is known to work again."""
    load = Load(nodes)
    async with asyncio.TaskGroup() as group:
        for one in load.sessions:
            group.create_task(load.run(one))
        await _each_completes(load, 1)
        yield load
        # The first one may have begun before.
        await _each_completes(load, 2)
        load.stop.set()


async def _each_completes(load: Load, more: int) -> None:
    """Each session completes so many runs more."""
    wanted = {one: one.completed + more for one in load.sessions}
    try:
        async with asyncio.timeout(BACK_S):
            while any(one.completed < count for one, count in wanted.items()):
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"completed: {[(one.completed, count) for one, count in wanted.items()]}") from None


async def _pair(fleet: Fleet, url: str) -> list[Node]:
    one = {"agents": [demo_agent(fleet.folder)]}
    return await fleet.nodes(url, a=one, b=one)


async def _check(nodes: list[Node], load: Load) -> None:
    for node in nodes:
        await ready_again(node)
    for one in load.sessions:
        await one.judge()
    for node in nodes:
        async with conversation(node) as talk:
            await _round(talk)
        assert "Traceback" not in node.everything()


async def _round(talk: Conversation) -> None:
    client = await talk.register("web", tool("act"))
    async with client.serve(lambda *_: "done"):
        assert "done" in await talk.run(calls("client__web__act"), SAY)


async def test_a_sentinel_failover_under_load(fleet: Fleet):
    async with SentinelSet() as servers:
        nodes = await _pair(fleet, servers.url)
        async with _load(nodes) as load:
            await servers.primary.stop()
        await _check(nodes, load)
        await assert_lifetimes(servers.url)


async def test_a_cluster_works_and_survives_the_death_of_a_node_under_load(fleet: Fleet):
    async with ClusterSet(replicas=1) as servers:
        nodes = await _pair(fleet, servers.url)
        async with _load(nodes) as load:
            await servers.nodes[0].stop()
        await _check(nodes, load)
        async with nodes[1].http() as http:
            for one in load.sessions:
                assert (await http.delete(f"/v1/sessions/{one.id}")).status_code == 204
                assert (await http.get(f"/v1/sessions/{one.id}")).status_code == 404


@pytest.mark.nightly
async def test_cluster_sessions_in_every_partition(fleet: Fleet):
    """A call in each of so many sessions that all masters and most partitions have some."""
    async with ClusterSet() as servers:
        nodes = await _pair(fleet, servers.url)
        for _ in range(24):
            async with conversation(nodes[0]) as talk:
                await _round(talk)
        await assert_lifetimes(servers.url)
