"""Readers of logs on this node: one subscription per session, one encoding for all who read it.

Owns the hand-over from replay to live, without a gap and without a repeat. A push only hurries: a reader that sees a
gap, or is slower than the ring that its session keeps here, reads the log. So a slow reader costs no memory beyond its
position, loses nothing and slows nobody (redis.md, "Shape"; websocket protocol, "Pressure").
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.bus.calls import Calls
from gateway.bus.errors import BusUnavailable
from gateway.bus.log import Entry, Log
from gateway.bus.store import Store
from gateway.model.errors import Code, Refusal
from gateway.model.events import seq_of
from gateway.observe import metrics
from gateway.observe.log import get_logger
from gateway.services.executing import ExecutingForms
from gateway.services.losses import head_after_gap
from gateway.services.pushes import Delta, Signal, Trimmed
from gateway.services.tasks import Tasks

_PAGE: Final = 200
_PAGE_FIRST: Final = 16
_PAGE_BYTES: Final = 256 * 1024
_RING_EVENTS: Final = 512
_RING_BYTES: Final = 1024 * 1024
_DELTAS: Final = 1_024
_DELTA_BYTES: Final = 256 * 1024

log = get_logger("feeds")


class Feed:
    """What this node knows of one session's log: the head, a ring of the last events, who reads."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.head = 0
        self.bytes_seen = 0  # of events, since this feed began
        self.readers: set[Reader] = set()
        self.given: Entry | None = None  # the last event that readers here were given, or are being given
        self.ring: deque[Entry] = deque()
        self._ring_bytes = 0
        self._kept: tuple[int, list[Entry]] | None = None  # what was last taken from the ring, and behind which seq

    def receive(self, message: bytes) -> None:
        """One push: events, a delta or a signal. Whatever it is, it returns at once."""
        match message[:1]:
            case b"E":
                for event in message[1:].split(b"\n"):
                    self._add(Entry(seq_of(event), event))
            case b"D":
                delta = Delta(message[1:])
                for reader in self.readers:
                    reader.push_delta(delta)
            case b"X":
                kind, _, detail = message[1:].decode().partition(" ")
                for reader in list(self.readers):  # a signal may end a reader at once
                    reader.push_signal(Signal(kind, detail))
                return
            case _:
                raise ValueError("a push of an unknown kind")
        self.wake()

    def _add(self, entry: Entry) -> None:
        if entry.seq <= self.head:
            return
        self._kept = None
        if entry.seq != self.head + 1:  # a push was lost: what lies between stands in the log
            self.ring.clear()
            self._ring_bytes = 0
        self.head, self.given = entry.seq, entry
        self.bytes_seen += len(entry.event)
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
            self._kept = None
            self.wake()

    def keeps_after(self, seq: int) -> bool:
        """Whether the ring has every event behind ``seq``."""
        return self.head - seq <= len(self.ring)

    def kept_after(self, seq: int) -> list[Entry] | None:
        """The ring's events behind ``seq``, None when some of them are not in it. Readers at one place are given one
        list, which nobody changes, so that whoever makes something of it can make it once."""
        if self._kept is None or self._kept[0] != seq:
            if not self.keeps_after(seq):
                return None
            self._kept = (seq, [self.ring[i] for i in range(seq - self.head, 0)])
        return self._kept[1]

    def wake(self) -> None:
        """Readers that wait look again."""
        for reader in list(self.readers):
            reader.wake()


class Reader:
    """One reader's place in a session's log. ``position`` is the seq of the last event that it was given.

    Either its owner waits in ``next``, or it gives ``on_ready``, which is called (at once, often) when ``poll`` may
    have something: so one task serves any number of readers. With both, ``on_ready`` calls ``resume``, or does not.
    """

    __slots__ = (
        "_caught_up_at",
        "_delta_bytes",
        "_deltas",
        "_feed",
        "_feeds",
        "_page",
        "_signals",
        "_waiting",
        "_wants_deltas",
        "closed",
        "on_ready",
        "position",
    )

    def __init__(
        self, feeds: "Feeds", feed: Feed, position: int, *, deltas: bool, on_ready: Callable[[], None] | None = None
    ) -> None:
        self.position = position
        self.closed = False
        self._feeds = feeds
        self._feed = feed
        self._wants_deltas = deltas
        self._deltas: deque[tuple[int, Delta]] | None = None  # each with the head at which it came
        self._delta_bytes = 0
        self._signals: list[Signal] = []
        self._waiting: asyncio.Future[None] | None = None
        self.on_ready = on_ready
        self._page = _PAGE_FIRST
        self._caught_up_at: int | None = None  # the feed's count of bytes when this reader was at its head

    @property
    def session_id(self) -> str:
        """Whose log is read."""
        return self._feed.session_id

    @property
    def head(self) -> int:
        """The log's last seq, as far as this node knows; it may be behind the log for a moment."""
        return self._feed.head

    def raise_head(self, head: int) -> None:
        """The log is known to reach ``head``."""
        self._feed.raise_head(head)

    @property
    def behind(self) -> bool:
        """Whether ``next`` would return at once."""
        return bool(self._signals or self._deltas) or self.position < self._feed.head

    @property
    def signalled(self) -> bool:
        """Whether a signal is what comes next."""
        return bool(self._signals)

    @property
    def must_read(self) -> bool:
        """Whether what comes next stands in the log alone: ``read`` gets it."""
        return self.position < self._feed.head and not self._feed.keeps_after(self.position)

    @property
    def lag_bytes(self) -> int:
        """Bytes of events that came since this reader was last at the head; 0 before it has been there."""
        return 0 if self._caught_up_at is None else self._feed.bytes_seen - self._caught_up_at

    def push_delta(self, delta: Delta) -> None:
        """A delta came, for all readers. The oldest go where too many wait: they may be lost (bridge 8)."""
        if not self._wants_deltas:
            return
        if self._deltas is None:
            self._deltas = deque()
        self._deltas.append((self._feed.head, delta))
        self._delta_bytes += len(delta.body)
        while self._delta_bytes > _DELTA_BYTES or len(self._deltas) > _DELTAS:
            self._delta_bytes -= len(self._deltas.popleft()[1].body)

    def push_signal(self, signal: Signal) -> None:
        """A signal came; it goes before everything that waits."""
        self._signals.append(signal)
        self.wake()

    def take_signal(self) -> Signal | None:
        """The next signal, before ``poll`` is due: a right that ended must not wait for a slow peer."""
        return self._signals.pop(0) if self._signals else None

    def wake(self) -> None:
        """Lets a waiting ``next`` look again, or tells the owner that ``poll`` may have something."""
        if self.on_ready is not None:
            self.on_ready()
        else:
            self.resume()

    def resume(self) -> None:
        """Lets a waiting ``next`` look again."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def poll(self) -> list[Entry] | Delta | Signal | None:
        """What comes next without waiting: signals first, then events (never an empty list) and deltas as they came.

        None when there is nothing, or when the log has to be read first (``must_read``).
        """
        if self._signals:
            return self._signals.pop(0)
        if self._deltas and (self._deltas[0][0] <= self.position or self.position >= self._feed.head):
            _, delta = self._deltas.popleft()
            self._delta_bytes -= len(delta.body)
            return delta
        if self.position < self._feed.head:
            kept = self._feed.kept_after(self.position)
            if kept is not None:
                if self._deltas:  # those that came before it go first
                    kept = kept[: self._deltas[0][0] - self.position]
                self.position = kept[-1].seq
                if self.position >= self._feed.head:
                    self._caught_up_at = self._feed.bytes_seen
            return kept
        self._caught_up_at = self._feed.bytes_seen
        return None

    async def next(self) -> list[Entry] | Delta | Signal | Trimmed:
        """As ``poll``, and it waits; what the ring has lost is read from the log.

        Waits without a bound of its own: the caller bounds it with its heartbeat. Raises BusUnavailable when the log
        cannot be read now; the position is kept, so the call may be repeated.
        """
        while True:
            if (found := self.poll()) is not None:
                return found
            if self.must_read:
                return await self.read()
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None

    async def read(self) -> list[Entry] | Trimmed:
        """A page of the log, some 256 KiB: how many events that are is learned from the last page.

        Raises BusUnavailable.
        """
        if self._caught_up_at is not None:  # it was live: what it missed was pushed and did not come, or came too fast
            metrics.GAPS_READ.inc()
        page = await self._feeds.replay(self.session_id, self.position, self._page)
        size = sum(len(entry.event) for entry in page)
        if size > _PAGE_BYTES:
            self._page = max(1, self._page * _PAGE_BYTES // size)
        elif 2 * size < _PAGE_BYTES:
            self._page = min(_PAGE, 2 * self._page)
        if page and page[0].seq > self.position + 1:
            self.position = page[0].seq - 1
            return Trimmed(page[0].seq)
        if not page:  # the log is gone or shorter than was said: whoever deleted it says so
            self.position = max(self.position, self._feed.head)
            return Trimmed(self.position + 1)
        self.position = page[-1].seq
        if self.position >= self._feed.head:
            self._feed.given = page[-1]
        return page

    def skip(self) -> int:
        """Moves on to the head, over what was not read: the new position."""
        self.position = self._feed.head
        self._caught_up_at = self._feed.bytes_seen
        self._deltas, self._delta_bytes = None, 0
        return self.position

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
        self.executing: Final = ExecutingForms(Calls(store))
        self._tasks = tasks
        self._feeds: dict[str, Feed] = {}
        self._opening: dict[str, asyncio.Task[Feed | None]] = {}

    def __len__(self) -> int:
        return len(self._feeds)

    async def open(
        self,
        session_id: str,
        after: int | None,
        *,
        deltas: bool = False,
        on_ready: Callable[[], None] | None = None,
    ) -> Reader:
        """A reader from behind ``after`` (None: the live head, fixed before this returns).

        Raises Refusal(NOT_FOUND), BusUnavailable.
        """
        feed = await self._feed(session_id)
        while self._feeds.get(session_id) is not feed:  # its last reader went while this one waited for its turn
            feed = await self._feed(session_id)
        reader = Reader(self, feed, feed.head if after is None else after, deltas=deltas, on_ready=on_ready)
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
        found = await asyncio.shield(opening)
        if found is None:
            raise Refusal(Code.NOT_FOUND)
        return found

    async def _subscribe(self, session_id: str) -> Feed | None:
        """The feed; None where there is no such session: that is its reader's mistake, and no failure of this task."""
        keys = self._store.keys.session(session_id)
        feed = Feed(session_id)
        await self._store.topology.subscribe(keys.push, feed.receive)
        try:
            feed.raise_head(await self._log.head(session_id))
        except Refusal:
            self._store.topology.unsubscribe(keys.push, feed.receive)
            return None
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

    async def replay(self, session_id: str, after: int, count: int = _PAGE) -> list[Entry]:
        """A page of the log as a reader may have it: dispatches of open calls in their executing form (bridge 11)."""
        return await self.executing.joined(session_id, await self._log.after(session_id, after, count))

    async def refresh(self, session_id: str) -> None:
        """Asks for the head of a log that is read here: a push may still be on its way. Raises BusUnavailable."""
        feed = self._feeds.get(session_id)
        if feed is not None:
            feed.raise_head(await self._log.head(session_id))

    async def catch_up(self) -> None:
        """After a gap of the subscription: every feed learns its log's head, and its readers read what they missed."""
        for feed, given in [(feed, feed.given) for feed in self._feeds.values()]:
            signal = Signal("gap")
            try:
                feed.raise_head(await head_after_gap(self._log, feed.session_id, feed.head, given))
            except Refusal:  # it was deleted meanwhile
                signal = Signal("deleted")
            except BusUnavailable as error:
                log.warning("a feed could not catch up", session_id=feed.session_id, error=error)
                return
            for reader in list(feed.readers):
                reader.push_signal(signal)
