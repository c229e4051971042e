"""A connection that is kept: made, watched, made again after a pause, until it is closed.

Owns "up" and "down", the reason, and the pauses. Never knows what the connection is for: whoever derives from ``Link``
makes a new wire fit for use, and uses it.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from typing import Final, LiteralString, Self

from gateway.bus.connect import Backoff, Endpoint, Login, Resolve, always, locate, open_wire
from gateway.bus.errors import BusError, BusUnavailable, Kind
from gateway.bus.wire import Bounds, Wire
from gateway.observe.tasks import Tasks

logger = logging.getLogger(__name__)


class Link(ABC):
    """``start`` it, wait for it with ``ready``, ``close`` it.

    ``name`` is that of its task, and stands in the log. ``resolve`` is asked before each attempt; finding the server,
    greeting it and ``_prepare`` have ``connect_s`` seconds each. A connection that lived for ``lived_s`` seconds starts
    the back-off anew.
    """

    def __init__(
        self,
        name: LiteralString,
        resolve: Resolve | Endpoint,
        login: Login,
        *,
        bounds: Bounds | None = None,
        connect_s: float,
        lived_s: float,
        backoff: Backoff | None = None,
    ) -> None:
        self.fault: BusUnavailable | None = BusUnavailable(Kind.DOWN)  # why it is down; None when it is up
        self.endpoint: Endpoint | None = None  # of the last connection
        self._name: Final[LiteralString] = name
        self._resolve: Final = resolve if callable(resolve) else always(resolve)
        self._login: Final = login
        self._bounds: Final = bounds or Bounds()
        self._connect_s: Final = connect_s
        self._lived_s: Final = lived_s
        self._backoff: Final = backoff or Backoff()
        self._wire: Wire | None = None
        self._up: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        """True while it can be used."""
        return self._up.is_set()

    async def start(self, *, timeout: float = 5.0) -> None:
        """Begins to connect and waits for the first success; after ``timeout`` seconds raises what is in the way
        (and goes on trying)."""
        if self._task is None:
            self._task = Tasks().spawn(self._name, self._keep())
        await self.ready(timeout)

    async def ready(self, timeout: float) -> None:
        """Waits until it is up; ``BusUnavailable`` with the reason after ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._up.wait()
        except TimeoutError:
            fault = self.fault or BusUnavailable(Kind.DOWN)
            raise BusUnavailable(fault.kind, detail=str(fault)) from None

    async def close(self) -> None:
        """Ends it; what still waits for an answer fails with ``BusUnavailable(CLOSED)``."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self.fault = BusUnavailable(Kind.CLOSED)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- for whoever derives from it

    @abstractmethod
    async def _prepare(self, wire: Wire) -> None:
        """Makes a wire that has said HELLO fit for use. Raises ``BusError``; returns where that wire ends meanwhile."""

    @abstractmethod
    async def _serve(self, wire: Wire) -> None:
        """Is up with this wire until that ends. May raise what ended it."""

    def _failed(self, fault: BusUnavailable) -> None:
        """It did not come up, or ``_serve`` has raised."""
        self.fault = fault

    def _set_up(self, wire: Wire) -> None:
        """To be called by ``_serve``, once."""
        self._wire, self.fault = wire, None
        self._up.set()

    def _set_down(self) -> None:
        """Called when a wire has ended, however far it had come; a second time changes nothing."""
        self._wire = None
        self._up.clear()

    # --- its one task

    async def _keep(self) -> None:
        said: Kind | None = None
        while True:
            try:
                wire = await self._open()
                said = None
                await self._serve_to_the_end(wire)
            except (BusError, OSError) as error:
                fault = error if isinstance(error, BusUnavailable) else BusUnavailable(Kind.DOWN, detail=str(error))
                if fault.kind is not said:  # once per reason, not per attempt
                    logger.warning("%s is down: %s", self._name, fault)
                    said = fault.kind
                self._failed(fault)
            except Exception:
                logger.exception("%s failed in an unforeseen way", self._name)
            finally:
                self._set_down()
            await asyncio.sleep(self._backoff.next())

    async def _open(self) -> Wire:
        endpoint = await locate(self._resolve, self._connect_s)
        wire = await open_wire(endpoint, self._login, self._bounds, timeout=self._connect_s)
        try:
            async with asyncio.timeout(self._connect_s):
                await self._prepare(wire)
        except TimeoutError:
            wire.abort(Kind.TIMEOUT)
            raise BusUnavailable(Kind.TIMEOUT, detail="preparing the connection") from None
        except BaseException:
            wire.abort(Kind.CLOSED)
            raise
        if wire.lost.done():
            raise wire.lost.result()
        self.endpoint = endpoint
        return wire

    async def _serve_to_the_end(self, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._serve(wire)
        finally:
            wire.abort(Kind.CLOSED)
            if loop.time() - began > self._lived_s:
                self._backoff.reset()
