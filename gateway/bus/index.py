"""Finding sessions: one by its id, many by their agents. Owns the index of sessions and its repair.

The index is one sorted set per agent, in another slot than the sessions: it may lack a session whose maker died between
two commands, and hold one that has ended. Whoever reads an entry whose session is gone removes it.
"""

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.bus.replies import all_answered
from gateway.bus.store import Store, text
from gateway.model.errors import Code, Refusal

_FIELDS: Final = ("agent", "display", "label", "created", "run")
_REPAIRED: Final = 200  # entries that are looked at to make room


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


class SessionIndex:
    """All sessions, by agent and creation."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, session_id: str) -> Session | None:
        """One session, None where there is none."""
        return (await self._read([session_id]))[0]

    async def _read(self, session_ids: Sequence[str]) -> list[Session | None]:
        """Sessions by id; their commands go out together."""
        keys = [self._store.keys.session(session_id) for session_id in session_ids]
        replies = await all_answered([self._store.call(one.tag, "HMGET", one.base, *_FIELDS) for one in keys])
        return [
            _session(session_id, cast("list[bytes | None]", reply))
            for session_id, reply in zip(session_ids, replies, strict=True)
        ]

    async def add(self, session_id: str, agent_id: str, created_ms: int) -> None:
        """A session was made."""
        await self._command("ZADD", agent_id, created_ms, session_id)

    async def remove(self, session_id: str, agent_id: str) -> None:
        """A session has ended."""
        await self._command("ZREM", agent_id, session_id)

    def _command(self, command: str, agent_id: str, *args: str | int) -> Coroutine[Any, Any, object]:
        keys = self._store.keys
        return self._store.call(keys.index_tag, command, keys.index(agent_id), *args)

    async def has_room(self, agent_ids: Sequence[str], most: int) -> bool:
        """Whether there are fewer than ``most`` sessions; the oldest entries are repaired first where there are not."""
        if await self._count(agent_ids) < most:
            return True
        for agent_id in agent_ids:
            ids = [text(item) for item in cast("list[Any]", await self._command("ZRANGE", agent_id, 0, _REPAIRED - 1))]
            for session_id, session in zip(ids, await self._read(ids), strict=True):
                if session is None:
                    await self.remove(session_id, agent_id)
        return await self._count(agent_ids) < most

    async def _count(self, agent_ids: Sequence[str]) -> int:
        replies = await all_answered([self._command("ZCARD", agent_id) for agent_id in agent_ids])
        return sum(cast("list[int]", replies))

    async def page(
        self, agent_ids: Sequence[str], *, after: str | None, ascending: bool, count: int
    ) -> tuple[list[Session], str | None]:
        """Sessions of some agents by creation, newest first unless ``ascending``, behind the session ``after``.

        Returns them and the next cursor. Raises Refusal(INVALID_REQUEST) for a cursor that is no session of theirs.
        """
        start: Session | None = None
        if after is not None:
            start = await self.find(after)
            if start is None or start.agent_id not in agent_ids:
                raise Refusal(Code.INVALID_REQUEST, "after: names no session")
        found: list[Session] = []
        for agent_id in agent_ids:
            found += await self._page_of_agent(agent_id, start, ascending=ascending, count=count + 1)
        found.sort(key=_place, reverse=not ascending)
        page = found[:count]
        return page, page[-1].session_id if len(found) > count else None

    async def _page_of_agent(
        self, agent_id: str, start: Session | None, *, ascending: bool, count: int
    ) -> list[Session]:
        command = "ZRANGEBYSCORE" if ascending else "ZREVRANGEBYSCORE"
        first = ("-inf" if ascending else "+inf") if start is None else str(start.created_ms)
        last = "+inf" if ascending else "-inf"
        found: list[Session] = []
        offset = 0
        while len(found) < count:
            reply = await self._command(command, agent_id, first, last, "LIMIT", offset, count)
            ids = [text(item) for item in cast("list[Any]", reply)]
            if not ids:
                break
            for session_id, session in zip(ids, await self._read(ids), strict=True):
                if session is None:
                    await self.remove(session_id, agent_id)
                    continue
                offset += 1
                if start is None or _behind(session, start, ascending=ascending):
                    found.append(session)
        return found[:count]


def _session(session_id: str, fields: list[bytes | None]) -> Session | None:
    agent, display, label, created, run = fields
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


def _place(session: Session) -> tuple[int, str]:
    return session.created_ms, session.session_id


def _behind(session: Session, start: Session, *, ascending: bool) -> bool:
    return _place(session) > _place(start) if ascending else _place(session) < _place(start)
