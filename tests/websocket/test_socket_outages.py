"""The bus goes and comes back: ops wait in their order, and what was missed meanwhile is looked at again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.doubles.socket_world import NEVER, TOOL, TTL, World

WITHIN_S = 10.0


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not await condition():
            await asyncio.sleep(0.01)


async def test_ops_wait_for_the_bus_in_their_order(bus_world: World) -> None:
    node, there = await bus_world.node(), await bus_world.node()
    session_id, token = await node.session()
    epoch = await there.own(session_id)
    client = await bus_world.attached(node, session_id, token)
    made = await client.ok("register", session_id=session_id, name="web", lifetime=NEVER, tools=[TOOL])
    mine = {"client_id": made["client_id"]}
    calls = [await there.dispatch(session_id, epoch, made["client_id"]) for _ in range(3)]
    connection = node.topology.shards[0].connection
    connection.reconnect()
    assert not connection.up
    sent: list[int] = []
    for number, call_id in enumerate(calls):
        sent.append(await client.send("tools", **mine, tools=[{**TOOL, "name": f"t{number}"}]))
        sent.append(await client.send("result", **mine, call_id=call_id, text="t"))
    ping = await client.send("ping")
    assert "ok" in await client.answer(ping)
    for number in sent:
        assert "ok" in await client.answer(number)
    order: list[str] = []
    while len(order) < 6:
        event = (await client.push("event"))["event"]
        if event["type"] in ("client_tools_updated", "tool_result"):
            order.append(event["type"])
    assert order == ["client_tools_updated", "tool_result"] * 3


async def test_a_revocation_that_was_missed_is_found(bus_world: World) -> None:
    node, there = await bus_world.node(), await bus_world.node()
    session_id, token = await node.session()
    revoked, revoked_id = await node.token(session_id)
    client = await bus_world.attached(node, session_id, revoked)
    stays = await bus_world.attached(node, session_id, token)
    node.topology.shards[0].subscriber.reconnect()
    await there.sessions.revoke_token(session_id, revoked_id)
    assert (await client.push("closed"))["closed"] == {"reason": "token_revoked"}
    await stays.ok("ping")
    await stays.ok("cancel", session_id=session_id)


async def test_what_was_taken_for_dead_is_held_again_and_what_was_taken_over_is_given_up(bus_world: World) -> None:
    node, there = await bus_world.node(), await bus_world.node()
    session_id, token = await node.session()
    client = await bus_world.attached(node, session_id, token)
    fields = {"session_id": session_id, "lifetime": TTL}
    released = await client.ok("register", name="released", **fields)
    taken = await client.ok("register", name="taken", **fields)
    other = await bus_world.attached(there, session_id, token)
    node.topology.shards[0].subscriber.reconnect()
    await there.clients.release(session_id, released["client_id"], node.incarnation)
    await other.ok("resume", session_id=session_id, client_id=taken["client_id"], resume_key=taken["resume_key"])
    closed = await client.push("closed")
    assert closed["closed"] == {"reason": "taken_over", "client_id": taken["client_id"]}

    async def held_again() -> bool:
        by_name = {stored.name: stored for stored in await there.clients.all(session_id)}
        return by_name["released"].held and by_name["released"].expires_ms is None and by_name["taken"].held

    await until(held_again)


async def test_a_session_that_was_deleted_meanwhile(bus_world: World) -> None:
    node, there = await bus_world.node(), await bus_world.node()
    session_id, token = await node.session()
    client = await bus_world.attached(node, session_id, token)
    node.topology.shards[0].subscriber.reconnect()
    await there.sessions.delete(session_id)
    assert (await client.push("closed"))["closed"] == {"reason": "deleted"}


async def test_events_of_the_gap_arrive_once_each(bus_world: World) -> None:
    node, there = await bus_world.node(), await bus_world.node()
    session_id, token = await node.session()
    epoch = await there.own(session_id)
    client = await bus_world.attached(node, session_id, token)
    for number in range(40):
        if number == 10:
            node.topology.shards[0].subscriber.reconnect()
        await there.say(session_id, epoch, f"{number}")
    assert [(await client.push("event"))["event"]["seq"] for _ in range(40)] == list(range(2, 42))
