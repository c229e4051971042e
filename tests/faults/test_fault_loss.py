"""A failover that loses acknowledged writes: readers are told, calls end as unknown, and sessions go on (bridge 8)."""

import asyncio

from tests.doubles.nodes import Node, demo_agent
from tests.doubles.nodes_session import Conversation, calls, conversation, tool
from tests.doubles.valkey_servers import SentinelSet
from tests.faults.conftest import Fleet, assert_lifetimes
from tests.faults.test_fault_redis import ready_again

SAY = {"text": "It said: {{results}}"}
TOOL = tool("look", timeout_ms=8_000)
LOOK = calls("client__web__look")
FAILED_OVER_S = 30.0
BACK_S = 60.0


async def _pair(fleet: Fleet, url: str) -> list[Node]:
    # A wide margin: the agent's own clock must not be quicker than ours, however much else the machine has to do.
    both = {"agents": [demo_agent(fleet.folder)], "limits": {"deadline_margin_ms": 3_000}}
    return await fleet.nodes(url, owner=both, edge={**both, "roles": ("edge",)})


async def _lose(servers: SentinelSet, nodes: list[Node]) -> None:
    """The replica is all that is left, without what was written since it was cut off."""
    await servers.primary.stop()
    for node in nodes:
        await ready_again(node, FAILED_OVER_S)


async def _told(talk: Conversation, seen: int) -> None:
    """The reader was told of a loss, after all that it had been given."""
    await talk.event("custom", kind="log_reset", since=seen)


async def _goes_on(talk: Conversation) -> None:
    """Runs complete again. One may still fail: a lease may have ended in the outage too, and its owner with it."""
    async with asyncio.timeout(BACK_S):
        while (await talk.end(await talk.say("echo after")))["type"] != "run_completed":
            pass
    assert talk.said() == "after"


async def test_a_call_whose_dispatch_is_lost_ends_as_unknown(fleet: Fleet):
    async with SentinelSet() as servers:
        nodes = await _pair(fleet, servers.url)
        async with conversation(nodes[1]) as talk:
            client = await talk.register("web", TOOL)
            await talk.run("echo before")
            await servers.cut_off()
            run_id = await talk.say(LOOK, SAY)
            (call,) = await client.dispatched()
            assert (await client.post(call, "ack")).status_code == 200
            acked = await talk.event("client_tool_acked")
            await _lose(servers, nodes)
            await _told(talk, acked["seq"])
            assert (await client.post(call, "result", {"text": "too late"})).status_code == 404
            assert (await talk.end(run_id))["type"] == "run_completed"
            assert "Outcome unknown" in talk.said()
            await _goes_on(talk)
        await assert_lifetimes(servers.url)


async def test_an_answer_that_is_lost_leaves_no_run_behind(fleet: Fleet):
    async with SentinelSet() as servers:
        nodes = await _pair(fleet, servers.url)
        async with conversation(nodes[1]) as talk:
            client = await talk.register("web", TOOL)
            run_id = await talk.say(LOOK, SAY)
            (call,) = await client.dispatched()
            await servers.cut_off()
            await client.answer(call, "seen")
            ended = await talk.end(run_id)
            assert ended["type"] == "run_completed"
            await _lose(servers, nodes)
            await _told(talk, ended["seq"])
            failed = await talk.event("client_tool_failed", call_id=call["call_id"], since=ended["seq"])
            assert failed["reason"] == "run_gone"
            again = await talk.end(run_id, since=ended["seq"])
            assert again["type"] == "run_failed"
            assert again["error"].startswith("end_lost: ")
            await _goes_on(talk)
        await assert_lifetimes(servers.url)


async def test_an_input_that_is_lost_may_be_sent_again(fleet: Fleet):
    async with SentinelSet() as servers:
        nodes = await _pair(fleet, servers.url)
        async with conversation(nodes[1]) as talk:
            await talk.run("echo before")
            await servers.cut_off()
            await talk.run("echo lost")
            seen = talk.stream.position
            await _lose(servers, nodes)
            await _told(talk, seen)
            await _goes_on(talk)
        await assert_lifetimes(servers.url)
