"""Channels to callbacks over one subscribed socket at a time, and what the server's answers make of them.

Owns who wants which channel, the SUBSCRIBE and UNSUBSCRIBE that are on their way, and the confirmations. Never connects
and never waits: ``subscriber`` hands it a socket and takes it away again, and no want is forgotten in between.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from gateway.bus.errors import BusError, BusUnavailable, Kind, Redirect
from gateway.bus.wire import Wire

if TYPE_CHECKING:
    from asyncio import Future

logger = logging.getLogger(__name__)

_CHANNELS_PER_COMMAND: Final = 256
_MESSAGES: Final = frozenset({b"message", b"smessage"})
_CONFIRMED: Final = frozenset({b"subscribe", b"ssubscribe"})
_ENDED: Final = frozenset({b"unsubscribe", b"sunsubscribe"})

Callback = Callable[[bytes], None]
"""Takes a message's payload, at once and without waiting. What it raises is logged and counted."""


@dataclass(slots=True, eq=False)
class _Channel:
    callbacks: tuple[Callback, ...] = ()  # replaced, never changed: a callback may unsubscribe
    waiters: "list[Future[None]]" = field(default_factory=list["Future[None]"])
    requested: bool = False  # the last command of this socket for it was a subscription
    unconfirmed: int = 0  # commands for it without an answer


@dataclass(slots=True, eq=False)
class _Batch:
    """One SUBSCRIBE or UNSUBSCRIBE: it is answered by a confirmation per channel, or by one error."""

    names: set[bytes]
    subscribes: bool


class Channels:
    """What is wanted, and what the present socket has of it.

    ``sharded`` uses SSUBSCRIBE. ``vital`` is the channel without which a socket cannot be trusted: it ends when the
    server refuses that one.
    """

    def __init__(self, *, sharded: bool, vital: bytes) -> None:
        self.received = 0  # messages
        self.failures = 0  # callbacks that raised
        self.vital = vital
        self.on_moved: Callable[[bytes], None] | None = None  # a channel whose slot another server has now
        self._prefix = "S" if sharded else ""
        self._per_command = 1 if sharded else _CHANNELS_PER_COMMAND  # one command has one slot
        self._channels: dict[bytes, _Channel] = {}
        self._dirty: dict[bytes, None] = {}
        self._batches: deque[_Batch] = deque()
        self._awaited = 0  # batches of the resubscription
        self._resubscribed: Future[None] | None = None
        self._wire: Wire | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._channels)

    # --- the socket

    def attach(self, wire: Wire) -> "Future[None]":
        """Uses a new socket; the future is done when it has every channel that is wanted now."""
        self._wire = wire
        wire.listen(self._reply)
        self._dirty = dict.fromkeys(self._channels)
        self._flush()
        self._awaited = len(self._batches)
        self._resubscribed = asyncio.get_running_loop().create_future()
        return self._resubscribed

    def detach(self) -> None:
        """The socket has ended: nothing is subscribed any more, and everything is wanted still."""
        self._wire = None
        self._batches.clear()
        self._dirty.clear()
        self._awaited = 0
        for name, entry in list(self._channels.items()):
            entry.requested, entry.unconfirmed = False, 0
            if not entry.callbacks:
                del self._channels[name]

    def close(self) -> None:
        """Nothing is wanted any more; whoever waits for a confirmation gets ``BusUnavailable(CLOSED)``."""
        self._closed = True
        for entry in self._channels.values():
            self._settle(entry, BusUnavailable(Kind.CLOSED))
        self._channels.clear()

    # --- who wants what

    def subscribe(self, channel: bytes, callback: Callback) -> "Future[None]":
        """As ``Subscriber.subscribe``."""
        future: Future[None] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_exception(BusUnavailable(Kind.CLOSED))
            return future
        entry = self._channels.setdefault(channel, _Channel())
        entry.callbacks += (callback,)
        self._wait(channel, entry, future)
        return future

    def unsubscribe(self, channel: bytes, callback: Callback) -> None:
        """As ``Subscriber.unsubscribe``."""
        entry = self._channels.get(channel)
        if entry is None or callback not in entry.callbacks:
            return
        left = list(entry.callbacks)
        left.remove(callback)
        entry.callbacks = tuple(left)
        if not left:
            self._settle(entry, BusUnavailable(Kind.CLOSED, detail="unsubscribed"), heard=False)
            self.ask_again(channel)

    def resubscribe(self, channel: bytes) -> "Future[None]":
        """As ``Subscriber.resubscribe``."""
        future: Future[None] = asyncio.get_running_loop().create_future()
        entry = self._channels.get(channel)
        if entry is None or not entry.callbacks:
            future.set_result(None)
        else:
            self._wait(channel, entry, future)
        return future

    def want(self, channel: bytes, callback: Callback) -> None:
        """Makes ``callback`` the only one of a channel, and waits for no confirmation."""
        self._channels.setdefault(channel, _Channel()).callbacks = (callback,)
        self.ask_again(channel)

    def confirmed(self, channel: bytes) -> bool:
        """True while the server sends what is published there."""
        entry = self._channels.get(channel)
        return entry is not None and entry.requested and not entry.unconfirmed

    def ask_again(self, channel: bytes) -> None:
        """Compares a channel with what is wanted, at the end of this turn of the loop."""
        if not self._dirty and self._wire is not None:
            asyncio.get_running_loop().call_soon(self._flush)
        self._dirty[channel] = None

    def _wait(self, channel: bytes, entry: _Channel, future: "Future[None]") -> None:
        if entry.requested and not entry.unconfirmed:
            future.set_result(None)
        else:
            entry.waiters.append(future)
            self.ask_again(channel)

    def _flush(self) -> None:
        """Sends what this turn of the loop has changed."""
        if self._wire is None:
            return
        dirty, self._dirty = self._dirty, {}
        wanted: list[bytes] = []
        unwanted: list[bytes] = []
        for name in dirty:
            entry = self._channels.get(name)
            if entry is None:
                continue
            if entry.callbacks and not entry.requested:
                wanted.append(name)
            elif not entry.callbacks and entry.requested:
                unwanted.append(name)
            elif not entry.callbacks and not entry.unconfirmed:
                del self._channels[name]
            elif not entry.unconfirmed:
                self._settle(entry, None)
        self._send(unwanted, subscribes=False)
        self._send(wanted, subscribes=True)

    def _send(self, names: list[bytes], *, subscribes: bool) -> None:
        if self._wire is None:
            return
        verb = f"{self._prefix}{'' if subscribes else 'UN'}SUBSCRIBE"
        for start in range(0, len(names), self._per_command):
            part = names[start : start + self._per_command]
            for name in part:
                self._channels[name].requested = subscribes
                self._channels[name].unconfirmed += 1
            self._batches.append(_Batch(set(part), subscribes))
            self._wire.post((verb, *part))

    # --- what the server says

    def _reply(self, reply: object) -> None:
        if isinstance(reply, list):
            parts = cast("list[object]", reply)
            kind, name = parts[0], parts[1]
            if kind in _MESSAGES:
                self.received += 1
                self._deliver(cast("bytes", name), cast("bytes", parts[2]))
            elif kind in _CONFIRMED:
                self._answered(cast("bytes", name), subscribes=True)
            elif kind in _ENDED:
                self._answered(cast("bytes", name), subscribes=False)
        elif isinstance(reply, BusError):
            self._refused(reply)

    def _deliver(self, name: bytes, payload: bytes) -> None:
        entry = self._channels.get(name)
        if entry is None:
            return
        for callback in entry.callbacks:
            try:
                callback(payload)
            except Exception:
                self.failures += 1
                logger.exception("a callback of a subscription failed")

    def _answered(self, name: bytes, *, subscribes: bool) -> None:
        batch = self._batches[0] if self._batches else None
        if batch is None or batch.subscribes is not subscribes or name not in batch.names:
            if not subscribes:
                self._moved(name)  # a slot went to another server: nobody asked for this
            return
        batch.names.discard(name)
        self._confirm(name)
        if not batch.names:
            self._batches.popleft()
            self._batch_done()

    def _confirm(self, name: bytes) -> None:
        entry = self._channels.get(name)
        if entry is None:
            return
        entry.unconfirmed -= 1
        if entry.unconfirmed:
            return
        if entry.requested:
            self._settle(entry, None)
        elif not entry.callbacks:
            del self._channels[name]

    def _refused(self, error: BusError) -> None:
        batch = self._batches.popleft() if self._batches else None
        moved = isinstance(error, Redirect)
        if batch is None or (batch.names == {self.vital} and not moved):
            # Nothing to blame it on, or what tells a live socket from a dead one is refused.
            if self._wire is not None:
                self._wire.abort(error.kind if isinstance(error, BusUnavailable) else Kind.PROTOCOL)
            return
        alone = len(batch.names) == 1
        for name in batch.names:
            entry = self._channels[name]
            entry.unconfirmed -= 1
            if not batch.subscribes:
                continue
            entry.requested = False
            if moved:
                self._moved(name)
            elif alone:
                entry.callbacks = ()
                self._settle(entry, error)
                self.ask_again(name)
            else:
                self._awaited += 1 if self._awaited else 0
                self._send([name], subscribes=True)  # one refused channel takes no others with it
        self._batch_done()

    def _moved(self, name: bytes) -> None:
        entry = self._channels.get(name)
        if entry is None:
            return
        entry.requested = False
        if self.on_moved is not None:
            self.on_moved(name)
        elif self._wire is not None:
            self._wire.abort(Kind.DOWN)

    def _batch_done(self) -> None:
        if self._awaited:
            self._awaited -= 1
            if not self._awaited and self._resubscribed is not None and not self._resubscribed.done():
                self._resubscribed.set_result(None)

    def _settle(self, entry: _Channel, error: BusError | None, *, heard: bool = True) -> None:
        waiters, entry.waiters = entry.waiters, []
        for future in waiters:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                if not heard:
                    future.exception()  # nobody has to hear of it
