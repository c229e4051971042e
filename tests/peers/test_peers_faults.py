# pyright: reportMissingImports=false
"""The real child and the unmodified SDK through a node's death and an outage of Redis: nobody but the log notices.

The SDK reaches its nodes through nginx with the sample of ``deploy/nginx``, which docker-compose.yml mounts.
"""

import asyncio
import contextlib
import signal
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.peers

subako = pytest.importorskip("subako", reason="the SDK (Python >= 3.12) is not in this environment")

from tests.doubles.nodes import API_KEY, Node, demo_agent  # noqa: E402
from tests.doubles.nodes_session import Event, calls, conversation, script, tool  # noqa: E402
from tests.doubles.peers import MAGI_CODE, ModelLog, magi_agent  # noqa: E402
from tests.doubles.proxies import nginx, nginx_before  # noqa: E402
from tests.doubles.scripted_model import scripted_model  # noqa: E402
from tests.doubles.sdk_talk import Row, Talk, new_session, sdk_lifetime  # noqa: E402
from tests.doubles.valkey_servers import Server, free_port, until  # noqa: E402
from tests.faults.conftest import Fleet, assert_lifetimes  # noqa: E402
from tests.faults.test_fault_redis import ready_again  # noqa: E402

SAY = {"text": "It said: {{results}}"}
BACK_S = 15.0  # the stream told it to come back after 1 s; it tries five times, each time after twice as long
STOPPED_S = 10.0
LIFETIME_S = 8
SUBAGENTS = 4  # as many as the real child runs side by side
DEMO_CALLS = 16


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with contextlib.AsyncExitStack() as stack:
        yield Fleet(tmp_path, stack)


@asynccontextmanager
async def real_agent(folder: Path) -> AsyncGenerator[tuple[Any, ModelLog]]:
    """The real child as an agent, and what its model was asked."""
    if not MAGI_CODE.exists():
        pytest.skip("magi-code 0.104.0 is not in the peers' cache")
    log = folder / "requests.jsonl"
    log.touch()
    with scripted_model(log) as port:
        yield magi_agent(folder / "magi", port), ModelLog(log)


@asynccontextmanager
async def sdk(address: str, agent: str) -> AsyncGenerator[Talk]:
    """The SDK as anybody has it: its own HTTP client, its own waits."""
    async with subako.SubakoClient(base_url=f"http://{address}", api_key=API_KEY) as client:
        session = await new_session(client, agent)
        async with client.sessions.connect(session.id, after_seq=0) as connection:
            yield Talk(client, session, connection)


async def streams_of(node: Node) -> int:
    """The SSE readers that a node has now."""
    async with node.http() as http:
        lines = (await http.get("/metrics")).text.splitlines()
    return sum(int(float(line.split()[1])) for line in lines if line.startswith("toolrelay_readers{") and "sse" in line)


async def has_stream(node: Node) -> bool:
    return await streams_of(node) > 0


async def holder_of(nodes: list[Node]) -> Node:
    """The only node with a reader."""
    held = [node for node in nodes if await streams_of(node)]
    assert len(held) == 1
    return held[0]


class Desk:
    """What a tool does: notes who asks, and answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.let = asyncio.Semaphore(0)

    async def look(self, row: Row) -> str:
        self.asked.append(row.row_id)
        await self.let.acquire()
        return f"row {row.row_id} was seen"


def look(row_id: str) -> dict[str, Any]:
    return calls("client__web__look", {"row_id": row_id})


async def test_the_sdk_behind_nginx_answers_the_same_call_after_its_node_was_killed(fleet: Fleet):
    """Once with the call at the client when the node dies, once with a call that came while it had no stream."""
    if nginx() is None:
        pytest.skip("lacks nginx: the sample is not run here")
    async with Server() as redis, real_agent(fleet.folder) as (agent, model):
        owner = await fleet.node("owner", redis.url, agents=[agent])
        edge = {"roles": ("edge",), "agents": [agent]}
        edges = await fleet.nodes(
            redis.url, **{name: {**edge, "server": {"port": free_port()}} for name in ("one", "two")}
        )
        addresses = [node.url.removeprefix("http://") for node in edges]
        desk = Desk()
        async with nginx_before(addresses) as address, sdk(address, "magi") as talk:
            client = await talk.serve(look=desk.look)
            registration = client.id
            mark = uuid.uuid4().hex
            run_id = str((await talk.connection.send(mark + script(look("open"), SAY))).run_id)
            held = await talk.first("client_tool_acked")
            victim = await holder_of(edges)
            (other,) = (node for node in edges if node is not victim)
            await asyncio.to_thread(victim.kill)
            await until(lambda: has_stream(other), BACK_S, "the SDK's stream at the other node")
            desk.let.release()
            assert (await talk.end(run_id)).type == "run_completed"
            assert model.results(mark) == ["row open was seen"]

            await asyncio.to_thread(victim.start)
            await asyncio.to_thread(other.kill)
            desk.let.release()
            mark = uuid.uuid4().hex
            async with owner.http() as http:
                body = {"type": "input", "text": mark + script(look("missed"), SAY)}
                said = await http.post(f"/v1/sessions/{talk.id}/events", json=body)
                assert said.status_code == 200, said.text
            assert (await talk.end(said.json()["run_id"])).type == "run_completed"
            assert model.results(mark)[-1] == "row missed was seen"

            assert desk.asked == ["open", "missed"], "each call reached the client once"
            assert (client.id, client.status.value) == (registration, "serving"), "it never had to register again"
            assert talk.of("client_tool_dispatched")[0].call_id == held.call_id
            assert len(talk.of("tool_result")) == len(talk.of("client_tool_acked")) == 2
            assert not talk.of("client_left", "client_tool_failed")
            seqs = [event.seq for event in talk.connection.events]
            assert seqs == list(range(1, len(seqs) + 1))
        owner.assert_clean()
        await assert_lifetimes(redis.url)


def _seen(call: Event) -> str:
    return f"{call['call_id']} was seen"


async def test_sigstop_of_redis_for_10_s_under_open_calls_of_both_children(fleet: Fleet):
    """Four calls of the real child at the SDK, sixteen of the demo agent at an HTTP client; both clients' lifetimes are
    shorter than the outage, and part of the answers is given in it."""
    async with Server() as redis, real_agent(fleet.folder) as (agent, _model):
        agents = [agent, demo_agent(fleet.folder / "demo")]
        owner = await fleet.node("owner", redis.url, roles=("agents",), agents=agents)
        edge = await fleet.node("edge", redis.url, roles=("edge",), agents=agents)
        desk = Desk()
        async with sdk(edge.url.removeprefix("http://"), "magi") as real, conversation(edge) as demo:
            await real.serve(look=desk.look, lifetime=sdk_lifetime(LIFETIME_S))
            page = await demo.register("page", tool("look"), ttl=LIFETIME_S)
            async with page.pings(LIFETIME_S / 2):
                tasks = [{"intent": f"task {n}", "context": script(look(str(n)), SAY)} for n in range(SUBAGENTS)]
                real_run = await real.say(calls("subagents", {"intent": "ask", "tasks": tasks}), SAY)
                demo_run = await demo.say({**calls("client__page__look", *[{}] * DEMO_CALLS), "parallel": True}, SAY)
                looks = await page.dispatched(DEMO_CALLS)
                await until(lambda: len(real.of("client_tool_acked")) == SUBAGENTS, 30, "the calls of the real child")
                children = owner.children()
                assert len(children) == 2

                redis.signal(signal.SIGSTOP)
                began = time.monotonic()
                try:
                    for _ in range(SUBAGENTS // 2):
                        desk.let.release()
                    early = [asyncio.create_task(page.answer(call, _seen(call))) for call in looks[:4]]
                    await asyncio.sleep(STOPPED_S - (time.monotonic() - began))
                finally:
                    redis.signal(signal.SIGCONT)
                await asyncio.gather(*early)
                for _ in range(SUBAGENTS // 2):
                    desk.let.release()
                for call in looks[4:]:
                    await page.answer(call, _seen(call))

                assert (await demo.end(demo_run))["type"] == "run_completed"
                assert (await real.end(real_run)).type == "run_completed"
                assert owner.children() == children, "no child died"
            assert sorted(desk.asked) == [str(n) for n in range(SUBAGENTS)]
            assert all(f"row {n} was seen" in real.said() for n in range(SUBAGENTS))
            assert all(_seen(call) in demo.said() for call in looks)
            assert not real.of("client_left", "client_tool_failed")
            assert not demo.of("client_left", "client_tool_failed")
            for node in (owner, edge):
                await ready_again(node)
        await assert_lifetimes(redis.url)
