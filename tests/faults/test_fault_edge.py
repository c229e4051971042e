"""The node that holds the client is killed or drained: the client goes on at the other one (bridge 7, 10)."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.doubles.nodes import API_KEY, Node, demo_agent
from tests.doubles.nodes_session import Conversation, calls, conversation, follow, tool
from tests.doubles.proxies import before, nginx
from tests.doubles.socket_world import Client
from tests.doubles.valkey_servers import Server, until
from tests.faults.conftest import Fleet, assert_lifetimes

SAY = {"text": "It said: {{results}}"}
HEADERS = {"Authorization": f"Bearer {API_KEY}"}
GAP_S = 5.0
SOCKETS = 100
CLIENTS_OF_A_SESSION = 15  # as many calls as one child may have open, less one


def _address(node: Node) -> str:
    return node.url.removeprefix("http://")


@asynccontextmanager
async def socket_at(address: str) -> AsyncGenerator[Client]:
    """A raw client, once somebody takes it."""
    end = time.monotonic() + GAP_S
    while True:
        try:
            connection = await connect(f"ws://{address}/v1/ws", subprotocols=["toolrelay.v1"], proxy=None)  # type: ignore[list-item]
            break
        except (OSError, InvalidHandshake):
            assert time.monotonic() < end, "no node takes the socket"
            await asyncio.sleep(0.05)
    async with connection:
        yield Client(connection)


async def _sockets_of(node: Node) -> int:
    async with node.http() as http:
        text = (await http.get("/metrics")).text
    return int(float(next(line.split()[1] for line in text.splitlines() if line.startswith("toolrelay_sockets "))))


async def _three(fleet: Fleet, redis: Server) -> list[Node]:
    owner = {"agents": [demo_agent(fleet.folder)]}
    edge = {"roles": ("edge",), "agents": owner["agents"]}
    return await fleet.nodes(redis.url, owner=owner, one=edge, two=edge)


async def test_sigkill_of_the_node_that_holds_the_browser(redis: Server, fleet: Fleet):
    """A WebSocket and an HTTP client behind the proxy lose their node under an open call each; both calls are answered
    through the other one."""
    owner, one, two = await _three(fleet, redis)
    async with before([_address(one), _address(two)]) as address, conversation(owner) as talk:
        http_client = await talk.register("page", tool("look"))
        async with socket_at(address) as first:
            await first.ok("attach", session_id=talk.id, token=talk.token)
            made = await first.ok(
                "register", session_id=talk.id, name="tab", lifetime={"type": "ttl", "data": {"seconds": 5}},
                tools=[tool("pick")],
            )  # fmt: skip
            holders = [node for node in (one, two) if await _sockets_of(node)]
            assert len(holders) == 1
            victim, other = holders[0], (two if holders[0] is one else one)

            async with httpx.AsyncClient(base_url=f"http://{address}", headers=HEADERS) as http:
                stream = await _stream_at(http, talk, victim)
                run_id = await talk.say(calls("client__tab__pick"), calls("client__page__look"), SAY)
                pick = (await first.event("client_tool_dispatched"))["call_id"]
                await asyncio.to_thread(victim.kill)
                killed = time.monotonic()
                with pytest.raises(ConnectionClosed):
                    while True:
                        await first.read_one()

                async with socket_at(address) as second:
                    await second.ok("attach", session_id=talk.id, token=talk.token)
                    resumed = await second.ok(
                        "resume", session_id=talk.id, client_id=made["client_id"], resume_key=made["resume_key"]
                    )
                    assert [call["call_id"] for call in resumed["calls"]] == [pick]
                    assert time.monotonic() - killed < GAP_S
                    assert await _sockets_of(other) == 1
                    await second.ok("result", client_id=made["client_id"], call_id=pick, text="picked")

                    if stream is not None:
                        await asyncio.wait_for(stream, 5)  # it was cut off with its node
                    async with follow(http, talk.id, after=talk.stream.position - 1) as again:
                        look = await again.event("client_tool_dispatched", tool="look")
                        path = f"{talk.path}/clients/{http_client.id}/calls/{look['call_id']}/result"
                        answer = await http.post(path, json={"text": "looked"})
                        assert answer.status_code == 204
                    assert (await talk.end(run_id))["type"] == "run_completed"
                    assert "picked" in talk.said()
                    assert "looked" in talk.said()
        for call in talk.of("client_tool_dispatched"):
            assert len(talk.of("tool_result", call_id=call["call_id"])) == 1
        assert not talk.of("client_left")
    await assert_lifetimes(redis.url)


async def _stream_at(http: httpx.AsyncClient, talk: Conversation, victim: Node) -> "asyncio.Task[None] | None":
    """A reader behind the proxy; it need not end on the victim, since the call has to reach it from anywhere."""
    opened = asyncio.Event()

    async def read() -> None:
        with contextlib.suppress(httpx.HTTPError):
            async with http.stream("GET", f"{talk.path}/events/stream", timeout=None) as response:
                async for _ in response.aiter_lines():
                    opened.set()

    task = asyncio.create_task(read())
    await asyncio.wait_for(opened.wait(), 5)
    async with victim.http() as own:
        text = (await own.get("/metrics")).text
    if any(
        line.startswith("toolrelay_readers{") and "sse" in line and line.endswith(" 1.0") for line in text.splitlines()
    ):
        return task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None


async def test_the_nginx_sample_passes_streams_and_sockets(redis: Server, fleet: Fleet):
    """Events come through as they are written, bodies up to the gateway's bound, and nobody sees the metrics."""
    if nginx() is None:
        pytest.skip("lacks nginx: the sample is not run here")
    one, two = await fleet.nodes(
        redis.url, one={"agents": [demo_agent(fleet.folder)]}, two={"agents": [demo_agent(fleet.folder)]}
    )
    async with before([_address(one), _address(two)]) as address, conversation(one) as talk:
        async with httpx.AsyncClient(base_url=f"http://{address}", headers=HEADERS) as http:
            async with follow(http, talk.id) as through:
                began = time.monotonic()
                assert await through.run("echo at once") == "at once"
                assert time.monotonic() - began < 10
            large = await http.post(f"{talk.path}/events", json={"text": "x" * (4 * 1024 * 1024)})
            assert large.status_code == 413
            assert "error" in large.json(), "the gateway's own answer"
            assert (await http.get("/metrics")).status_code == 404
            assert (await http.get("/readyz")).status_code == 200
            host = await http.get("/v1/agents", headers={"Host": "evil.example"})
            assert host.status_code == 421, "the proxy hands the client's Host on"


class _Tab:
    """One socket with one registration; it goes to the other node when it is told to."""

    def __init__(self, talk: Conversation, number: int) -> None:
        self.talk = talk
        self.name = f"tab{number}"
        self.gap = 0.0
        self.code = 0

    async def live(self, first: str, second: str, called: asyncio.Semaphore) -> None:
        async with socket_at(first) as client:
            await client.ok("attach", session_id=self.talk.id, token=self.talk.token)
            made = await client.ok(
                "register", session_id=self.talk.id, name=self.name, lifetime={"type": "ttl", "data": {"seconds": 5}},
                tools=[tool("act")],
            )  # fmt: skip
            client_id = made["client_id"]
            called.release()
            call = await client.push("event", type="client_tool_dispatched", client_id=client_id)
            call_id = call["event"]["call_id"]
            called.release()
            client.pushes.clear()
            try:
                while True:
                    await client.connection.recv()
            except ConnectionClosed as closed:
                self.code = closed.rcvd.code if closed.rcvd else 0
        began = time.monotonic()
        async with socket_at(second) as client:
            await client.ok("attach", session_id=self.talk.id, token=self.talk.token)
            resumed = await client.ok(
                "resume", session_id=self.talk.id, client_id=client_id, resume_key=made["resume_key"]
            )
            assert [one["call_id"] for one in resumed["calls"]] == [call_id]
            self.gap = time.monotonic() - began
            await client.ok("result", client_id=client_id, call_id=call_id, text=self.name)


async def test_sigterm_of_a_node_with_100_sockets(redis: Server, fleet: Fleet):
    owner, one, two = await _three(fleet, redis)
    called = asyncio.Semaphore(0)
    async with contextlib.AsyncExitStack() as stack:
        talks = [
            await stack.enter_async_context(conversation(owner)) for _ in range(-(-SOCKETS // CLIENTS_OF_A_SESSION))
        ]
        tabs = [_Tab(talks[number // CLIENTS_OF_A_SESSION], number) for number in range(SOCKETS)]
        async with asyncio.TaskGroup() as group:
            lives = [group.create_task(tab.live(_address(one), _address(two), called)) for tab in tabs]
            await _all_called(called)
            runs: dict[str, Any] = {}
            for talk in talks:
                names = [tab.name for tab in tabs if tab.talk is talk]
                step = {"calls": [{"name": f"client__{name}__act", "arguments": {}} for name in names]}
                runs[talk.id] = await talk.say({**step, "parallel": True}, SAY)
            await _all_called(called)
            assert one.process is not None
            one.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                await asyncio.gather(*lives)
        assert {tab.code for tab in tabs} == {1012}
        assert max(tab.gap for tab in tabs) < GAP_S
        for talk in talks:
            assert (await talk.end(runs[talk.id]))["type"] == "run_completed"
            dispatched = talk.of("client_tool_dispatched")
            for call in dispatched:
                (result,) = talk.of("tool_result", call_id=call["call_id"])
                assert not result["is_error"]
            said = json.loads(talk.said().removeprefix("It said: "))
            assert len(said) == len(dispatched)
            assert not talk.of("client_tool_failed")
        assert await asyncio.to_thread(one.wait) == 0
        await until(lambda: _gone_sockets(two), what="the sockets' end")
    one.assert_clean()


async def _gone_sockets(node: Node) -> bool:
    return await _sockets_of(node) == 0


async def _all_called(called: asyncio.Semaphore) -> None:
    async with asyncio.timeout(60):
        for _ in range(SOCKETS):
            await called.acquire()
