"""Readers of logs on this node: one subscription per session, one encoding for all who read it.

Owns the hand-over from replay to live, without a gap and without a repeat. A push only hurries: a reader that sees a
gap, or is slower than the ring that its session keeps here, reads the log. So a slow reader costs no memory beyond its
position, loses nothing and slows nobody (redis.md, "Shape"; websocket protocol, "Pressure").
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.bus.calls import Calls
from gateway.bus.errors import BusUnavailable
from gateway.bus.log import Entry, Log
from gateway.bus.store import Store
from gateway.model.errors import Refusal
from gateway.model.events import seq_of
from gateway.observe.log import get_logger
from gateway.services.tasks import Tasks

_PAGE: Final = 200
_RING_EVENTS: Final = 512
_RING_BYTES: Final = 1024 * 1024
_DELTAS: Final = 256  # a reader that is further behind loses the oldest: they may be lost (bridge 8)
_HIDDEN: Final = b',"redacted":true}'  # how a script ends a dispatch whose executing form is elsewhere

log = get_logger("feeds")


@dataclass(frozen=True, slots=True)
class Signal:
    """What ends or changes a reader's right to read: ``deleted``, ``token <id>``, ``taken <holder> <client>``; ``gap``:
    such a signal may have been missed, so whoever stands on a token looks at it again."""

    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """An unlogged piece of a message, as JSON ``{message_id, part, text}``."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What was asked for is no longer kept: what follows begins at ``oldest``."""

    oldest: int


class _Hidden(msgspec.Struct):
    """The fields of a hidden dispatch that find its executing arguments."""

    call_id: str
    arguments: msgspec.Raw


class Feed:
    """What this node knows of one session's log: the head, a ring of the last events, who reads."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.head = 0
        self.readers: set[Reader] = set()
        self.ring: deque[Entry] = deque()
        self._ring_bytes = 0

    def receive(self, message: bytes) -> None:
        """One push: events, a delta or a signal. Whatever it is, it returns at once."""
        match message[:1]:
            case b"E":
                for event in message[1:].split(b"\n"):
                    self._add(Entry(seq_of(event), event))
            case b"D":
                for reader in self.readers:
                    reader.push_delta(message[1:])
            case b"X":
                kind, _, detail = message[1:].decode().partition(" ")
                for reader in self.readers:
                    reader.push_signal(Signal(kind, detail))
                return
            case _:
                raise ValueError("a push of an unknown kind")
        self.wake()

    def _add(self, entry: Entry) -> None:
        if entry.seq <= self.head:
            return
        if entry.seq != self.head + 1:  # a push was lost: what lies between stands in the log
            self.ring.clear()
            self._ring_bytes = 0
        self.head = entry.seq
        self.ring.append(entry)
        self._ring_bytes += len(entry.event)
        while len(self.ring) > _RING_EVENTS or (self._ring_bytes > _RING_BYTES and len(self.ring) > 1):
            self._ring_bytes -= len(self.ring.popleft().event)

    def raise_head(self, head: int) -> None:
        """The log is known to reach ``head``: after a subscription, and after a gap of it."""
        if head > self.head:
            self.head = head
            self.ring.clear()
            self._ring_bytes = 0
            self.wake()

    def kept_after(self, seq: int) -> list[Entry] | None:
        """The ring's events behind ``seq``, None when some of them are not in it."""
        missing = self.head - seq
        if missing > len(self.ring):
            return None
        return [self.ring[i] for i in range(len(self.ring) - missing, len(self.ring))]

    def wake(self) -> None:
        """Readers that wait look again."""
        for reader in self.readers:
            reader.wake()


class Reader:
    """One reader's place in a session's log. ``position`` is the seq of the last event that it was given."""

    def __init__(self, feeds: "Feeds", feed: Feed, position: int, *, deltas: bool) -> None:
        self.position = position
        self._feeds = feeds
        self._feed = feed
        self._deltas: deque[Delta] | None = deque(maxlen=_DELTAS) if deltas else None
        self._signals: deque[Signal] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self.closed = False

    @property
    def session_id(self) -> str:
        """Whose log is read."""
        return self._feed.session_id

    @property
    def head(self) -> int:
        """The last seq that this node knows of; it may be behind the log for a moment."""
        return self._feed.head

    def raise_head(self, head: int) -> None:
        """The log is known to reach ``head``."""
        self._feed.raise_head(head)

    @property
    def behind(self) -> bool:
        """Whether ``next`` would return at once."""
        return bool(self._signals or self._deltas) or self.position < self._feed.head

    def push_delta(self, body: bytes) -> None:
        """A delta came."""
        if self._deltas is not None:
            self._deltas.append(Delta(body))

    def push_signal(self, signal: Signal) -> None:
        """A signal came; it goes before everything that waits."""
        self._signals.append(signal)
        self.wake()

    def wake(self) -> None:
        """Lets a waiting ``next`` look again."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def next(self) -> list[Entry] | Delta | Signal | Trimmed:
        """What comes next: signals first, then events in order (never an empty list), then deltas.

        Waits without a bound of its own: the caller bounds it with its heartbeat. Raises BusUnavailable when the log
        cannot be read now; the position is kept, so the call may be repeated.
        """
        while True:
            if self._signals:
                return self._signals.popleft()
            if self.position < self._feed.head:
                return await self._read()
            if self._deltas:
                return self._deltas.popleft()
            if self._waiting is None or self._waiting.done():
                self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    async def _read(self) -> list[Entry] | Trimmed:
        kept = self._feed.kept_after(self.position)
        if kept is None:
            kept = await self._feeds.replay(self.session_id, self.position)
            if kept and kept[0].seq > self.position + 1:
                self.position = kept[0].seq - 1
                return Trimmed(kept[0].seq)
            if not kept:  # the log is gone or shorter than was said: whoever deleted it says so
                self.position = self._feed.head
                return Trimmed(self._feed.head + 1)
        self.position = kept[-1].seq
        return kept

    def close(self) -> None:
        """Gives the place up. Idempotent."""
        if not self.closed:
            self.closed = True
            self._feeds.drop(self._feed, self)


class Feeds:
    """All feeds of this node."""

    def __init__(self, store: Store, tasks: Tasks) -> None:
        self._store = store
        self._log = Log(store)
        self._calls = Calls(store)
        self._tasks = tasks
        self._feeds: dict[str, Feed] = {}
        self._opening: dict[str, asyncio.Task[Feed]] = {}

    def __len__(self) -> int:
        return len(self._feeds)

    async def open(self, session_id: str, after: int | None, *, deltas: bool = False) -> Reader:
        """A reader from behind ``after`` (None: the live head, fixed before this returns).

        Raises Refusal(NOT_FOUND), BusUnavailable.
        """
        feed = await self._feed(session_id)
        while self._feeds.get(session_id) is not feed:  # its last reader went while this one waited for its turn
            feed = await self._feed(session_id)
        reader = Reader(self, feed, feed.head if after is None else after, deltas=deltas)
        feed.readers.add(reader)
        return reader

    async def _feed(self, session_id: str) -> Feed:
        feed = self._feeds.get(session_id)
        if feed is not None:
            return feed
        opening = self._opening.get(session_id)
        if opening is None:
            opening = self._tasks.spawn("feeds.open", self._subscribe(session_id))
            self._opening[session_id] = opening
            opening.add_done_callback(lambda _: self._opening.pop(session_id, None))
        return await asyncio.shield(opening)

    async def _subscribe(self, session_id: str) -> Feed:
        keys = self._store.keys.session(session_id)
        feed = Feed(session_id)
        await self._store.topology.subscribe(keys.push, feed.receive)
        try:
            feed.raise_head(await self._log.head(session_id))
        except BaseException:
            self._store.topology.unsubscribe(keys.push, feed.receive)
            raise
        self._feeds[session_id] = feed
        return feed

    def drop(self, feed: Feed, reader: Reader) -> None:
        """A reader has gone; the last one ends the subscription."""
        feed.readers.discard(reader)
        if not feed.readers and self._feeds.get(feed.session_id) is feed:
            del self._feeds[feed.session_id]
            keys = self._store.keys.session(feed.session_id)
            self._store.topology.unsubscribe(keys.push, feed.receive)

    async def replay(self, session_id: str, after: int) -> list[Entry]:
        """A page of the log as a reader may have it: dispatches of open calls in their executing form (bridge 11)."""
        return await self.executing(session_id, await self._log.after(session_id, after, _PAGE))

    async def executing(self, session_id: str, entries: list[Entry]) -> list[Entry]:
        """Entries of the log as a reader may have them: dispatches of open calls in their executing form."""
        return [await self._executing(session_id, entry) for entry in entries]

    async def _executing(self, session_id: str, entry: Entry) -> Entry:
        if not entry.event.endswith(_HIDDEN):
            return entry
        hidden = msgspec.json.decode(entry.event, type=_Hidden)
        arguments = await self._calls.executing_arguments(session_id, hidden.call_id)
        if arguments is None:
            return entry
        return Entry(entry.seq, _replace_arguments(entry.event, bytes(hidden.arguments), arguments))

    async def catch_up(self) -> None:
        """After a gap of the subscription: every feed learns its log's head, and its readers read what they missed."""
        for session_id, feed in list(self._feeds.items()):
            signal = Signal("gap")
            try:
                feed.raise_head(await self._log.head(session_id))
            except Refusal:  # it was deleted meanwhile
                signal = Signal("deleted")
            except BusUnavailable as error:
                log.warning("a feed could not catch up", session_id=session_id, error=error)
                return
            for reader in list(feed.readers):
                reader.push_signal(signal)


def _replace_arguments(event: bytes, hidden: bytes, executing: bytes) -> bytes:
    """The event with its executing arguments. The scripts write ``"arguments":…,"attempt":`` and nothing else does."""
    head, _, rest = event.partition(b',"arguments":' + hidden + b',"attempt":')
    return head + b',"arguments":' + executing + b',"attempt":' + rest.removesuffix(_HIDDEN) + b"}"
