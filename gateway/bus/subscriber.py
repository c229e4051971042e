"""The subscription connection of a node: channels to synchronous callbacks, and honesty about gaps.

Owns one socket in subscribed mode, the count of who wants which channel, the resubscription after a reconnect and the
probe that finds a subscription which is open and silent. Never promises delivery: what came while it was away is lost,
and ``on_gap`` says so after every reconnect, when the channels are subscribed again; the log has what was missed.
"""

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from gateway.bus.connect import Backoff, Connection, Endpoint, Login, Resolve, always, open_wire
from gateway.bus.errors import BusError, BusUnavailable, Kind, Redirect
from gateway.bus.wire import Bounds, Wire
from gateway.observe.tasks import Tasks

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
    requested: bool = False  # the last command of this connection for it was a subscription
    unconfirmed: int = 0  # commands for it without an answer


@dataclass(slots=True, eq=False)
class _Batch:
    """One SUBSCRIBE or UNSUBSCRIBE: it is answered by a confirmation per channel, or by one error."""

    names: set[bytes]
    subscribes: bool


class Subscriber:
    """Subscriptions that come back by themselves.

    ``commands`` is the connection whose server publishes, used for the probe: after ``idle_s`` seconds without a
    message one is published to a channel of our own, and when it is not back ``probe_s`` seconds after the publish was
    answered, this connection is replaced. ``sharded`` uses SSUBSCRIBE and SPUBLISH; ``probe_channel`` must then belong
    to a slot of this server.
    """

    def __init__(
        self,
        resolve: Resolve | Endpoint,
        login: Login | None = None,
        *,
        commands: Connection,
        sharded: bool = False,
        probe_channel: bytes | None = None,
        idle_s: float = 2.0,
        probe_s: float = 1.5,
        connect_s: float = 2.0,
        backoff: Backoff | None = None,
    ) -> None:
        self.received = 0  # messages, probes included
        self.failures = 0  # callbacks that raised
        self.gaps = 0
        self.silent = 0  # connections that a probe found dead
        self.fault: BusUnavailable | None = BusUnavailable(Kind.DOWN)  # why it is down; None when it is up
        self.endpoint: Endpoint | None = None
        self.on_moved: Callable[[bytes], None] | None = None  # a channel whose slot another server has now
        self._resolve = resolve if callable(resolve) else always(resolve)
        self._login = login or Login(name="toolrelay-push")
        self._commands = commands
        self._prefix = "S" if sharded else ""
        self._per_command = 1 if sharded else _CHANNELS_PER_COMMAND  # one command has one slot
        self._idle_s = idle_s
        self._probe_s = probe_s
        self._connect_s = connect_s
        self._backoff = backoff or Backoff()
        self._channels: dict[bytes, _Channel] = {}
        self._dirty: dict[bytes, None] = {}
        self._batches: deque[_Batch] = deque()
        self._awaited = 0  # batches of the resubscription
        self._resubscribed: Future[None] | None = None
        self._gap_callbacks: list[Callable[[], None]] = []
        self._wire: Wire | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._seen = 0
        self._probe_sent = 0
        self._probe_back = 0
        self._probing = False
        self._closed = False
        self.probe_channel = probe_channel or b"toolrelay:probe:" + secrets.token_hex(8).encode()
        self._channels[self.probe_channel] = _Channel((self._probe_came,))

    @property
    def up(self) -> bool:
        """True while every channel that was wanted at the last connect is subscribed."""
        return self._changed.is_set()

    # --- who wants what

    def subscribe(self, channel: bytes, callback: Callback) -> "Future[None]":
        """Adds a callback to a channel; the future is done when the server has confirmed it, on this connection or on
        the next. It raises ``BusError`` if the server refuses (the callback is gone then) or on ``close``."""
        future: Future[None] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_exception(BusUnavailable(Kind.CLOSED))
            return future
        entry = self._channels.setdefault(channel, _Channel())
        entry.callbacks += (callback,)
        if entry.requested and not entry.unconfirmed:
            future.set_result(None)
        else:
            entry.waiters.append(future)
            self._mark(channel)
        return future

    def unsubscribe(self, channel: bytes, callback: Callback) -> None:
        """Takes one callback away; the channel is left when it was the last. Unknown ones are ignored."""
        entry = self._channels.get(channel)
        if entry is None or callback not in entry.callbacks:
            return
        left = list(entry.callbacks)
        left.remove(callback)
        entry.callbacks = tuple(left)
        if not left:
            self._settle(entry, BusUnavailable(Kind.CLOSED, detail="unsubscribed"), heard=False)
            self._mark(channel)

    def on_gap(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls ``callback`` after each reconnect: messages may be missing from before it, and none from after it.
        Returns what takes it away again."""
        self._gap_callbacks.append(callback)
        return partial(self._forget_gap, callback)

    def resubscribe(self, channel: bytes) -> "Future[None]":
        """Asks once more for a channel that ``on_moved`` has told of; the future is as that of ``subscribe``."""
        future: Future[None] = asyncio.get_running_loop().create_future()
        entry = self._channels.get(channel)
        if entry is None or not entry.callbacks or (entry.requested and not entry.unconfirmed):
            future.set_result(None)
        else:
            entry.waiters.append(future)
            self._mark(channel)
        return future

    def probe_on(self, channel: bytes) -> None:
        """Probes by another channel, when the slot of the present one has gone to another server."""
        self.unsubscribe(self.probe_channel, self._probe_came)
        self.probe_channel = channel
        self._probe_back = self._probe_sent
        self._channels.setdefault(channel, _Channel()).callbacks = (self._probe_came,)
        self._mark(channel)

    def _forget_gap(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(ValueError):
            self._gap_callbacks.remove(callback)

    def _mark(self, channel: bytes) -> None:
        if not self._dirty and self._wire is not None:
            asyncio.get_running_loop().call_soon(self._flush)
        self._dirty[channel] = None

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
        if batch is None or (batch.names == {self.probe_channel} and not moved):
            # Nothing to blame it on, or no probe is possible: this connection cannot be trusted.
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
                self._mark(name)
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
        else:
            self.reconnect()

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

    # --- life

    async def start(self, *, timeout: float = 5.0) -> None:
        """Begins to connect and waits for the first success; after ``timeout`` seconds raises what is in the way (and
        goes on trying)."""
        if self._task is None:
            self._commands.on_up.append(self.probe_now)
            self._task = Tasks().spawn("bus.subscriber", self._supervise())
        await self.ready(timeout)

    async def ready(self, timeout: float) -> None:
        """Waits until it is up; ``BusUnavailable`` with the reason after ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            fault = self.fault or BusUnavailable(Kind.DOWN)
            raise BusUnavailable(fault.kind, detail=str(fault)) from None

    async def close(self) -> None:
        """Ends the connection; whoever waits for a confirmation gets ``BusUnavailable(CLOSED)``."""
        self._closed = True
        if self._task is not None:
            with contextlib.suppress(ValueError):
                self._commands.on_up.remove(self.probe_now)
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for entry in self._channels.values():
            self._settle(entry, BusUnavailable(Kind.CLOSED))
        self._channels.clear()

    async def __aenter__(self) -> "Subscriber":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def reconnect(self) -> None:
        """Replaces the connection now; a gap follows."""
        if self._wire is not None:
            self._wire.abort(Kind.DOWN)

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        said: Kind | None = None
        connected = False
        while True:
            began = loop.time()
            try:
                wire = await self._open()
                self.fault = said = None
                if connected:
                    self._gap()
                connected = True
                self._arm()
                try:
                    raise await asyncio.shield(wire.lost)
                finally:
                    wire.abort(Kind.CLOSED)
            except (BusError, OSError) as error:
                fault = error if isinstance(error, BusUnavailable) else BusUnavailable(Kind.DOWN, detail=str(error))
                if fault.kind is not said:
                    logger.warning("subscription not connected: %s", fault)
                    said = fault.kind
                self.fault = fault
            except Exception:
                logger.exception("the subscription failed in an unforeseen way")
            finally:
                self._went_down()
            if loop.time() - began > self._idle_s:
                self._backoff.reset()
            await asyncio.sleep(self._backoff.next())

    async def _open(self) -> Wire:
        """A connection with every wanted channel subscribed."""
        try:
            async with asyncio.timeout(self._connect_s):
                endpoint = await self._resolve()
        except TimeoutError:
            raise BusUnavailable(Kind.TIMEOUT, detail="resolving") from None
        wire = await open_wire(endpoint, self._login, Bounds(), timeout=self._connect_s)
        self.endpoint = endpoint
        self._wire = wire
        wire.listen(self._reply)
        self._dirty = dict.fromkeys(self._channels)
        self._flush()
        self._awaited = len(self._batches)
        self._resubscribed = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._connect_s):
                # The probe channel is always wanted, so there is always something to wait for.
                await asyncio.wait({self._resubscribed, wire.lost}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            wire.abort(Kind.TIMEOUT)
        except BaseException:
            wire.abort(Kind.CLOSED)
            raise
        if wire.lost.done():
            raise wire.lost.result()
        self._changed.set()
        logger.info("subscription up, %d channels", len(self._channels))
        return wire

    def _went_down(self) -> None:
        self._wire = None
        self._changed.clear()
        self._batches.clear()
        self._dirty.clear()
        self._awaited = 0
        self._probing = False
        while self._timers:
            self._timers.popitem()[1].cancel()
        for name, entry in list(self._channels.items()):
            entry.requested, entry.unconfirmed = False, 0
            if not entry.callbacks:
                del self._channels[name]

    def _gap(self) -> None:
        self.gaps += 1
        for callback in list(self._gap_callbacks):
            try:
                callback()
            except Exception:
                self.failures += 1
                logger.exception("a callback after a gap failed")

    # --- the probe

    def _later(self, name: str, delay: float, callback: Callable[[], None]) -> None:
        self._timers[name] = asyncio.get_running_loop().call_later(delay, callback)

    def _arm(self) -> None:
        self._later("idle", self._idle_s, self._idle)

    def _idle(self) -> None:
        if self.received == self._seen:
            self.probe_now()
        self._seen = self.received
        self._arm()

    def probe_now(self) -> None:
        """Checks now that a publish by the command connection comes back here."""
        if self._wire is None or self._probing or not self._commands.up:
            return
        probe = self._channels.get(self.probe_channel)
        if probe is None or not probe.requested or probe.unconfirmed:
            self._mark(self.probe_channel)  # a Cluster's slot on its way: no probe is possible yet
            return
        self._probing = True
        self._probe_sent += 1
        published = self._commands.call(f"{self._prefix}PUBLISH", self.probe_channel, self._probe_sent)
        published.add_done_callback(partial(self._published, self._wire))

    def _published(self, wire: Wire, published: "Future[object]") -> None:
        if published.cancelled() or published.exception() is not None or wire is not self._wire:
            self._probing = False  # the command connection has its own watchdog
            return
        self._expect(wire)

    def _expect(self, wire: Wire) -> None:
        due = asyncio.get_running_loop().time() + self._probe_s
        self._later("probe", self._probe_s, partial(self._judge, wire, due))

    def _judge(self, wire: Wire, due: float) -> None:
        if wire is not self._wire:
            return
        late = asyncio.get_running_loop().time() - due
        if self._probe_back != self._probe_sent and late > self._probe_s / 2:
            # We stood still ourselves: the message may be in the socket.
            self._expect(wire)
            return
        self._probing = False
        if self._probe_back != self._probe_sent:
            self.silent += 1
            logger.warning("the subscription is open and silent")
            wire.abort(Kind.TIMEOUT)

    def _probe_came(self, payload: bytes) -> None:
        self._probe_back = int(payload)
