"""Each push: events, deltas, resets, ends of attachments and of holds, keepalives; presence by socket."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.bus.clients import Stored
from gateway.model import limits
from tests.conformance.websocket.conftest import Pair
from tests.doubles.socket_world import NEVER, TOOL, TTL, Client, World


async def until(condition: Callable[[], Awaitable[Any]], within_s: float = 8.0) -> Any:
    """Waits until the condition holds."""
    async with asyncio.timeout(within_s):
        while not (found := await condition()):
            await asyncio.sleep(0.01)
        return found


async def _stored(pair: Pair, session_id: str) -> Stored | None:
    return next(iter(await pair.there.clients.all(session_id)), None)


async def test_events_are_those_of_the_log_byte_for_byte(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    epoch = await pair.there.own(session_id)
    client = await pair.client(session_id, token)
    await pair.there.say(session_id, epoch, 'é "quoted" \u2028')
    push = await client.push("event")
    (entry,) = await pair.there.feeds.replay(session_id, 1)
    assert push == {"session_id": session_id, "event": json.loads(entry.event)}


async def test_deltas_are_pushed_unlogged(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    client = await pair.client(session_id, token)
    pair.there.sessions.publish_delta(session_id, b'{"message_id":"m","part":0,"text":"Hel"}')
    push = await client.push("delta")
    assert push == {"session_id": session_id, "delta": {"message_id": "m", "part": 0, "text": "Hel"}}


async def test_reset_when_the_place_is_no_longer_kept(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    epoch = await pair.there.own(session_id)
    for number in range(10):
        await pair.there.say(session_id, epoch, f"{number}")
    keys = pair.there.store.keys.session(session_id)
    await pair.there.store.call(keys.tag, "XTRIM", keys.log, "MINID", "6-0")
    client = await pair.client(session_id, token, after_seq=2)
    assert (await client.push())["reset"] == {"seq": 5}
    assert [(await client.push("event"))["event"]["seq"] for _ in range(6)] == [6, 7, 8, 9, 10, 11]


async def test_closed_when_the_session_is_deleted(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    other, other_token = await pair.here.session()
    client = await pair.client(session_id, token)
    await client.ok("attach", session_id=other, token=other_token)
    await pair.there.sessions.delete(session_id)
    assert await client.push("closed") == {"session_id": session_id, "closed": {"reason": "deleted"}}
    assert (await client.error("input", session_id=session_id, text="x"))["code"] == "not_found"
    await client.ok("input", session_id=other, text="x")


@pytest.mark.parametrize("how", ["token_expired", "token_revoked"])
async def test_closed_when_the_token_ends_and_attach_again_keeps_the_place(pair: Pair, how: str) -> None:
    session_id, token = await pair.here.session()
    epoch = await pair.there.own(session_id)
    short, short_id = await pair.here.token(session_id, ttl_s=0.5 if how == "token_expired" else 60)
    client = await pair.client(session_id, short)
    bystander = await pair.client(session_id, token)
    made = await client.ok("register", session_id=session_id, name="web", lifetime=TTL, tools=[TOOL])
    await client.event("client_registered")
    if how == "token_revoked":
        await pair.there.sessions.revoke_token(session_id, short_id)
    assert await client.push("closed") == {"session_id": session_id, "closed": {"reason": how}}

    async def counts() -> bool:
        stored = await _stored(pair, session_id)
        return stored is not None and not stored.held and stored.expires_ms is not None

    await until(counts)
    assert (await client.error("input", session_id=session_id, text="x"))["code"] == "not_found"
    assert (await client.error("attach", session_id=session_id, token=short))["code"] == "not_found"
    call_id = await pair.there.dispatch(session_id, epoch, made["client_id"])
    again = await client.ok("attach", session_id=session_id, token=token)
    assert again["seq"] == 2
    assert (await client.event("client_tool_dispatched"))["call_id"] == call_id
    stored = await _stored(pair, session_id)
    assert stored is not None
    assert stored.held
    assert stored.expires_ms is None
    await client.ok("result", client_id=made["client_id"], call_id=call_id, text="t")
    await bystander.event("tool_result")


async def test_a_fresh_token_in_time_keeps_everything(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    short, _ = await pair.here.token(session_id, ttl_s=0.6)
    client = await pair.client(session_id, short)
    made = await client.ok("register", session_id=session_id, name="web", lifetime=TTL)
    assert (await client.ok("attach", session_id=session_id, token=token))["seq"] in (1, 2)
    await asyncio.sleep(0.8)  # the old token's end
    await client.ok("tools", client_id=made["client_id"], tools=[])
    assert not [push for push in client.pushes if "closed" in push]


async def test_closed_taken_over_by_a_second_resume(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    first = await pair.client(session_id, token)
    made = await first.ok("register", session_id=session_id, name="web", lifetime=TTL)
    second = await pair.client(session_id, token, there=True)
    fields = {"session_id": session_id, "client_id": made["client_id"], "resume_key": made["resume_key"]}
    await second.ok("resume", **fields)
    assert await first.push("closed") == {
        "session_id": session_id,
        "closed": {"reason": "taken_over", "client_id": made["client_id"]},
    }
    first.connection.transport.abort()
    await asyncio.sleep(0.2)  # time for a release that must not come
    stored = await _stored(pair, session_id)
    assert stored is not None
    assert stored.held, "the older socket's end must not touch it"
    await second.ok("resume", **fields)
    assert not [push for push in second.pushes if "closed" in push]


async def test_a_key_takes_the_place_and_the_idempotent_calls_over(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    epoch = await pair.there.own(session_id)
    first = await pair.client(session_id, token)
    old = await first.ok("register", session_id=session_id, name="web", lifetime=TTL, tools=[TOOL], key="tab-1")
    again = await pair.there.dispatch(session_id, epoch, old["client_id"], idempotent=True)
    lost = await pair.there.dispatch(session_id, epoch, old["client_id"])
    second = await pair.client(session_id, token, there=True)
    new = await second.ok("register", session_id=session_id, name="web", lifetime=TTL, tools=[TOOL], key="tab-1")
    assert new["name"] == "web"
    assert new["client_id"] != old["client_id"]
    redispatched = (await second.push("event", type="client_tool_dispatched", attempt=2))["event"]
    assert (redispatched["call_id"], redispatched["client_id"]) == (again, new["client_id"])
    failed = await second.event("client_tool_failed")
    assert (failed["call_id"], failed["reason"]) == (lost, "client_gone")
    assert (await first.push("closed"))["closed"] == {"reason": "taken_over", "client_id": old["client_id"]}
    late = await first.error("result", session_id=session_id, client_id=old["client_id"], call_id=again, text="t")
    assert late["code"] == "not_found"
    await second.ok("result", client_id=new["client_id"], call_id=again, text="t")


@pytest.mark.parametrize("end", ["abort", "close", "detach"])
async def test_the_lifetime_counts_once_the_socket_is_gone(pair: Pair, end: str) -> None:
    session_id, token = await pair.here.session()
    client = await pair.client(session_id, token)
    await client.ok("register", session_id=session_id, name="web", lifetime=TTL)
    await client.ok("register", session_id=session_id, name="stays", lifetime=NEVER)
    assert all(s.held and s.expires_ms is None for s in await pair.there.clients.all(session_id))
    if end == "abort":
        client.connection.transport.abort()
    elif end == "close":
        await client.connection.close()
    else:
        await client.ok("detach", session_id=session_id)

    async def released() -> bool:
        return not any(s.held for s in await pair.there.clients.all(session_id))

    await until(released)
    by_name = {s.name: s for s in await pair.there.clients.all(session_id)}
    assert by_name["web"].expires_ms is not None
    assert abs(by_name["web"].expires_ms - pair.there.now_ms() - 5_000) < 2_000
    assert by_name["stays"].expires_ms is None


async def test_a_registration_whose_answer_came_too_late_is_not_held(bus_world: World) -> None:
    node = await bus_world.node()
    session_id, token = await node.session()
    client = await bus_world.attached(node, session_id, token)
    for _ in range(5):
        await client.send("register", session_id=session_id, name="web", lifetime=TTL)
    client.connection.transport.abort()

    async def gone_or_released() -> bool:
        return len(node.sockets) == 0 and not any(s.held for s in await node.clients.all(session_id))

    await until(gone_or_released)
    await asyncio.sleep(0.1)
    assert not any(s.held for s in await node.clients.all(session_id))


async def test_keepalives_are_data_frames_in_step(bus_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEEPALIVE_S", 0.1)
    node = await bus_world.node()
    session_id, token = await node.session()
    client = await bus_world.attached(node, session_id, token)
    while len(client.keepalives) < 3:
        await client.read_one()
    assert all(time.endswith("Z") for time in client.keepalives)


async def test_one_client_of_many_sessions_hears_each_with_its_id(pair: Pair) -> None:
    sessions = [await pair.here.session() for _ in range(4)]
    client = await pair.world.client(pair.here)
    for session_id, token in sessions:
        await client.ok("attach", session_id=session_id, token=token)
    for session_id, _ in sessions:
        epoch = await pair.there.own(session_id)
        await pair.there.say(session_id, epoch, session_id)
    heard = [await client.push("event") for _ in sessions]
    for push in heard:
        assert push["event"]["message"]["content"][0]["data"]["text"] == push["session_id"]


async def test_a_socket_gap_of_a_second_fails_no_call(pair: Pair) -> None:
    session_id, token = await pair.here.session()
    epoch = await pair.there.own(session_id)
    client = await pair.client(session_id, token)
    made = await client.ok("register", session_id=session_id, name="web", lifetime=TTL, tools=[TOOL])
    calls = [await pair.there.dispatch(session_id, epoch, made["client_id"]) for _ in range(4)]
    client.connection.transport.abort()
    await asyncio.sleep(1.3)
    back: Client = await pair.client(session_id, token, there=True)
    resumed = await back.ok("resume", session_id=session_id, client_id=made["client_id"], resume_key=made["resume_key"])
    assert sorted(call["call_id"] for call in resumed["calls"]) == sorted(calls)
    for call_id in calls:
        await back.ok("result", client_id=made["client_id"], call_id=call_id, text="t")
    for call_id in calls:
        record = await pair.there.calls.get(session_id, call_id)
        assert record is not None
        assert record.state == "answered"
