"""Redis stands still, refuses, forgets: calls outlive what ends, the rest is said, and a node comes back by itself."""

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.doubles.nodes import Node, demo_agent
from tests.doubles.nodes_session import calls, conversation, follow, tool
from tests.doubles.socket_world import Client
from tests.doubles.valkey_servers import Server, ask
from tests.faults.conftest import Fleet, assert_lifetimes
from tests.faults.test_fault_edge import socket_at

SAY = {"text": "It said: {{results}}"}
STOPPED_S = 10.0
OPEN_CALLS = 16
BACK_S = 10.0
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def ready_again(node: Node, within: float = BACK_S) -> None:
    """Until ``/readyz`` says 200."""
    async with asyncio.timeout(within), node.http() as http:
        while (await http.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.1)


async def test_sigstop_of_redis_for_10_s_under_16_open_calls(redis: Server, fleet: Fleet):
    """Half of the clients are sockets, half are HTTP clients whose lifetime is shorter than the outage."""
    node = await fleet.node("a", redis.url, agents=[demo_agent(fleet.folder)])
    async with conversation(node) as talk, socket_at(node.url.removeprefix("http://")) as tab:
        await tab.ok("attach", session_id=talk.id, token=talk.token)
        lifetime = {"type": "ttl", "data": {"seconds": 8}}
        held = await tab.ok("register", session_id=talk.id, name="tab", lifetime=lifetime, tools=[tool("act")])
        page = await talk.register("page", tool("look"), ttl=8)
        half = [{}] * (OPEN_CALLS // 2)
        run_id = await talk.say(
            {**calls("client__tab__act", *half), "parallel": True,
             "calls": calls("client__tab__act", *half)["calls"] + calls("client__page__look", *half)["calls"]},
            SAY,
        )  # fmt: skip
        acts = [await _act(tab) for _ in half]
        looks = await page.dispatched(len(half))
        (child,) = node.children()

        redis.signal(signal.SIGSTOP)
        began, used = time.monotonic(), cpu_s(node.pid)
        try:
            waiting = [
                asyncio.create_task(page.answer(call, f"look {number}")) for number, call in enumerate(looks[:4])
            ]
            await asyncio.sleep(STOPPED_S / 2)
            async with node.http() as http:
                assert (await http.get("/readyz")).status_code == 503
                assert (await http.get("/healthz")).status_code == 200
            await asyncio.sleep(STOPPED_S - (time.monotonic() - began))
            assert cpu_s(node.pid) - used < 0.1 * STOPPED_S, "it waits and does not spin"
        finally:
            redis.signal(signal.SIGCONT)
        await asyncio.gather(*waiting)  # none was refused: an outage that ends soon costs a client nothing
        for number, call in enumerate(looks[4:], 4):
            await page.answer(call, f"look {number}")
        for number, call_id in enumerate(acts):
            await tab.ok("result", client_id=held["client_id"], call_id=call_id, text=f"act {number}")
        assert (await talk.end(run_id))["type"] == "run_completed"
        said = json.loads(talk.said().removeprefix("It said: "))
        assert len(said) == OPEN_CALLS
        assert node.children() == [child], "no child died"
        assert not talk.of("client_left", "client_tool_failed"), "no registration lapsed"
        await ready_again(node)
    await assert_lifetimes(redis.url)


async def _act(tab: Client) -> str:
    return (await tab.event("client_tool_dispatched"))["call_id"]


@asynccontextmanager
async def _full(redis: Server) -> AsyncGenerator[None]:
    await ask(redis.port, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    await ask(redis.port, "CONFIG", "SET", "maxmemory", "1")
    yield
    await ask(redis.port, "CONFIG", "SET", "maxmemory", "0")


@asynccontextmanager
async def _read_only(redis: Server) -> AsyncGenerator[None]:
    port = redis.port
    await ask(port, "CONFIG", "SET", "min-replicas-to-write", "0")
    await ask(port, "CONFIG", "SET", "replica-read-only", "yes")
    # A primary that is nowhere: the replica goes on with the data that it has.
    await ask(port, "REPLICAOF", "127.0.0.1", "1")
    yield
    await ask(port, "REPLICAOF", "NO", "ONE")


@asynccontextmanager
async def _unknown(redis: Server) -> AsyncGenerator[None]:
    """The password has changed: who was connected is thrown out."""
    port = redis.port
    await ask(port, "ACL", "SETUSER", "admin", "on", "nopass", "~*", "&*", "+@all")
    await ask(port, "CONFIG", "SET", "requirepass", "another-one")
    await _as_admin(port, "CLIENT", "KILL", "TYPE", "normal")
    yield
    await _as_admin(port, "CONFIG", "SET", "requirepass", "")


async def _as_admin(port: int, *command: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for line in (("AUTH", "admin", "x"), command):
        writer.write(b"*%d\r\n" % len(line) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in line))
        assert (await asyncio.wait_for(reader.readline(), 5))[:1] in b"+:"
    writer.close()


@asynccontextmanager
async def _loading(redis: Server) -> AsyncGenerator[None]:
    """It starts anew with all that it had, and reads that for as long as the block lasts (half a minute at most)."""
    fill = "for i = 1, 1000 do redis.call('SET', 'filler', i, 'EX', 3600) end"
    for _ in range(LOADED // 1000):
        await ask(redis.port, "EVAL", fill, 0)
    await redis.stop()
    await redis.start()
    yield
    await ask(redis.port, "CONFIG", "SET", "key-load-delay", "0")


LOADED = 120_000
LOADS = ("--appendonly", "yes", "--key-load-delay", "250")  # microseconds for each entry; it answers every 1024 of them
Fault = Callable[[Server], contextlib.AbstractAsyncContextManager[None]]


@pytest.mark.parametrize(
    ("redis", "fault", "kind"),
    [pytest.param((), _full, "oom", id="oom"), pytest.param((), _read_only, "readonly", id="readonly"),
     pytest.param((), _unknown, "noauth", id="noauth"), pytest.param(LOADS, _loading, "loading", id="loading")],
    indirect=["redis"],
)  # fmt: skip
async def test_what_redis_refuses_is_said_and_ends_by_itself(redis: Server, fleet: Fleet, fault: Fault, kind: str):
    node = await fleet.node("a", redis.url, agents=[demo_agent(fleet.folder)])
    async with conversation(node) as talk:
        await talk.run("echo before")
        children = node.children()
        async with fault(redis):
            async with asyncio.timeout(BACK_S), node.http() as http:
                while (answer := await http.get("/readyz")).status_code != 503 or f"({kind})" not in answer.text:
                    await asyncio.sleep(0.1)
            used, began = cpu_s(node.pid), time.monotonic()
            refused = asyncio.create_task(talk.ask("POST", "/events", {"type": "input", "text": "echo refused"}))
            await asyncio.sleep(3)
            assert (cpu_s(node.pid) - used) < 0.15 * (time.monotonic() - began), "no busy loop"
        # The request waits through an outage that ends; nothing is lost and nothing is done twice.
        assert (await asyncio.wait_for(refused, 25)).status_code in (200, 503)
        await ready_again(node)
        async with node.http() as http, follow(http, talk.id, after=talk.stream.position) as again:
            await again.run("echo after")
            counted = (await http.get("/metrics")).text
        assert re.search(rf'^toolrelay_bus_(errors|refusals)_total{{reason="{kind}"}} [1-9]', counted, re.MULTILINE)
        assert node.children() == children, "no child died"
    assert "Traceback" not in node.everything()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("redis", "fault"),
    [pytest.param((), _full, id="oom"), pytest.param(LOADS, _loading, id="loading")],
    indirect=["redis"],
)
async def test_an_outage_that_does_not_end_is_a_typed_answer(redis: Server, fleet: Fleet, fault: Fault):
    node = await fleet.node("a", redis.url, agents=[demo_agent(fleet.folder)])
    async with conversation(node) as talk:
        async with fault(redis):
            began = time.monotonic()
            answer = await asyncio.wait_for(talk.ask("POST", "/events", {"type": "input", "text": "echo"}), 30)
            assert answer.status_code == 503
            assert answer.json()["error"]["message"] == "the bus is not reachable"
            assert int(answer.headers["Retry-After"]) >= 1
            assert time.monotonic() - began < 25
        await ready_again(node)
        assert (await talk.ask("GET")).status_code == 200


async def test_a_server_that_has_forgotten_the_scripts(redis: Server, fleet: Fleet):
    node = await fleet.node("a", redis.url, agents=[demo_agent(fleet.folder)])
    async with conversation(node) as talk:
        client = await talk.register("web", tool("look"))
        async with client.serve(lambda *_: "seen"):
            for _ in range(5):
                await ask(redis.port, "SCRIPT", "FLUSH")
                assert "seen" in await talk.run(calls("client__web__look"), SAY)
    node.assert_clean()


async def test_a_server_that_comes_back_empty(redis: Server, fleet: Fleet):
    """Its sessions are gone; new ones are made at once, and what had run before ends (faults, 3)."""
    node = await fleet.node("a", redis.url, agents=[demo_agent(fleet.folder)])
    async with conversation(node) as talk:
        client = await talk.register("web", tool("look"))
        await talk.say(calls("client__web__look"), SAY)
        await client.dispatched()
        await redis.stop()
        await asyncio.sleep(0.5)
        await redis.start()
        await ready_again(node)
        gone: Awaitable[int] = _status(talk.ask("GET"))
        assert await gone == 404
    async with conversation(node) as fresh:
        assert await fresh.run("echo again") == "again"
    async with asyncio.timeout(25):
        while len(node.children()) > 1:
            await asyncio.sleep(0.1)


async def _status(asked: "Awaitable[object]") -> int:
    return (await asked).status_code  # type: ignore[attr-defined]
