"""What costs nothing: sessions and sockets that are idle, calls that wait (issue of scale: no command each, no CPU)."""

import asyncio
import contextlib
import os
import re
import time
from pathlib import Path

import pytest

from gateway.bus.nodes import NodeInfo, Nodes
from gateway.bus.sessions import Owner
from gateway.observe.tasks import Tasks
from tests.doubles.bus import Bus, bus
from tests.doubles.nodes import API_KEY, Node, demo_agent
from tests.doubles.nodes_session import agent_id
from tests.doubles.socket_world import Client
from tests.doubles.valkey_servers import Server
from tests.faults.conftest import PREFIX, Fleet
from tests.faults.test_fault_edge import socket_at

CALLS_OF_A_SESSION = 16
SOCKETS = 100
WATCHED_S = 6.0
IDLE_CPU = 0.02
OF_A_SESSION = re.compile(r"\{p[0-7][0-9a-f]\}:s:([0-9a-f-]{36})")  # docs/redis-keys.md
TICKS = os.sysconf("SC_CLK_TCK")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def _watch(redis: Server, node: Node) -> tuple[list[str], float]:
    """The commands that Redis executes meanwhile, those inside of scripts too, and the node's share of a core."""
    reader, writer = await asyncio.open_connection("127.0.0.1", redis.port)
    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    seen: list[str] = []
    began, used = time.monotonic(), _cpu_s(node.pid)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WATCHED_S):
            while line := await reader.readline():
                seen.append(line.decode())
    share = (_cpu_s(node.pid) - used) / (time.monotonic() - began)
    writer.close()
    return seen, share


async def _fill(other: Bus, incarnation: str, sessions: int, open_calls: int) -> set[str]:
    """Idle sessions, and more of them with open calls (which are returned), whose owner is a node that lives."""
    owner, busy = Owner("other", incarnation, 0), set[str]()
    for _ in range(sessions // 500):
        await asyncio.gather(*(other.session() for _ in range(500)))
    for number in range(-(-open_calls // CALLS_OF_A_SESSION)):
        session_id = await other.session()
        busy.add(session_id)
        await other.submit(session_id, owner)
        outbox = other.outbox(session_id)
        assert await other.start_run(outbox) is not None
        client_id = await other.client(session_id, ttl_s=3600)
        count = min(CALLS_OF_A_SESSION, open_calls - number * CALLS_OF_A_SESSION)
        calls = [other.dispatch(outbox, client_id, f"call-{n}", budget_s=300) for n in range(count)]
        await asyncio.gather(*calls)
    return busy


async def _attach(node: Node, stack: contextlib.AsyncExitStack) -> Client:
    async with node.http() as http:
        made = (await http.post("/v1/sessions", json={"agent_id": agent_id("demo")})).json()
    client = await stack.enter_async_context(socket_at(node.url.removeprefix("http://")))
    await client.ok("attach", session_id=made["id"], token=API_KEY)
    await client.ok("register", session_id=made["id"], name="web", lifetime={"type": "ttl", "data": {"seconds": 5}})
    return client


@pytest.mark.parametrize(
    ("sessions", "open_calls"),
    [(1_000, 100), pytest.param(10_000, 1_000, marks=pytest.mark.nightly)],
)
async def test_idle_sessions_idle_sockets_and_open_calls_cost_nothing(
    redis: Server, fleet: Fleet, sessions: int, open_calls: int
):
    node = await fleet.node("a", redis.url, agents=[demo_agent(fleet.folder)])
    async with bus(redis.url, PREFIX) as other, contextlib.AsyncExitStack() as stack:
        nodes, tasks = Nodes(other.store, "incarnation-o"), Tasks()

        async def live() -> None:
            while True:
                await nodes.renew(NodeInfo("other", ("agents",)))
                await asyncio.sleep(1)

        living = tasks.spawn("test.lease", live())
        busy = await _fill(other, "incarnation-o", sessions, open_calls)
        for _ in range(SOCKETS):
            await _attach(node, stack)
        await asyncio.sleep(2)
        seen, share = await _watch(redis, node)
        assert any("EVALSHA" in line for line in seen), "the leases are renewed meanwhile"
        idle = [line for line in seen for found in OF_A_SESSION.finditer(line) if found[1] not in busy]
        assert idle == [], "a session with a run is looked at now and then: does its owner live? No other one is"
        assert share < IDLE_CPU, f"{share:.2%} of a core"
        print(f"{len(seen) / WATCHED_S:.0f} commands a second, {share:.2%} of a core")
        living.cancel()
        await tasks.aclose()
