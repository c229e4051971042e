"""A session's log: the truth that every reader sees. Owns reading and the owner's appending; never an event's shape.

Ids are ``<seq>-0``: the stream is the index. What is asked for and no longer kept is not an error: a page begins at
the oldest event there is, and says which that was.
"""

from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.bus.keys import SessionKeys
from gateway.bus.store import Store
from gateway.model.errors import Code, Refusal

_FIELD: Final = 1  # of an entry's [name, value]


@dataclass(frozen=True, slots=True)
class Entry:
    """One event: its number and its encoded object, ``seq`` inside."""

    seq: int
    event: bytes


class Log:
    """The logs of all sessions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def head(self, session_id: str) -> int:
        """The last seq, 0 for an empty log. Raises Refusal(NOT_FOUND)."""
        keys = self._store.keys.session(session_id)
        seq = await self._store.call(keys.tag, "HGET", keys.base, "seq")
        if seq is None:
            raise Refusal(Code.NOT_FOUND)
        return int(cast("bytes", seq))

    async def raise_to(self, session_id: str, seq: int, replaced: int | None = None) -> int:
        """Readers know of events up to ``seq``: where a failover lost some of them the log goes on above, with a
        ``log_reset`` first (bridge 8). ``replaced``: one that they were given and whose number another event has by
        now. Returns the last seq."""
        args = (seq, "" if replaced is None else replaced)
        reply = await self._store.run(session_id, self._store.scripts.raise_log, *args, again=True)
        return int(cast("int", reply))

    async def oldest(self, session_id: str) -> int:
        """The first seq that is kept, 0 for an empty log."""
        keys = self._store.keys.session(session_id)
        entries = _entries(await self._store.call(keys.tag, "XRANGE", keys.log, "-", "+", "COUNT", 1))
        return entries[0].seq if entries else 0

    async def after(self, session_id: str, seq: int, count: int) -> list[Entry]:
        """Up to ``count`` events with a greater seq, in order; fewer than asked only at the head."""
        return await self._range(self._store.keys.session(session_id), "XRANGE", f"{seq + 1}-0", "+", count)

    async def page(
        self, session_id: str, *, after: int | None, before: int | None, descending: bool, count: int
    ) -> list[Entry]:
        """Up to ``count`` events with ``after < seq < before``, from the end that ``descending`` names."""
        low = "-" if after is None else f"{after + 1}-0"
        high = "+" if before is None else f"{before - 1}-0"
        if before is not None and before <= 1:
            return []
        keys = self._store.keys.session(session_id)
        if descending:
            return await self._range(keys, "XREVRANGE", high, low, count)
        return await self._range(keys, "XRANGE", low, high, count)

    async def _range(self, keys: SessionKeys, command: str, first: str, last: str, count: int) -> list[Entry]:
        return _entries(await self._store.call(keys.tag, command, keys.log, first, last, "COUNT", count))


def _entries(reply: object) -> list[Entry]:
    rows = cast("list[Any]", reply)
    return [Entry(int(bytes(row[0]).partition(b"-")[0]), row[1][_FIELD]) for row in rows]
