"""The subscription connection of a node: channels to synchronous callbacks, and honesty about gaps.

Owns what one socket in subscribed mode serves: subscribing again after a reconnect, and saying so; ``link`` keeps
it. Never promises delivery: what came while it was away is lost, and ``on_gap`` says so after every reconnect, when the
channels are subscribed again; the log has what was missed.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gateway.bus.channels import Callback, Channels
from gateway.bus.connect import Backoff, Endpoint, Login, Resolve
from gateway.bus.connection import Connection
from gateway.bus.errors import Kind
from gateway.bus.link import Link
from gateway.bus.probe import Probe
from gateway.bus.wire import Wire

if TYPE_CHECKING:
    from asyncio import Future

logger = logging.getLogger(__name__)


class Subscriber(Link):
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
        super().__init__(
            "bus.subscriber",
            resolve,
            login or Login(name="toolrelay-push"),
            connect_s=connect_s,
            lived_s=idle_s,
            backoff=backoff,
        )
        self.gaps = 0
        self._commands = commands
        self._channels = Channels(sharded=sharded, vital=probe_channel or Probe.channel())
        self._probe = Probe(self._channels, commands, sharded=sharded, idle_s=idle_s, probe_s=probe_s)
        self._gap_callbacks: list[Callable[[], None]] = []
        self._gap_failures = 0
        self._connected = False  # once at least

    @property
    def received(self) -> int:
        """Messages so far, probes included."""
        return self._channels.received

    @property
    def failures(self) -> int:
        """Callbacks that raised so far."""
        return self._channels.failures + self._gap_failures

    @property
    def silent(self) -> int:
        """Connections that a probe found dead so far."""
        return self._probe.silent

    # --- who wants what

    def subscribe(self, channel: bytes, callback: Callback) -> "Future[None]":
        """Adds a callback to a channel; the future is done when the server has confirmed it, on this connection or on
        the next. It raises ``BusError`` if the server refuses (the callback is gone then) or on ``close``."""
        return self._channels.subscribe(channel, callback)

    def unsubscribe(self, channel: bytes, callback: Callback) -> None:
        """Takes one callback away; the channel is left when it was the last. Unknown ones are ignored."""
        self._channels.unsubscribe(channel, callback)

    def on_gap(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls ``callback`` after each reconnect: messages may be missing from before it, and none from after it.
        Returns what takes it away again."""
        self._gap_callbacks.append(callback)
        return partial(self._forget_gap, callback)

    def _forget_gap(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(ValueError):
            self._gap_callbacks.remove(callback)

    # --- a Cluster's slots

    def follow(self, on_moved: Callable[[bytes], None]) -> None:
        """Calls ``on_moved`` with each channel whose slot another server has now; without it such a channel replaces
        the connection."""
        self._channels.on_moved = on_moved

    def resubscribe(self, channel: bytes) -> "Future[None]":
        """Asks once more for a channel that ``follow`` has told of; the future is as that of ``subscribe``."""
        return self._channels.resubscribe(channel)

    @property
    def probe_channel(self) -> bytes:
        """Where the probe is published."""
        return self._channels.vital

    def probe_on(self, channel: bytes) -> None:
        """Probes by another channel, when the slot of the present one has gone to another server."""
        self._probe.move(channel)

    def probe_now(self) -> None:
        """Checks now that a publish by the command connection comes back here."""
        self._probe.now()

    # --- life

    async def start(self, *, timeout: float = 5.0) -> None:
        """As that of every link."""
        if self._task is None:
            self._commands.on_up.append(self.probe_now)
        await super().start(timeout=timeout)

    async def close(self) -> None:
        """As that of every link; whoever waits for a confirmation gets ``BusUnavailable(CLOSED)``."""
        with contextlib.suppress(ValueError):
            self._commands.on_up.remove(self.probe_now)
        await super().close()
        self._channels.close()

    def reconnect(self) -> None:
        """Replaces the connection now; a gap follows."""
        if self._wire is not None:
            self._wire.abort(Kind.DOWN)

    async def _prepare(self, wire: Wire) -> None:
        """Every channel that is wanted is subscribed."""
        self._wire = wire  # before it is up: ``reconnect`` leaves this one too
        resubscribed = self._channels.attach(wire)
        # The probe channel is always wanted, so there is always something to wait for.
        await asyncio.wait({resubscribed, wire.lost}, return_when=asyncio.FIRST_COMPLETED)

    async def _serve(self, wire: Wire) -> None:
        self._set_up(wire)
        logger.info("subscription up, %d channels", len(self._channels))
        if self._connected:
            self._gap()
        self._connected = True
        self._probe.arm(wire)
        raise await asyncio.shield(wire.lost)

    def _set_down(self) -> None:
        super()._set_down()
        self._probe.disarm()
        self._channels.detach()

    def _gap(self) -> None:
        self.gaps += 1
        for callback in list(self._gap_callbacks):
            try:
                callback()
            except Exception:
                self._gap_failures += 1
                logger.exception("a callback after a gap failed")
