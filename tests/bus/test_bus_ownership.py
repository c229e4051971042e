"""Owners: fenced by their epoch, succeeded by the storage rule; their writes once each, in order."""

import asyncio

import pytest

from gateway.bus.sessions import Owner, read_orphans
from gateway.bus.store import Fenced
from gateway.model import events
from gateway.model.clean import LogText
from tests.doubles.bus import NODE, Bus

LOST = LogText("owner_gone: gone")
OTHER = Owner("node-b", "incarnation-b", 0)


async def test_the_first_input_sets_the_owner_and_later_ones_do_not(a: Bus, b: Bus) -> None:
    session_id = await a.session()
    _, first = await a.submit(session_id)
    _, second = await b.submit(session_id, OTHER)
    assert (first.incarnation, first.epoch) == (NODE.incarnation, 1)
    assert second == first


async def test_inputs_are_started_in_order(a: Bus) -> None:
    session_id = await a.session()
    runs = [(await a.submit(session_id))[0] for _ in range(3)]
    outbox = a.outbox(session_id)
    for run_id in runs:
        taken = await a.start_run(outbox)
        assert taken is not None
        assert taken.run_id == run_id
        a.sessions.append(outbox, [events.run_completed(run_id)], ends_run=run_id)
    assert await a.start_run(outbox) is None


async def test_an_owner_that_was_replaced_changes_nothing(a: Bus, b: Bus) -> None:
    session_id, outbox = await a.owned()
    before = await a.log.head(session_id)
    epoch = await b.sessions.claim(session_id, NODE.incarnation, OTHER, lost_run=LOST, home_wait_ms=1000)
    assert epoch == 2
    a.sessions.append(outbox, [events.error(LogText("too late"))])
    await asyncio.wait_for(a.was_lost.wait(), 5)
    assert isinstance(a.lost[0], Fenced)
    assert (await a.types(session_id))[before:] == ["run_failed"]


async def test_of_two_claims_one_wins(a: Bus, b: Bus) -> None:
    session_id, _ = await a.owned()
    epochs = await asyncio.gather(
        *(
            node.sessions.claim(session_id, NODE.incarnation, OTHER, lost_run=LOST, home_wait_ms=1000)
            for node in (a, b, a, b)
        )
    )
    assert sorted(epochs, key=str) == [2, None, None, None]


async def test_a_session_without_its_home_waits_for_it(a: Bus, b: Bus) -> None:
    session_id, _ = await a.owned()
    await b.sessions.claim(session_id, NODE.incarnation, None, lost_run=LOST, home_wait_ms=60_000)
    _, owner = await b.submit(session_id, OTHER)
    assert (owner.incarnation, owner.node_name) == ("", NODE.node_name)
    back = Owner(NODE.node_name, "incarnation-a2", 0)
    _, owner = await a.submit(session_id, back)
    assert owner.incarnation == back.incarnation


async def test_shared_storage_lets_any_node_follow(a: Bus, b: Bus) -> None:
    session_id, _ = await a.owned()
    await b.sessions.claim(session_id, NODE.incarnation, None, lost_run=LOST, home_wait_ms=60_000)
    _, owner = await b.submit(session_id, OTHER, shared=True)
    assert owner.incarnation == OTHER.incarnation


async def test_work_without_a_living_owner_is_found_by_partition(a: Bus, b: Bus) -> None:
    session_id, _ = await a.owned()
    idle = await a.session()
    tag = a.store.keys.session(session_id).tag
    assert read_orphans(await b.sessions.orphans(tag, ["somebody-else"], 10)) == []
    found = read_orphans(await b.sessions.orphans(tag, [NODE.incarnation], 10))
    assert found == [(session_id, Owner(NODE.node_name, NODE.incarnation, 0))]
    assert idle not in [sid for sid, _ in found]


@pytest.mark.parametrize("again", [1, 2])
async def test_a_write_that_is_sent_again_is_applied_once(a: Bus, again: int) -> None:
    session_id, outbox = await a.owned()
    keys = a.store.keys.session(session_id)
    assert await outbox.drained(5)
    write = ("", "", 0, events.error(LogText("once")))
    for _ in range(again + 1):
        await a.store.send(keys, a.store.scripts.append, 1, 2, *write)
    assert (await a.types(session_id)).count("error") == 1


async def test_a_write_before_its_predecessor_is_refused(a: Bus) -> None:
    session_id, outbox = await a.owned()
    assert await outbox.drained(5)
    keys = a.store.keys.session(session_id)
    with pytest.raises(Exception, match="gap"):
        await a.store.send(keys, a.store.scripts.append, 1, 7, "", "", 0, events.error(LogText("early")))
    assert "error" not in await a.types(session_id)
