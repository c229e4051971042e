"""Registrations: who offers tools in a session. Owns the stored record; names and lapses are the scripts'.

A registration is held by a socket (``holder``: no lapse time, nothing renewed) or pings for its lifetime.
"""

from asyncio import Future
from dataclasses import dataclass
from typing import Any, cast

from gateway.bus.replies import all_answered
from gateway.bus.sessions import Idempotency
from gateway.bus.store import Store, text
from gateway.model import limits
from gateway.model.events import EventPayload, OpenPayload


@dataclass(frozen=True, slots=True)
class Stored:
    """A registration's record. ``tools`` is the stored list as it was given to ``register``; ``revision`` changes with
    it; ``expires_ms`` is None while a socket holds it and for a lifetime of ``never``; ``by_socket``: one made
    it and can resume it, so without a holder it is asleep."""

    client_id: str
    name: str
    order: int
    tools: bytes
    revision: int
    ttl_s: int
    key: str
    held: bool
    expires_ms: int | None
    by_socket: bool = False


@dataclass(frozen=True, slots=True)
class Resumed:
    """A registration that a socket took up: ``calls`` are its open calls' dispatched events as they are now."""

    name: str
    ttl_s: int
    calls: tuple[bytes, ...]


class Clients:
    """The registrations of all sessions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def register(
        self,
        session_id: str,
        client_id: str,
        *,
        name: str,
        ttl_s: int,
        lifetime: bytes,
        tools: bytes,
        registered: OpenPayload,
        key: str = "",
        resume_hash: str = "",
        holder: str = "",
        idempotency: Idempotency,
    ) -> bytes:
        """Adds a registration: the answer's JSON ``{id, name, expires_at}``, the first one for a replayed key.

        ``name`` as wanted, ``ttl_s`` 0 for a lifetime of ``never``, ``lifetime`` its JSON. Raises Refusal(CONFLICT, …).
        """
        reply = await self._store.run(
            session_id,
            self._store.scripts.register,
            client_id,
            name,
            ttl_s,
            registered,
            tools,
            lifetime,
            key,
            resume_hash,
            holder,
            idempotency.key,
            idempotency.fingerprint,
            limits.CLIENTS_PER_SESSION,
            limits.NAMES_PER_SESSION,
            again=bool(idempotency.key),
        )
        return cast("bytes", reply)

    async def replace_tools(self, session_id: str, client_id: str, tools: bytes, updated: EventPayload) -> bytes:
        """Replaces the whole list: the ``client_tools_updated`` event. Raises Refusal(NOT_FOUND)."""
        script = self._store.scripts.tools
        return cast("bytes", await self._store.run(session_id, script, client_id, tools, updated, again=False))

    def send_tools(self, session_id: str, client_id: str, tools: bytes, updated: EventPayload) -> Future[object]:
        """As ``replace_tools``, enqueued now; ``store.outcome`` reads the answer."""
        return self._store.send(
            self._store.keys.session(session_id), self._store.scripts.tools, client_id, tools, updated
        )

    async def ping(self, session_id: str, client_id: str) -> bytes:
        """The answer's JSON ``{expires_at}``. Raises Refusal(NOT_FOUND) only when the registration has ended."""
        return cast("bytes", await self._store.run(session_id, self._store.scripts.ping, client_id, again=True))

    async def leave(self, session_id: str, client_id: str) -> None:
        """Ends a registration; its open calls fail as ``client_gone``. Raises Refusal(NOT_FOUND)."""
        await self._store.run(session_id, self._store.scripts.leave, client_id, again=False)

    def send_leave(self, session_id: str, client_id: str) -> Future[object]:
        """As ``leave``, enqueued now; ``store.outcome`` reads the answer."""
        return self._store.send(self._store.keys.session(session_id), self._store.scripts.leave, client_id)

    async def release(self, session_id: str, client_id: str, holder: str) -> None:
        """The socket ``holder`` is gone: the lifetime counts from now, unless another holds the registration."""
        await self._store.run(session_id, self._store.scripts.release, client_id, holder, again=True)

    async def hold(self, session_id: str, client_id: str, holder: str) -> bool:
        """A socket still holds a registration whose lifetime began to count while its node was out of contact: whether
        it holds it now; not when it ended meanwhile or another socket took it up."""
        script = self._store.scripts.hold
        return await self._store.run(session_id, script, client_id, holder, again=True) == 1

    async def resume(
        self, session_id: str, client_id: str, resume_hash: str, holder: str, *, only_if_free: bool = False
    ) -> Resumed:
        """Takes a registration up, from whoever held it; with ``only_if_free`` not from another holder.

        Raises Refusal(NOT_FOUND) also for a wrong key.
        """
        reply = await self._store.run(
            session_id,
            self._store.scripts.resume,
            client_id,
            resume_hash,
            holder,
            "free" if only_if_free else "",
            again=True,
        )
        name, ttl, _previous, *calls = cast("list[bytes]", reply)
        return Resumed(name.decode(), int(ttl), tuple(calls))

    async def all(self, session_id: str) -> list[Stored]:
        """The live registrations in the order of their coming; at most 32."""
        keys = self._store.keys.session(session_id)
        connection = self._store.topology.for_partition(keys.tag)
        ids = [text(item) for item in cast("list[Any]", await connection.call("ZRANGE", keys.clients, 0, -1))]
        records = await all_answered([connection.call("HMGET", keys.client(client_id), *_FIELDS) for client_id in ids])
        found = [_stored(client_id, cast("list[Any]", record)) for client_id, record in zip(ids, records, strict=True)]
        return [stored for stored in found if stored is not None]


_FIELDS = ("name", "order", "tools", "revision", "ttl", "key", "holder", "expires", "resume")


def _stored(client_id: str, fields: list[Any]) -> Stored | None:
    if fields[0] is None:  # it left between the two reads
        return None
    name, order, tools, revision, ttl, key, holder, expires, resume = fields
    return Stored(
        client_id,
        text(name),
        int(order),
        tools,
        int(revision),
        int(ttl),
        text(key),
        bool(holder),
        int(expires) if expires is not None else None,
        bool(resume),
    )
