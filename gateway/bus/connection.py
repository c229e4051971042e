"""The command connection of a node: one socket that all callers share, and that comes back by itself.

Owns the commands on it, the scripts that are loaded on each connect, and the leaving of a server that serves no more;
``link`` keeps it. Never repeats a command whose answer was lost: ``BusUnavailable.maybe_applied`` tells the caller, who
decides. Blocking commands have no place here: they would hold up everybody.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from gateway.bus.connect import Backoff, Endpoint, Login, Resolve
from gateway.bus.errors import BusUnavailable, Kind, Redirect
from gateway.bus.link import Link
from gateway.bus.replies import all_answered
from gateway.bus.wire import Arg, Bounds, Script, Sent, Server, Wire, script_call
from gateway.observe import metrics

if TYPE_CHECKING:
    from asyncio import Future

logger = logging.getLogger(__name__)

_LIVED_S: Final = 2.0  # a connection that lived so long starts the back-off anew


class Connection(Link):
    """The shared connection. ``start`` it, ``call`` from anywhere on its loop, ``close`` it.

    The order of ``call`` and ``run`` is the order in which the server executes. While the connection is down both
    answer at once with the reason (``maybe_applied`` false); ``ready`` waits for it to be up.
    """

    def __init__(
        self,
        resolve: Resolve | Endpoint,
        login: Login | None = None,
        *,
        bounds: Bounds | None = None,
        connect_s: float = 2.0,
        backoff: Backoff | None = None,
    ) -> None:
        super().__init__(
            "bus.connection",
            resolve,
            login or Login(),
            bounds=bounds,
            connect_s=connect_s,
            lived_s=_LIVED_S,
            backoff=backoff,
        )
        self.server = Server()  # what answered the last HELLO
        self.connects = 0
        self.redirect: Callable[[Sent, Redirect], bool] | None = None
        self.on_connect: list[Callable[[Wire], Awaitable[None]]] = []
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[BusUnavailable], None]] = []
        self._scripts: dict[bytes, Script] = {}
        self._why: BusUnavailable | None = None  # what made us leave a server
        self._announced = False  # on_up was called last

    @property
    def pending(self) -> int:
        """Commands that wait for their answers."""
        return 0 if self._wire is None else self._wire.pending

    # --- commands

    def call(self, *args: Arg) -> "Future[object]":
        """Sends one command. The future gets the reply as bytes, int, list or None, or a ``BusError``. Cancelling it
        abandons the answer, not the command. ``TypeError`` for an argument that is not bytes, str, int or float."""
        wire = self._wire
        return self._refuse() if wire is None else wire.send(args)

    def run(self, script: Script, keys: Sequence[Arg] = (), args: Sequence[Arg] = ()) -> "Future[object]":
        """Runs a script by its SHA-1; one that the server has forgotten is sent whole, at one more round trip."""
        wire = self._wire
        return self._refuse() if wire is None else wire.send(script_call(script, keys, args), script)

    async def ask(self, *args: Arg, timeout: float) -> object:
        """Waits for the connection and for the answer, both within ``timeout`` seconds. ``BusUnavailable`` beyond it;
        ``maybe_applied`` then tells whether the command was sent."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        if self._wire is None:
            await self.ready(timeout)
        return await answer(self.call(*args), end - loop.time())

    def _refuse(self) -> "Future[object]":
        future: Future[object] = asyncio.get_running_loop().create_future()
        fault = self.fault or BusUnavailable(Kind.DOWN)
        future.set_exception(BusUnavailable(fault.kind, detail="the connection is down"))
        return future

    def take_over(self, sent: Sent, *, asking: bool = False) -> bool:
        """Sends a command that another connection was redirected with; false while this one is down."""
        if self._wire is None:
            return False
        self._wire.enqueue(sent, asking=asking)
        return True

    # --- life

    def register(self, scripts: Iterable[Script]) -> None:
        """Scripts to load on each connect. One that is registered later is loaded by its first use."""
        self._scripts.update((script.sha, script) for script in scripts)

    def reconnect(self) -> None:
        """Leaves this server (answers that are due still arrive) and asks again where to go."""
        if (wire := self._wire) is not None:
            self._set_down()
            self.fault = self._why or BusUnavailable(Kind.DOWN)
            wire.retire()

    async def _prepare(self, wire: Wire) -> None:
        loads = [wire.send(("SCRIPT", "LOAD", script.source)) for script in self._scripts.values()]
        await all_answered(loads)
        for hook in self.on_connect:
            await hook(wire)

    async def _serve(self, wire: Wire) -> None:
        self.server = wire.server
        self._why = None
        wire.redirect = self.redirect
        wire.on_refused = self._on_refused
        wire.on_end = self._ended
        self._set_up(wire)
        self.connects += 1
        if self.connects > 1:
            metrics.BUS_RECONNECTS.inc()
        self._announced = True
        logger.info("bus connection up")
        for callback in self.on_up:
            callback()
        await asyncio.shield(wire.lost)

    def _failed(self, fault: BusUnavailable) -> None:
        super()._failed(fault)
        metrics.BUS_ERRORS.labels(fault.kind.value).inc()

    def _ended(self, fault: BusUnavailable) -> None:
        """At once, before what waits for answers fails: whoever tries again then must not meet this wire."""
        fault = self._why or fault
        self._set_down()
        # Left by our own wish, it comes back elsewhere; that it does not is ``close``'s to say.
        self.fault = BusUnavailable(Kind.DOWN) if fault.kind is Kind.CLOSED else fault
        if self._announced:
            self._announced = False
            if fault.kind is not Kind.CLOSED:  # not by our own wish
                metrics.BUS_ERRORS.labels(fault.kind.value).inc()
                logger.warning("bus connection lost: %s", fault)
            for callback in self.on_down:
                callback(fault)

    def _on_refused(self, error: BusUnavailable) -> None:
        """A primary that became a replica, or that no longer knows us, is left; the next attempt asks who serves."""
        metrics.BUS_REFUSALS.labels(error.kind.value).inc()
        if error.kind in {Kind.READONLY, Kind.NOAUTH, Kind.MASTERDOWN} and self._wire is not None:
            self._why = error
            self.reconnect()


async def answer(future: "Future[object]", timeout: float) -> object:
    """Waits ``timeout`` seconds for a command's answer; then abandons it: ``BusUnavailable(TIMEOUT)``, and the command
    may have been applied."""
    try:
        async with asyncio.timeout(max(timeout, 0)):
            return await future
    except TimeoutError:
        raise BusUnavailable(Kind.TIMEOUT, maybe_applied=True) from None
