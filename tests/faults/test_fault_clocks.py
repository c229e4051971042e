"""Nodes whose wall clocks are wrong by ten minutes, both ways: nothing is due early, nothing late (redis.md)."""

import time

import pytest

from tests.doubles.faked_clocks import preloaded
from tests.doubles.nodes import Node, demo_agent
from tests.doubles.nodes_session import calls, conversation, follow, tool
from tests.doubles.valkey_servers import Server
from tests.faults.conftest import Fleet

SAY = {"text": "It said: {{results}}"}
DEADLINE_S = 3.0
MARGIN_S = 0.5
TTL_S = 5


async def _wrong_by(fleet: Fleet, redis: Server, name: str, offset: str, patch: pytest.MonkeyPatch) -> Node:
    with patch.context() as given:
        for key, value in preloaded(FAKETIME=offset).items():
            given.setenv(key, value)
        return await fleet.node(name, redis.url, agents=[demo_agent(fleet.folder / name)])


async def test_nodes_whose_clocks_are_ten_minutes_wrong(redis: Server, fleet: Fleet, monkeypatch: pytest.MonkeyPatch):
    late = await _wrong_by(fleet, redis, "late", "-10m", monkeypatch)
    early = await _wrong_by(fleet, redis, "early", "+10m", monkeypatch)
    for owner, edge in ((late, early), (early, late)):
        async with conversation(owner) as talk, edge.http() as http, follow(http, talk.id) as there:
            client = await there.register("web", tool("look", timeout_ms=int(DEADLINE_S * 1000)))
            run_id = await talk.say(calls("client__web__look"), calls("client__web__look"), SAY)
            (first,) = await client.dispatched()
            began = time.monotonic()
            assert 0 < first["remaining_ms"] <= DEADLINE_S * 1000
            await there.event("client_tool_failed", call_id=first["call_id"])
            took = time.monotonic() - began
            assert DEADLINE_S - MARGIN_S - 0.5 < took < DEADLINE_S + 0.25
            _, second = await client.dispatched(2)
            await client.answer(second, "in time")
            assert (await there.end(run_id))["type"] == "run_completed"

            began = time.monotonic()
            await there.register("brief", ttl=TTL_S)
            await there.event("client_left", reason="timed_out")
            assert TTL_S - 0.1 < time.monotonic() - began < TTL_S + 2
