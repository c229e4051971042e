"""Calls on the bus. Owns the typed use of the call scripts; the rules are ``gateway/model/call.py``'s table.

Guarantee: a call settles once, whoever races: an answer, a lapse, a timer and a cancel are steps of one script each,
and the second to come is told what the first did.
"""

from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from gateway.bus.outbox import Outbox
from gateway.bus.replies import all_answered
from gateway.bus.store import Store, text
from gateway.model.call import Event
from gateway.model.clean import DispatchJson, LogJson, LogText
from gateway.model.errors import Code, Refusal
from gateway.model.events import EventPayload


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A call for a client. ``arguments`` as the log shows them; ``executing`` as the client gets them, None where that
    is the same; ``before`` is logged in front: closed messages, the ``tool_call`` block, ``tool_call``."""

    call_id: str
    client_id: str
    revision: int
    tool: str
    model_name: str
    run_id: str
    idempotent: bool
    arguments: LogJson
    executing: DispatchJson | None
    before: Sequence[EventPayload]


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The call is on its way; ``due_ms`` is what it waits for first."""

    due_ms: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """Not dispatched, and nothing was logged: the client is ``gone``, its list has changed (``stale``), or there is
    a call of this id already (``refused``)."""

    why: str


Reply = Dispatched | Undeliverable


@dataclass(frozen=True, slots=True)
class Record:
    """A call as it stands. Instants in milliseconds of the bus clock; ``answer`` is what the child is to get;
    ``refused_text`` (JSON) what the model is told when a refused answer was not corrected in time."""

    call_id: str
    client_id: str
    tool: str
    model_name: str
    run_id: str
    state: str
    attempt: int
    reason: str | None
    outcome: str | None
    delivery: str | None
    dispatched_ms: int
    due_ms: int
    deadline_ms: int
    settled_ms: int | None
    answer: bytes | None
    refused_text: bytes | None


class Calls:
    """The calls of all sessions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def dispatch(
        self, outbox: Outbox, call: Dispatch, *, until: float, delivered: str, then: Callable[[Reply], None]
    ) -> None:
        """The owner's dispatch; the call's deadline is ``until`` (the loop's time). ``then`` is told what came."""
        outbox.put(
            self._store.scripts.dispatch,
            call.call_id,
            call.client_id,
            call.revision,
            call.tool,
            call.model_name,
            call.run_id,
            int(call.idempotent),
            call.arguments,
            call.executing if call.executing is not None else b"",
            delivered,
            *call.before,
            until=until,
            then=lambda reply: then(_dispatched(reply)),
        )

    async def ack(self, session_id: str, client_id: str, call_id: str) -> bytes:
        """The ``client_tool_acked`` event, the same one for a repeat. Raises Refusal(NOT_FOUND, CONFLICT)."""
        return cast("bytes", await self._store.run(session_id, self._store.scripts.ack, client_id, call_id, again=True))

    def send_ack(self, session_id: str, client_id: str, call_id: str) -> Future[object]:
        """As ``ack``, enqueued now; ``store.outcome`` reads the answer."""
        return self._store.send(self._store.keys.session(session_id), self._store.scripts.ack, client_id, call_id)

    async def answer(
        self, session_id: str, client_id: str, call_id: str, *, digest: str, answer: bytes, result: EventPayload
    ) -> None:
        """Settles a call with its answer; the same answer again is fine. ``answer`` is opaque here: what the child is
        to get, already redacted. Raises Refusal(NOT_FOUND, CONFLICT)."""
        script = self._store.scripts.answer
        await self._store.run(session_id, script, client_id, call_id, digest, answer, result, again=True)

    def send_answer(
        self, session_id: str, client_id: str, call_id: str, *, digest: str, answer: bytes, result: EventPayload
    ) -> Future[object]:
        """As ``answer``, enqueued now; ``store.outcome`` reads the answer."""
        return self._store.send(
            self._store.keys.session(session_id),
            self._store.scripts.answer,
            client_id,
            call_id,
            digest,
            answer,
            result,
        )

    async def refuse(self, session_id: str, client_id: str, call_id: str, said: LogText) -> int:
        """An answer was not valid: the instant by which a valid one must come, 0 when the call is settled already.

        ``said`` is what the model is told if none comes.
        """
        script = self._store.scripts.refuse
        return _number(await self._store.run(session_id, script, client_id, call_id, _json(said), again=True))

    def expire(self, outbox: Outbox, call_id: str, then: Callable[[int], None]) -> None:
        """The owner's timer fired: ``then`` gets the instant that the call waits for now, 0 when it is settled, -1 when
        a failover has lost it."""
        outbox.put(self._store.scripts.expire, call_id, then=lambda reply: then(_number(reply)))

    def end(self, outbox: Outbox, call_id: str, event: Event, detail: str = "") -> None:
        """The owner ends a call: ``END`` when the child cancelled it, ``TIMEOUT`` when its clock ran out."""
        outbox.put(self._store.scripts.end_call, call_id, event.value, detail)

    async def get(self, session_id: str, call_id: str) -> Record | None:
        """One call's record, None when there is none (any more)."""
        keys = self._store.keys.session(session_id)
        fields = await self._store.call(keys.tag, "HMGET", keys.call(call_id), *_FIELDS)
        return _record(call_id, cast("list[Any]", fields))

    async def open(self, session_id: str) -> dict[str, str]:
        """Call id to client id of the open calls; at most sixteen of a child."""
        keys = self._store.keys.session(session_id)
        flat = [text(item) for item in cast("list[Any]", await self._store.call(keys.tag, "HGETALL", keys.open_calls))]
        return dict(zip(flat[::2], flat[1::2], strict=True))

    async def executing_arguments(self, session_id: str, call_ids: Sequence[str]) -> list[bytes | None]:
        """The arguments as the client gets them, of each call that is open (bridge 11); None of others."""
        keys = self._store.keys.session(session_id)
        connection = self._store.topology.for_partition(keys.tag)
        replies = await all_answered([connection.call("HGET", keys.call(call_id), "args") for call_id in call_ids])
        return [cast("bytes | None", reply) or None for reply in replies]  # a settled call's are empty

    async def page(self, session_id: str, after: str | None, count: int) -> tuple[list[Record], str | None]:
        """Up to ``count`` of the session's calls, newest first, behind the call ``after``; and the cursor that goes on.

        Raises Refusal(INVALID_REQUEST) for a cursor that names no call.
        """
        keys = self._store.keys.session(session_id)
        connection = self._store.topology.for_partition(keys.tag)
        start = 0
        if after is not None:
            rank = await connection.call("ZREVRANK", keys.calls, after)
            if rank is None:
                raise Refusal(Code.INVALID_REQUEST, "after: names no call")
            start = _number(rank) + 1
        reply = await connection.call("ZREVRANGE", keys.calls, start, start + count - 1)
        ids = [text(item) for item in cast("list[Any]", reply)]
        rows = await all_answered([connection.call("HMGET", keys.call(call_id), *_FIELDS) for call_id in ids])
        found = [_record(call_id, cast("list[Any]", row)) for call_id, row in zip(ids, rows, strict=True)]
        return [record for record in found if record is not None], ids[-1] if len(ids) == count else None


_FIELDS = (
    "client",
    "tool",
    "model",
    "run",
    "state",
    "attempt",
    "reason",
    "outcome",
    "delivery",
    "dispatched",
    "due",
    "deadline",
    "settled",
    "answer",
    "refused_text",
)

_json = msgspec.json.Encoder().encode


def _number(reply: object) -> int:
    return int(cast("bytes | int", reply)) if not isinstance(reply, Exception) else 0


def _dispatched(reply: object) -> Reply:
    if isinstance(reply, Exception):
        return Undeliverable("refused")
    rows = cast("list[bytes]", reply)
    if rows[0] != b"dispatched":
        return Undeliverable(rows[0].decode())
    return Dispatched(int(rows[1]), int(rows[2]))


def _record(call_id: str, fields: list[Any]) -> Record | None:
    if fields[0] is None:
        return None
    client, tool, model, run, state, attempt, reason, outcome, delivery, dispatched, due, deadline = fields[:12]
    settled, answer, refused_text = fields[12:]
    return Record(
        call_id,
        text(client),
        text(tool),
        text(model),
        text(run),
        text(state),
        int(attempt),
        text(reason) if reason else None,
        text(outcome) if outcome else None,
        text(delivery) if delivery else None,
        int(dispatched),
        int(due),
        int(deadline),
        int(settled) if settled else None,
        answer,
        refused_text,
    )
