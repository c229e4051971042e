"""The probe of a subscription: finds one that is open and silent.

Owns the timers and the count of what was published and what came back. Never connects: a socket that it finds dead is
ended, and ``subscriber`` opens the next one.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gateway.bus.channels import Channels
from gateway.bus.connection import Connection
from gateway.bus.errors import Kind
from gateway.bus.wire import Wire

if TYPE_CHECKING:
    from asyncio import Future

logger = logging.getLogger(__name__)


class Probe:
    """Publishes by ``commands`` to a channel of our own after ``idle_s`` seconds without a message; when it is not back
    ``probe_s`` seconds after the publish was answered, the socket is ended."""

    def __init__(
        self,
        channels: Channels,
        commands: Connection,
        *,
        sharded: bool,
        idle_s: float,
        probe_s: float,
    ) -> None:
        self.silent = 0  # sockets that were found dead
        self._channels = channels
        self._commands = commands
        self._verb = "SPUBLISH" if sharded else "PUBLISH"
        self._idle_s = idle_s
        self._probe_s = probe_s
        self._wire: Wire | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._seen = 0
        self._sent = 0
        self._back = 0
        self._under_way = False
        channels.want(channels.vital, self._came)

    @staticmethod
    def channel() -> bytes:
        """A name that no other subscription has."""
        return b"toolrelay:probe:" + secrets.token_hex(8).encode()

    def arm(self, wire: Wire) -> None:
        """Watches a socket from here on."""
        self._wire = wire
        self._rest()

    def disarm(self) -> None:
        """The socket has ended."""
        self._wire = None
        self._under_way = False
        while self._timers:
            self._timers.popitem()[1].cancel()

    def move(self, channel: bytes) -> None:
        """Probes by another channel from here on."""
        self._channels.unsubscribe(self._channels.vital, self._came)
        self._channels.vital = channel
        self._back = self._sent
        self._channels.want(channel, self._came)

    def now(self) -> None:
        """Probes at once, unless one is under way or either connection is down."""
        if self._wire is None or self._under_way or not self._commands.up:
            return
        channel = self._channels.vital
        if not self._channels.confirmed(channel):
            self._channels.ask_again(channel)  # a Cluster's slot on its way: no probe is possible yet
            return
        self._under_way = True
        self._sent += 1
        published = self._commands.call(self._verb, channel, self._sent)
        published.add_done_callback(partial(self._published, self._wire))

    def _later(self, name: str, delay: float, callback: Callable[[], None]) -> None:
        self._timers[name] = asyncio.get_running_loop().call_later(delay, callback)

    def _rest(self) -> None:
        self._later("idle", self._idle_s, self._rested)

    def _rested(self) -> None:
        if self._channels.received == self._seen:
            self.now()
        self._seen = self._channels.received
        self._rest()

    def _published(self, wire: Wire, published: "Future[object]") -> None:
        if published.cancelled() or published.exception() is not None or wire is not self._wire:
            self._under_way = False  # the command connection has its own watchdog
            return
        self._expect(wire)

    def _expect(self, wire: Wire) -> None:
        due = asyncio.get_running_loop().time() + self._probe_s
        self._later("probe", self._probe_s, partial(self._judge, wire, due))

    def _judge(self, wire: Wire, due: float) -> None:
        if wire is not self._wire:
            return
        late = asyncio.get_running_loop().time() - due
        if self._back != self._sent and late > self._probe_s / 2:
            # We stood still ourselves: the message may be in the socket.
            self._expect(wire)
            return
        self._under_way = False
        if self._back != self._sent:
            self.silent += 1
            logger.warning("the subscription is open and silent")
            wire.abort(Kind.TIMEOUT)

    def _came(self, payload: bytes) -> None:
        self._back = int(payload)
