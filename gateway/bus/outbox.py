"""An owner's writes to one session: in order, once each, through outages. Owns their numbers and their repetition.

Each write is one script with the owner's epoch and a number of its own. While the bus answers, a write is on its way as
soon as it is put, and nobody waits. When an answer is lost, everything that was not answered is sent again under its
number once the bus is back, in order; a script that was applied already says so. So a write is neither lost nor doubled
by a broken connection, and a fenced owner changes nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from gateway.bus.errors import BusUnavailable, Kind, ScriptError
from gateway.bus.store import Store, refused
from gateway.bus.wire import Arg, Script
from gateway.observe.log import get_logger
from gateway.observe.tasks import Tasks

log = get_logger("outbox")

_PAUSE_S: Final = 0.1  # between rounds of repetition
_MOST: Final = 20_000
_MOST_BYTES: Final = 32 * 1024 * 1024

Then = Callable[[object], None]


class Overrun(Exception):
    """More waits to be written than an owner may hold back."""


@dataclass(slots=True, eq=False)
class _Write:
    number: int
    script: Script
    args: tuple[Arg, ...]
    then: Then | None
    until: float | None
    size: int


class Outbox:
    """``on_lost`` is called once, with ``Fenced``, ``Refusal`` (the session is gone), ``BusUnavailable`` (for longer
    than ``isolation_s``) or ``Overrun``; from then on nothing is written."""

    def __init__(
        self,
        store: Store,
        session_id: str,
        epoch: int,
        *,
        tasks: Tasks,
        isolation_s: float,
        on_lost: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._keys = store.keys.session(session_id)
        self._epoch = epoch
        self._tasks = tasks
        self._isolation_s = isolation_s
        self._on_lost = on_lost
        self._number = 0
        self._waiting: deque[_Write] = deque()
        self._bytes = 0
        self._repeating = False
        self._lost = False
        self._behind: int | None = None  # the number that the bus has, when it lacks some that it acknowledged
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def healthy(self) -> bool:
        """Whether writes go out as they are put."""
        return not (self._repeating or self._lost)

    def put(self, script: Script, *args: Arg, then: Then | None = None, until: float | None = None) -> None:
        """Writes in the order of these calls. ``then`` gets the script's answer, or the exception of its refusal.

        ``until`` (the loop's time) stands for a first argument: what is left of it in milliseconds when it is sent.
        """
        if self._lost:
            return
        self._number += 1
        size = sum(len(arg) for arg in args if isinstance(arg, str | bytes))
        write = _Write(self._number, script, args, then, until, size)
        self._waiting.append(write)
        self._empty.clear()
        self._bytes += size
        if len(self._waiting) > _MOST or self._bytes > _MOST_BYTES:
            self._lose(Overrun("too many writes wait for the bus"))
        elif not self._repeating:
            self._send(write)

    def _send(self, write: _Write) -> None:
        args = write.args
        if write.until is not None:
            left = write.until - asyncio.get_running_loop().time()
            args = (max(1, int(left * 1000)), *args)
        reply = self._store.send(self._keys, write.script, self._epoch, write.number, *args)
        reply.add_done_callback(partial(self._answered, write))

    def _answered(self, write: _Write, reply: "asyncio.Future[object]") -> None:
        if reply.cancelled():
            return
        error = reply.exception()  # read in any case: behind a write that lost the session all others are refused
        if self._lost:
            return
        if isinstance(error, BusUnavailable):
            self._repeat()
            return
        if isinstance(error, ScriptError) and error.code == "gap":
            self._behind = int(error.detail)
            self._repeat()
            return
        # Answers come in order, so this is the first that waits; a repetition may answer a write a second time.
        if not self._waiting or self._waiting[0] is not write:
            return
        self._waiting.popleft()
        self._bytes -= write.size
        if not self._waiting:
            self._empty.set()
        if isinstance(error, ScriptError) and error.code in ("fenced", "not_found"):
            self._lose(refused(error))
        elif write.then is not None:
            write.then(reply.result() if error is None else error)
        elif error is not None:
            log.error("a write of an owner was refused", error=error, session_id=self._keys.session_id)

    def _repeat(self) -> None:
        if not self._repeating:
            self._repeating = True
            self._tasks.spawn("outbox.repeat", self._repeat_all())

    async def _repeat_all(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        fault = BusUnavailable(Kind.TIMEOUT)
        while self._waiting and not self._lost:
            if loop.time() - began > self._isolation_s:
                self._lose(fault)
                return
            await asyncio.sleep(_PAUSE_S)
            try:  # asked for each time: in a Cluster another server may have the partition by now
                connection = self._store.topology.for_partition(self._keys.tag)
            except BusUnavailable as error:
                fault = error
                continue
            fault = connection.fault or fault
            if connection.up and await self._round():
                break
        self._repeating = False

    async def _round(self) -> bool:
        """Sends all that waits again; whether all of it was answered. What is put meanwhile goes with it."""
        if self._behind is not None and self._waiting and self._behind < self._waiting[0].number - 1:
            log.warning("acknowledged writes are lost", session_id=self._keys.session_id, number=self._behind)
            renumber = self._store.scripts.renumber
            with suppress(ScriptError, BusUnavailable):  # what is in the way shows in what follows
                await self._store.send(self._keys, renumber, self._epoch, self._waiting[0].number - 1)
        self._behind = None
        while self._waiting:
            last = self._waiting[-1]
            for write in list(self._waiting):
                self._send(write)
            # The answers of a connection come in order: once this one is there, all are.
            try:
                await self._store.topology.for_partition(self._keys.tag).call("PING")
            except BusUnavailable:
                return False
            if self._waiting and self._waiting[0].number <= last.number:
                return False  # refused by the server for now (OOM, READONLY): another round
        return True

    def _lose(self, error: Exception) -> None:
        if not self._lost:
            self._lost = True
            self._waiting.clear()
            self._on_lost(error)

    async def drained(self, timeout: float) -> bool:
        """Waits until everything has been answered, for ``timeout`` seconds at most; whether it was."""
        try:
            async with asyncio.timeout(timeout):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Nothing more is written, and nobody is told."""
        self._lost = True
        self._waiting.clear()
