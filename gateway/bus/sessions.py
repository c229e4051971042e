"""Sessions: making, finding, ending them; their tokens, their owner, their inputs. Owns no rule that a script holds.

Guarantee: what an answer says has been applied on the primary before it is given (bridge 12, "Durable").
"""

from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from gateway.bus.outbox import Outbox
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
class Session:
    """What is known of a session. Instants in milliseconds of the bus clock."""

    session_id: str
    agent_id: str
    display_name: str
    label: str
    created_ms: int
    run_id: str | None

    @property
    def active(self) -> bool:
        """Whether a run is active now."""
        return self.run_id is not None


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
    written: bool
    """Whether somebody wrote under the present epoch: whoever begins now needs one of its own (``claim``)."""


class Sessions:
    """All sessions of the deployment."""

    def __init__(self, store: Store) -> None:
        self._store = store

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
        await self._index(session_id, agent_id, int(created_ms))
        return Created(how == b"replayed", int(created_ms), first.decode(), int(expires))

    async def _index(self, session_id: str, agent_id: str, created_ms: int) -> None:
        keys = self._store.keys
        await self._store.call(keys.index_tag, "ZADD", keys.index(agent_id), created_ms, session_id)

    async def get(self, session_id: str) -> Session:
        """Raises Refusal(NOT_FOUND)."""
        session = await self._find(session_id)
        if session is None:
            raise Refusal(Code.NOT_FOUND)
        return session

    async def _find(self, session_id: str) -> Session | None:
        keys = self._store.keys.session(session_id)
        reply = await self._store.call(keys.tag, "HMGET", keys.base, "agent", "display", "label", "created", "run")
        agent, display, label, created, run = cast("list[bytes | None]", reply)
        if agent is None or created is None:
            return None
        return Session(
            session_id,
            agent.decode(),
            (display or b"").decode(),
            (label or b"").decode(),
            int(created),
            run.decode() if run is not None else None,
        )

    async def page(
        self, agent_ids: Sequence[str], *, after: str | None, ascending: bool, count: int
    ) -> tuple[list[Session], str | None]:
        """Sessions of some agents by creation, newest first unless ``ascending``, behind the session ``after``.

        Returns them and the next cursor. An index entry whose session is gone is removed on the way (its repair rule).
        Raises Refusal(INVALID_REQUEST) for a cursor that names no session.
        """
        start: int | None = None
        if after is not None:
            session = await self._find(after)
            if session is None:
                raise Refusal(Code.INVALID_REQUEST, "after: names no session")
            start = session.created_ms
        found: list[Session] = []
        for agent_id in agent_ids:
            found += await self._page_of_agent(agent_id, start, after, ascending=ascending, count=count + 1)
        found.sort(key=lambda s: (s.created_ms, s.session_id), reverse=not ascending)
        page = found[:count]
        return page, page[-1].session_id if len(found) > count else None

    async def _page_of_agent(
        self, agent_id: str, start: int | None, after: str | None, *, ascending: bool, count: int
    ) -> list[Session]:
        keys = self._store.keys
        index = keys.index(agent_id)
        found: list[Session] = []
        offset = 0
        while len(found) < count:
            command = "ZRANGEBYSCORE" if ascending else "ZREVRANGEBYSCORE"
            bound = ("-inf" if ascending else "+inf") if start is None else str(start)
            other = "+inf" if ascending else "-inf"
            reply = await self._store.call(keys.index_tag, command, index, bound, other, "LIMIT", offset, count)
            ids = [text(item) for item in cast("list[Any]", reply)]
            if not ids:
                break
            offset += len(ids)
            for session_id in ids:
                session = await self._find(session_id)
                if session is None:
                    await self._store.call(keys.index_tag, "ZREM", index, session_id)
                    offset -= 1
                elif _behind(session, start, after, ascending=ascending):
                    found.append(session)
        return found[:count]

    async def count(self, agent_ids: Sequence[str]) -> int:
        """How many sessions the agents have by their indexes: never fewer than there are."""
        keys = self._store.keys
        connection = self._store.topology.for_partition(keys.index_tag)
        replies = [connection.call("ZCARD", keys.index(agent_id)) for agent_id in agent_ids]
        return sum([cast("int", await reply) for reply in replies])

    async def delete(self, session_id: str) -> None:
        """Removes all of a session; nothing happens where there is none. Its readers and its owner are told."""
        session = await self._find(session_id)
        if session is None:
            return
        while await self._store.run(session_id, self._store.scripts.delete, _DELETE_CHUNK, again=True):
            pass
        keys = self._store.keys
        await self._store.call(keys.index_tag, "ZREM", keys.index(session.agent_id), session_id)

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
        return connection.run(scripts.orphans, (keys.root(tag), keys.due(tag)), (count, *gone))

    async def resumption(self, session_id: str) -> Resumption:
        """What a new owner goes on with. Raises Refusal(NOT_FOUND)."""
        keys = self._store.keys.session(session_id)
        reply = await self._store.call(keys.tag, "HMGET", keys.base, "agent", "child_session", "run", "op")
        agent, child, run, op = cast("list[bytes | None]", reply)
        if agent is None:
            raise Refusal(Code.NOT_FOUND)
        written = op is not None and int(op) > 0
        return Resumption(agent.decode(), child.decode() if child else None, run.decode() if run else None, written)

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
        is named ``@id`` is the state of an approval.
        """
        flat = [item for pair in fields for item in pair]
        outbox.put(self._store.scripts.append, ends_run, delivered, len(fields), *flat, *payloads)

    def publish_delta(self, session_id: str, delta: bytes) -> None:
        """Pushes an unlogged delta to whoever reads now; loss is allowed, so nobody waits for it."""
        keys = self._store.keys.session(session_id)
        self._store.topology.for_partition(keys.tag).call(
            "SPUBLISH" if self._store.topology.sharded else "PUBLISH", keys.push, b"D" + delta
        )


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


def _behind(session: Session, start: int | None, after: str | None, *, ascending: bool) -> bool:
    if start is None or after is None:
        return True
    here, there = (session.created_ms, session.session_id), (start, after)
    return here > there if ascending else here < there
