"""What a failover leaves behind: fewer events, older numbers, a run that had ended (bridge 8).

The loss itself is done by hand here; tests/faults has servers that die.
"""

import asyncio
from uuid import uuid4

from gateway.bus.log import Entry
from gateway.model import events
from gateway.model.clean import LogText
from gateway.services.feeds import Feeds, Reader
from tests.doubles.bus import Bus

RESET = b'"kind":"log_reset"'


async def _lose(bus: Bus, session_id: str, kept: int) -> None:
    """The log is what it was when it had so many events."""
    keys = bus.store.keys.session(session_id)
    left = (await bus.log.after(session_id, 0, 1000))[:kept]
    await bus.store.call(keys.tag, "DEL", keys.log)
    for entry in left:
        await bus.store.call(keys.tag, "XADD", keys.log, f"{entry.seq}-0", "e", entry.event)
    await bus.store.call(keys.tag, "PEXPIRE", keys.log, 60_000)
    await bus.store.call(keys.tag, "HSET", keys.base, "seq", kept)


async def _resets(bus: Bus, session_id: str) -> list[int]:
    return [entry.seq for entry in await bus.log.after(session_id, 0, 1000) if RESET in entry.event]


async def _read(reader: Reader, past: int) -> list[Entry]:
    """What a reader is given until it is past a number."""
    given: list[Entry] = []
    async with asyncio.timeout(10):
        while reader.position <= past:
            if isinstance(what := await reader.next(), list):
                given += what
    return given


async def test_the_log_goes_on_above_what_readers_know(a: Bus, b: Bus) -> None:
    session_id, _ = await a.owned()
    before = await a.log.head(session_id)
    known = before + 7
    head = await b.log.raise_to(session_id, known)
    assert head > known
    assert await _resets(a, session_id) == [head]
    assert await a.log.raise_to(session_id, known) == head
    assert await a.log.raise_to(session_id, head, replaced=known) == head, "it was told since"
    assert await a.log.raise_to(session_id, before) == head


async def test_an_event_in_the_place_of_another_is_told(a: Bus) -> None:
    session_id, outbox = await a.owned()
    feeds = Feeds(a.store, a.tasks)
    reader = await feeds.open(session_id, None)
    kept = reader.position
    for text in ("given", "given too"):
        a.sessions.append(outbox, [events.error(LogText(text))])
    assert await outbox.drained(5)
    await _read(reader, kept + 1)
    await _lose(a, session_id, kept)
    for number in range(2):  # the numbers are used again before anybody has looked
        a.sessions.append(outbox, [events.error(LogText(f"other {number}"))])
    assert await outbox.drained(5)
    await feeds.catch_up()
    (reset,) = await _resets(a, session_id)
    given = await _read(reader, reset - 1)
    assert RESET in given[-1].event
    await feeds.catch_up()
    assert await _resets(a, session_id) == [reset], "one loss is told once"
    reader.close()


async def test_a_gap_without_a_loss_is_not_told(a: Bus, b: Bus) -> None:
    """Also where the last event was pushed in another form than the log has."""
    session_id, outbox = await a.owned()
    client_id = await b.client(session_id)
    feeds = Feeds(a.store, a.tasks)
    reader = await feeds.open(session_id, None)
    await a.dispatch(outbox, client_id, "one", executing=b'{"a":"hidden"}')
    while b"client_tool_dispatched" not in (found := await reader.next())[-1].event:  # type: ignore[index]
        pass
    assert b"hidden" in found[-1].event  # type: ignore[index]
    await feeds.catch_up()
    assert await _resets(a, session_id) == []
    reader.close()


async def test_an_owner_whose_writes_are_lost_says_so_before_it_goes_on(a: Bus) -> None:
    session_id, outbox = await a.owned()
    a.sessions.append(outbox, [events.error(LogText("lost"))])
    assert await outbox.drained(5)
    known = await a.log.head(session_id)
    await _lose(a, session_id, known - 1)
    keys = a.store.keys.session(session_id)
    await a.store.call(keys.tag, "HINCRBY", keys.base, "op", -1)
    a.sessions.append(outbox, [events.error(LogText("after"))])
    assert await outbox.drained(5)
    last = (await a.log.after(session_id, 0, 1000))[-2:]
    assert RESET in last[0].event
    assert b"after" in last[1].event
    assert last[0].seq > known, "no number is given twice"


async def test_a_run_whose_end_is_lost_ends_when_its_owner_asks_for_the_next(a: Bus, b: Bus) -> None:
    session_id, outbox = await a.owned()
    client_id = await b.client(session_id)
    await a.dispatch(outbox, client_id, "open")
    next_run, _ = await b.submit(session_id)
    taken = await a.start_run(outbox)
    assert taken is not None
    assert taken.run_id == next_run
    record = await a.calls.get(session_id, "open")
    assert record is not None
    assert record.reason == "run_gone"
    assert (await a.types(session_id))[-4:] == ["client_tool_failed", "tool_result", "run_failed", "run_started"]


async def test_a_run_whose_start_is_lost_does_not_run_again(a: Bus) -> None:
    session_id = await a.session()
    run_id, _ = await a.submit(session_id)
    other, _ = await a.submit(session_id)
    outbox = a.outbox(session_id)
    a.sessions.append(outbox, [events.run_completed(run_id)], ends_run=run_id)
    taken = await a.start_run(outbox)
    assert taken is not None
    assert taken.run_id == other
    a.sessions.append(outbox, [events.run_completed(str(uuid4()))], ends_run=other)
    assert await a.start_run(outbox) is None
