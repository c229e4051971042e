"""Random schedules of two nodes on one Redis, compared step by step with the model.

Every action is one that a client, a child, a timer or a dying node can cause, from either node. After each the record
on the bus must say what ``step`` says, and whoever caused it must have been told what ``step`` tells. Instants are
moved (a call made due, a registration made lapsed) instead of waited for.
"""

import asyncio
import os
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.bus.embedded import EmbeddedServer
from gateway.bus.outbox import Outbox
from gateway.bus.sessions import Owner
from gateway.model.call import Call, Event, State, Verdict, dispatch, step
from gateway.model.clean import LogText
from gateway.model.deadline import Deadline
from gateway.model.errors import Code, Refusal
from tests.doubles.bus import NODE, Bus, bus, keys_without_lifetime

EXAMPLES = int(os.environ.get("TOOLRELAY_TEST_SCHEDULES", "300"))
CALLS = 4
CLIENTS = 3
BUDGET_S = 90

Action = tuple[Any, ...]

_call = st.integers(0, CALLS - 1)
_client = st.integers(0, CLIENTS - 1)
_node = st.integers(0, 1)
ACTION = st.one_of(
    st.tuples(st.just("dispatch"), _call, _client, st.booleans()),
    st.tuples(st.just("ack"), _call, _client, _node),
    st.tuples(st.just("answer"), _call, _client, _node, st.sampled_from(["x", "y"])),
    st.tuples(st.just("refuse"), _call, _client, _node),
    st.tuples(st.just("due"), _call, st.booleans()),
    st.tuples(st.just("sweep"), _node),
    st.tuples(st.just("expire"), _call),
    st.tuples(st.just("end"), _call, st.sampled_from([Event.END, Event.TIMEOUT])),
    st.tuples(st.just("leave"), _client, _node),
    st.tuples(st.just("lapse"), _client, _node),
    st.tuples(st.just("take_over"), _client, _node),
    st.tuples(st.just("crash"), _node),
)


@dataclass
class Model:
    """What the bus should hold. ``places`` are the clients' places: (client id, whether it lives)."""

    calls: dict[int, Call] = field(default_factory=dict[int, Call])
    idempotent: dict[int, bool] = field(default_factory=dict[int, bool])
    places: dict[int, str] = field(default_factory=dict[int, str])


class Schedule:
    """One schedule under way."""

    def __init__(self, nodes: tuple[Bus, Bus], session_id: str) -> None:
        self.nodes = nodes
        self.session_id = session_id
        self.model = Model()
        self.epoch = 1
        self.owner = 0
        self.outbox: Outbox = nodes[0].outbox(session_id)
        self.incarnation = NODE.incarnation

    def call_id(self, number: int) -> str:
        return f"call-{number}"

    async def now(self) -> int:
        seconds, micros = await self.nodes[0].topology.all()[0].call("TIME")  # pyright: ignore
        return int(seconds) * 1000 + int(micros) // 1000  # pyright: ignore

    async def join(self, place: int, node: Bus) -> None:
        self.model.places[place] = await node.client(self.session_id, ttl_s=3600, key=f"place-{place}")

    def events_for(self, client_id: str, event: Event, now: int, heir: str | None = None) -> None:
        """What the end of a client's place does to its calls."""
        for number, call in self.model.calls.items():
            if call.client_id == client_id and call.open:
                if heir is not None and self.model.idempotent[number]:
                    moved, verdict = step(call, Event.RETAKE, now, client_id=heir)
                    assert verdict is Verdict.APPLIED or not moved.open
                    self.model.calls[number] = moved
                else:
                    self.model.calls[number], _ = step(call, event, now)

    async def run(self, action: Action) -> None:
        name, *args = action
        nodes, model, now = self.nodes, self.model, await self.now()
        match name:
            case "dispatch":
                number, place, idempotent = args
                if number in model.calls:
                    return
                client_id = model.places.get(place)
                if client_id is None:
                    return
                reply = await nodes[self.owner].dispatch(
                    self.outbox, client_id, self.call_id(number), budget_s=BUDGET_S, idempotent=idempotent
                )
                assert type(reply).__name__ == "Dispatched"
                model.calls[number] = dispatch(self.call_id(number), client_id, now, BUDGET_S * 1000)
                model.idempotent[number] = idempotent
            case "ack" | "answer" | "refuse":
                await self.speak(name, *args, now=now)
            case "due":
                number, sweeping = args
                call = model.calls.get(number)
                if call is not None and call.open:
                    await self.make_due(call)
                    model.calls[number] = replace(call, due=Deadline(now - 1))
                    if sweeping:
                        await self.sweep(nodes[0], now)
            case "sweep":
                await self.sweep(nodes[args[0]], now)
            case "expire":
                call = model.calls.get(args[0])
                if call is not None:
                    coming = asyncio.get_running_loop().create_future()
                    nodes[self.owner].calls.expire(self.outbox, call.call_id, coming.set_result)
                    model.calls[args[0]], _ = step(call, Event.DUE, now)
                    assert bool(await asyncio.wait_for(coming, 5)) == model.calls[args[0]].open
            case "end":
                number, event = args
                call = model.calls.get(number)
                if call is not None:
                    nodes[self.owner].calls.end(self.outbox, call.call_id, event)
                    assert await self.outbox.drained(5)
                    # The owner ends a call whatever its clock says: a due that has passed does not go first.
                    patient = replace(call, due=Deadline(now + 1)) if call.due.passed(now) and call.open else call
                    model.calls[number], _ = step(patient, event, now)
            case "leave" | "lapse":
                client_id = model.places.pop(args[0], None)
                if client_id is None:
                    return
                if name == "leave":
                    await nodes[args[1]].clients.leave(self.session_id, client_id)
                else:
                    await self.make_lapsed(client_id)
                    await self.sweep(nodes[args[1]], now)
                self.events_for(client_id, Event.LEAVE, now)
            case "take_over":
                place, node = args
                before = model.places.get(place)
                await self.join(place, nodes[node])
                if before is not None:
                    self.events_for(before, Event.LEAVE, now, heir=model.places[place])
            case "crash":
                await self.crash(args[0], now)
            case _:
                raise AssertionError(name)

    async def speak(
        self, name: str, number: int, place: int, node: int, digest: str | None = None, *, now: int
    ) -> None:
        call, client_id = self.model.calls.get(number), self.model.places.get(place)
        if call is None or client_id is None:
            return
        bus_of = self.nodes[node]
        event = {"ack": Event.ACK, "answer": Event.ANSWER, "refuse": Event.REFUSE}[name]
        told = Verdict.APPLIED
        try:
            if name == "ack":
                await bus_of.calls.ack(self.session_id, client_id, call.call_id)
            elif name == "answer":
                await bus_of.answer(self.session_id, client_id, call.call_id, digest or "x")
            elif not await bus_of.calls.refuse(self.session_id, client_id, call.call_id, LogText("why")):
                told = Verdict.CONFLICT
        except Refusal as refusal:
            told = Verdict.NOT_FOUND if refusal.code is Code.NOT_FOUND else Verdict.CONFLICT
        self.model.calls[number], verdict = step(call, event, now, client_id=client_id, digest=digest)
        expected = Verdict.APPLIED if verdict is Verdict.REPEATED else verdict
        assert told is expected, (name, call, verdict)

    async def make_due(self, call: Call) -> None:
        node = self.nodes[0]
        keys = node.store.keys.session(self.session_id)
        await node.store.call(keys.tag, "HSET", keys.call(call.call_id), "due", 1)
        await node.store.call(keys.tag, "ZADD", keys.due, 1, f"c{self.session_id}:{call.call_id}")

    async def make_lapsed(self, client_id: str) -> None:
        node = self.nodes[0]
        keys = node.store.keys.session(self.session_id)
        await node.store.call(keys.tag, "HSET", keys.client(client_id), "expires", 1)
        await node.store.call(keys.tag, "ZADD", keys.due, 1, f"r{self.session_id}:{client_id}")

    async def sweep(self, node: Bus, now: int) -> None:
        keys, tag = node.store.keys, node.store.keys.session(self.session_id).tag
        connection = node.topology.for_partition(tag)
        await connection.run(node.store.scripts.sweep, (keys.root(tag), keys.due(tag)), (100, node.store.stamp(tag)))
        for number, call in self.model.calls.items():
            self.model.calls[number], _ = step(call, Event.DUE, now)

    async def crash(self, heir: int, now: int) -> None:
        """The owner dies: another takes over, and what it left behind is settled."""
        lost = LogText("owner_gone: gone")
        owner = Owner(f"node-{uuid4().hex[:4]}", uuid4().hex, 0)
        epoch = await self.nodes[heir].sessions.claim(
            self.session_id, self.incarnation, owner, lost_run=lost, home_wait_ms=1000
        )
        assert epoch is not None
        assert epoch == self.epoch + 1
        running = (await self.nodes[heir].sessions.resumption(self.session_id)).run_id
        assert running is None
        for number, call in self.model.calls.items():
            if call.open:
                patient = replace(call, due=Deadline(now + 1)) if call.due.passed(now) else call
                self.model.calls[number], _ = step(patient, Event.END, now)
        self.outbox.close()
        self.epoch, self.owner, self.incarnation = epoch, heir, owner.incarnation
        self.outbox = self.nodes[heir].outbox(self.session_id, epoch)
        await self.nodes[heir].submit(self.session_id, owner)
        assert await self.nodes[heir].start_run(self.outbox) is not None

    async def compare(self) -> None:
        reader = self.nodes[1 - self.owner]
        for call in self.model.calls.values():
            record = await reader.calls.get(self.session_id, call.call_id)
            assert record is not None
            assert record.state == call.state
            assert record.client_id == call.client_id
            assert record.attempt == call.attempt
            assert record.reason == call.reason
            assert record.outcome == call.outcome
        open_calls = {call.call_id: call.client_id for call in self.model.calls.values() if call.open}
        assert await reader.calls.open(self.session_id) == open_calls

    async def check_log(self) -> None:
        """The log has no gap, and one terminal event for each call that is settled."""
        entries = await self.nodes[0].log.after(self.session_id, 0, 10_000)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        for call in self.model.calls.values():
            mark = f'"call_id":"{call.call_id}"'.encode()
            ends = [e for e in entries if b'"type":"tool_result"' in e.event and mark in e.event]
            assert len(ends) == (0 if call.open else 1)
            failed = [e for e in entries if b'"type":"client_tool_failed"' in e.event and mark in e.event]
            assert len(failed) == (1 if call.state is State.FAILED else 0)


async def play(url: str, actions: list[Action]) -> None:
    prefix = f"s{uuid4().hex[:8]}"
    async with bus(url, prefix) as a, bus(url, prefix) as b:
        session_id = await a.session()
        await a.submit(session_id)
        schedule = Schedule((a, b), session_id)
        assert await a.start_run(schedule.outbox) is not None
        for place in range(CLIENTS):
            await schedule.join(place, b)
        for action in actions:
            await schedule.run(action)
            await schedule.compare()
        await schedule.check_log()
        assert await keys_without_lifetime(a.topology, prefix) == []
        await a.sessions.delete(session_id)
        schedule.outbox.close()


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as made:
        server = EmbeddedServer(restart=False)
        made.run(server.start())
        yield made, server.url
        made.run(server.stop())


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(ACTION, min_size=3, max_size=25))
def test_the_bus_does_what_the_model_says(runner: tuple[asyncio.Runner, str], actions: list[Action]) -> None:
    made, url = runner
    made.run(play(url, actions))
