"""Sessions: making, finding, ending them; their tokens, their owner, their inputs. Owns no rule that a script holds.

Guarantee: what an answer says has been applied on the primary before it is given (bridge 12, "Durable").
"""

from asyncio import Future
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from gateway.bus.errors import BusUnavailable
from gateway.bus.index import Session, SessionIndex
from gateway.bus.outbox import Outbox
from gateway.bus.replies import let_go
from gateway.bus.store import Store, text
from gateway.model import limits
from gateway.model.clean import LogText, ModelText
from gateway.model.errors import Code, Refusal
from gateway.model.events import EventPayload

_DELETE_CHUNK = 500
_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Idempotency:
    """An idempotency key as the bus keeps it: a digest of (who, route, key) and one of the request. Empty: none."""

    key: str = ""
    fingerprint: str = ""


NO_KEY = Idempotency()


@dataclass(frozen=True, slots=True)
class Created:
    """A session that was made, or that a replayed key had made: the token's id and expiry, never the token."""

    replayed: bool
    created_ms: int
    token_id: str
    token_expires_ms: int


@dataclass(frozen=True, slots=True)
class Token:
    """A live token's id and expiry."""

    token_id: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns a session: ``incarnation`` is empty when nobody does. ``epoch`` fences its writes."""

    node_name: str
    incarnation: str
    epoch: int


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """An input that was taken from the queue."""

    run_id: str
    prompt: ModelText


@dataclass(frozen=True, slots=True)
class Resumption:
    """What an owner needs to go on with a session."""

    agent_id: str
    child_session: str | None
    run_id: str | None
    catalog: bytes | None
    """The record of the session's catalog, opaque here (``services.catalogs``)."""
    written: bool
    """Whether somebody wrote under the present epoch: whoever begins now needs one of its own (``claim``)."""


class Sessions:
    """All sessions of the deployment."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.index = SessionIndex(store)

    async def create(
        self,
        session_id: str,
        *,
        agent_id: str,
        display_name: LogText,
        label: str,
        created: EventPayload,
        token_hash: str,
        token_id: str,
        token_ttl_ms: int,
        idempotency: Idempotency,
    ) -> Created:
        """Makes a session with its first token. Raises Refusal(IDEMPOTENCY_CONFLICT, CONFLICT)."""
        reply = await self._store.run(
            session_id,
            self._store.scripts.create,
            agent_id,
            display_name,
            label,
            created,
            token_hash,
            token_id,
            token_ttl_ms,
            idempotency.key,
            idempotency.fingerprint,
            again=bool(idempotency.key),
        )
        how, created_ms, first, expires = cast("list[bytes]", reply)
        await self.index.add(session_id, agent_id, int(created_ms))
        return Created(how == b"replayed", int(created_ms), first.decode(), int(expires))

    async def get(self, session_id: str) -> Session:
        """Raises Refusal(NOT_FOUND)."""
        session = await self.index.find(session_id)
        if session is None:
            raise Refusal(Code.NOT_FOUND)
        return session

    async def delete(self, session_id: str) -> None:
        """Removes all of a session; nothing happens where there is none. Its readers and its owner are told."""
        session = await self.index.find(session_id)
        if session is None:
            return
        while await self._store.run(session_id, self._store.scripts.delete, _DELETE_CHUNK, again=True):
            pass
        await self.index.remove(session_id, session.agent_id)

    # --- tokens

    async def add_token(
        self, session_id: str, token_hash: str, token_id: str, ttl_ms: int, idempotency: Idempotency
    ) -> tuple[bool, Token]:
        """Adds a token: (replayed, token). Raises Refusal."""
        reply = await self._store.run(
            session_id,
            self._store.scripts.token_add,
            token_hash,
            token_id,
            ttl_ms,
            idempotency.key,
            idempotency.fingerprint,
            limits.TOKENS_PER_SESSION,
            again=bool(idempotency.key),
        )
        how, first, expires = cast("list[bytes]", reply)
        return how == b"replayed", Token(first.decode(), int(expires))

    async def find_token(self, session_id: str, token_hash: str) -> Token | None:
        """The token of that hash, expired or not."""
        keys = self._store.keys.session(session_id)
        reply = await self._store.call(keys.tag, "HGET", keys.tokens, token_hash)
        if reply is None:
            return None
        token_id, _, expires = text(reply).partition(" ")
        return Token(token_id, int(expires))

    async def revoke_token(self, session_id: str, token_id: str) -> bool:
        """Whether there was such a token. Streams and sockets that stand on it are told at once."""
        return await self._store.run(session_id, self._store.scripts.token_revoke, token_id, again=True) == 1

    # --- owner and inputs

    async def owner(self, session_id: str) -> Owner:
        """Who owns the session now."""
        keys = self._store.keys.session(session_id)
        reply = await self._store.call(keys.tag, "HMGET", keys.base, "owner_name", "owner", "epoch")
        name, incarnation, epoch = cast("list[bytes | None]", reply)
        if epoch is None:
            raise Refusal(Code.NOT_FOUND)
        return Owner((name or b"").decode(), (incarnation or b"").decode(), int(epoch))

    async def submit(
        self,
        session_id: str,
        run_id: str,
        prompt: ModelText,
        queued: EventPayload,
        candidate: Owner | None,
        idempotency: Idempotency,
        *,
        shared: bool,
        home_wait_ms: int,
    ) -> tuple[str, Owner]:
        """Queues an input; where nobody owns the session, ``candidate`` does from now on, if it may: ``shared`` says
        that any node may, else the session's home alone. It waits for that ``home_wait_ms`` at most.

        Returns the run's id (the first one's, for a replayed key) and the owner. Raises Refusal(QUEUE_FULL, …).
        """
        reply = await self._store.run(
            session_id,
            self._store.scripts.input,
            run_id,
            run_id.encode() + prompt.encode(),
            queued,
            limits.QUEUED_RUNS,
            candidate.node_name if candidate else "",
            candidate.incarnation if candidate else "",
            int(shared),
            home_wait_ms,
            idempotency.key,
            idempotency.fingerprint,
            again=bool(idempotency.key),
        )
        first, incarnation, name, epoch = cast("list[bytes]", reply)
        return first.decode(), Owner(name.decode(), incarnation.decode(), int(epoch))

    async def claim(
        self, session_id: str, expected: str, heir: Owner | None, *, lost_run: LogText | None, home_wait_ms: int
    ) -> int | None:
        """Makes ``heir`` (None: nobody for now) the owner if ``expected`` (an incarnation, or empty) still is.

        ``lost_run``: what the log says of an active run that the expected owner leaves behind; its calls fail with it.
        None when it gives the session up by itself, between runs. Returns the new epoch, or None.
        """
        reply = await self._store.run(
            session_id,
            self._store.scripts.claim,
            expected,
            heir.node_name if heir else "",
            heir.incarnation if heir else "",
            _json(lost_run) if lost_run is not None else b"",
            home_wait_ms,
            again=False,
        )
        return int(cast("bytes", reply)) if reply != b"" else None

    def orphans(self, tag: str, gone: Sequence[str], count: int) -> "Future[object]":
        """Sessions of a partition that have work and no owner that lives (``read_orphans``); registrations that sockets
        of the ``gone`` held begin to count their lifetime."""
        keys, scripts = self._store.keys, self._store.scripts
        connection = self._store.topology.for_partition(tag)
        return connection.run(scripts.orphans, (keys.root(tag), keys.due(tag)), (count, *gone, self._store.stamp(tag)))

    async def resumption(self, session_id: str) -> Resumption:
        """What a new owner goes on with. Raises Refusal(NOT_FOUND)."""
        keys = self._store.keys.session(session_id)
        reply = await self._store.call(keys.tag, "HMGET", keys.base, "agent", "child_session", "run", "catalog", "op")
        agent, child, run, catalog, op = cast("list[bytes | None]", reply)
        if agent is None:
            raise Refusal(Code.NOT_FOUND)
        written = op is not None and int(op) > 0
        return Resumption(
            agent.decode(), child.decode() if child else None, run.decode() if run else None, catalog, written
        )

    async def catalog_record(self, session_id: str) -> bytes | None:
        """What the owners have recorded of the session's catalog; None before the first."""
        keys = self._store.keys.session(session_id)
        return cast("bytes | None", await self._store.call(keys.tag, "HGET", keys.base, "catalog"))

    def start_run(self, outbox: Outbox, then: Callable[[QueuedRun | None], None]) -> None:
        """Takes the next input, if one waits and none is active."""
        outbox.put(self._store.scripts.run_start, then=lambda reply: then(_queued(reply)))

    async def cancel(self, session_id: str, idempotency: Idempotency) -> tuple[str | None, str]:
        """Asks the owner to end the active run, or ends the oldest that waits: (run_id, active|queued|none)."""
        reply = await self._store.run(
            session_id,
            self._store.scripts.cancel,
            idempotency.key,
            idempotency.fingerprint,
            again=bool(idempotency.key),
        )
        run_id, kind = cast("list[bytes]", reply)
        return run_id.decode() or None, kind.decode()

    async def approve(
        self,
        session_id: str,
        approval_id: str,
        decision: str,
        resolved: EventPayload,
        result: EventPayload,
        idempotency: Idempotency,
    ) -> bytes:
        """Answers an approval: the event. Raises Refusal(NOT_FOUND, CONFLICT)."""
        reply = await self._store.run(
            session_id,
            self._store.scripts.approve,
            approval_id,
            decision,
            resolved,
            idempotency.key,
            idempotency.fingerprint,
            result,
            again=bool(idempotency.key),
        )
        return cast("bytes", reply)

    def append(
        self,
        outbox: Outbox,
        payloads: Sequence[EventPayload],
        *,
        ends_run: str = "",
        delivered: str = "",
        fields: Sequence[tuple[str, str]] = (),
    ) -> None:
        """The owner's events. ``ends_run``: the run that ends with them; its open calls fail as ``run_gone`` before.

        ``delivered``: what became of answers at the child, ``"id mark id mark"``. ``fields``: of the session; one that
        is named ``@id`` is the state of an approval, ``?id`` denies it (see the script).
        """
        flat = [item for pair in fields for item in pair]
        outbox.put(self._store.scripts.append, ends_run, delivered, len(fields), *flat, *payloads)

    def publish_delta(self, session_id: str, delta: bytes) -> None:
        """Pushes an unlogged delta to whoever reads now; loss is allowed, so nobody waits for it."""
        keys = self._store.keys.session(session_id)
        publish = "SPUBLISH" if self._store.topology.sharded else "PUBLISH"
        with suppress(BusUnavailable):  # a Cluster whose slots are not known
            let_go(self._store.topology.for_partition(keys.tag).call(publish, keys.push, b"D" + delta))


def read_orphans(reply: object) -> list[tuple[str, Owner]]:
    """Session ids and who owned them: the incarnation is empty where nobody did."""
    rows = [text(item) for item in cast("list[Any]", reply)]
    return [
        (session_id, Owner(home, incarnation, 0))
        for session_id, incarnation, home in zip(rows[::3], rows[1::3], rows[2::3], strict=True)
    ]


def _queued(reply: object) -> QueuedRun | None:
    if isinstance(reply, Exception) or not reply:
        return None
    entry = cast("bytes", reply)
    return QueuedRun(entry[:36].decode(), ModelText(entry[36:].decode()))
