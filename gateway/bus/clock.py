"""The bus clock: what Redis' ``TIME`` says now, from this node's monotonic clock. Owns the offset between the two.

Nobody compares the wall clocks of two machines: deadlines are instants on this clock (milliseconds since 1970), stamped
and checked by ``TIME`` inside scripts. What is here drives local timers, and never decides.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from gateway.bus.connection import Connection, answer
from gateway.bus.errors import BusError, BusUnavailable, Kind
from gateway.observe import metrics
from gateway.observe.tasks import Tasks

logger = logging.getLogger(__name__)

_WINDOW: Final = 12  # samples kept: a minute of them
_DRIFT: Final = 200e-6  # how far apart two quartz clocks may run; NTP slews by up to 500 ppm, but not for long
_SLACK_MS: Final = 1.0  # rounding, and a virtual machine's clock that hesitates


@dataclass(frozen=True, slots=True)
class Sample:
    """One question: sent and answered on the monotonic clock, and the server's time in between; milliseconds."""

    sent_ms: float
    answered_ms: float
    server_ms: float

    @property
    def offset_ms(self) -> float:
        """Server less monotonic, taking the answer to be from the middle of the round trip."""
        return self.server_ms - (self.sent_ms + self.answered_ms) / 2

    @property
    def radius_ms(self) -> float:
        """How wrong ``offset_ms`` can be."""
        return (self.answered_ms - self.sent_ms) / 2


class Offset:
    """The estimator, without a clock of its own: samples in, the offset out.

    Of the last samples the one that can be least wrong counts; age makes a sample worse by the drift of two clocks. A
    sample that contradicts it beyond both their bounds means that one clock has been set: the old ones are dropped.
    """

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=_WINDOW)
        self._best: Sample | None = None

    @property
    def ms(self) -> float | None:
        """Server less monotonic in milliseconds; None before the first sample."""
        return None if self._best is None else self._best.offset_ms

    @property
    def radius_ms(self) -> float | None:
        """The bound of the error when the best sample was taken."""
        return None if self._best is None else self._best.radius_ms

    def add(self, sample: Sample) -> float:
        """Takes one sample, the newest. Returns the step in milliseconds if a clock was set (positive: the server's
        went forward), else 0."""
        step = 0.0
        if self._best is not None:
            apart = sample.offset_ms - self._best.offset_ms
            if abs(apart) > self._bound(self._best, sample.answered_ms) + sample.radius_ms + _SLACK_MS:
                step = apart
                self._samples.clear()
        self._samples.append(sample)
        self._best = min(self._samples, key=lambda one: self._bound(one, sample.answered_ms))
        return step

    @staticmethod
    def _bound(sample: Sample, now_ms: float) -> float:
        return sample.radius_ms + (now_ms - sample.answered_ms) * _DRIFT


class Clock:
    """Keeps the offset to one connection's server: a sample every ``every_s`` seconds and after each reconnect.

    ``on_step`` is called with a jump's milliseconds. A deadline is an instant on the server's clock, so a jump moves
    when it is due here; whoever holds timers must set them again.
    """

    def __init__(
        self, connection: Connection, *, every_s: float = 5.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.offset = Offset()
        self.steps = 0
        self.step_ms = 0.0  # the last jump
        self.on_step: list[Callable[[float], None]] = []
        self._connection = connection
        self._every_s = every_s
        self._monotonic = monotonic
        self._wake = asyncio.Event()
        self._known = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def now_ms(self) -> int:
        """The server's time now, as estimated. ``BusUnavailable`` before the first sample."""
        offset = self.offset.ms
        if offset is None:
            raise BusUnavailable(Kind.DOWN, detail="the bus clock is not known yet")
        return int(self._monotonic() * 1000 + offset)

    async def start(self, *, timeout: float = 5.0) -> None:
        """Begins to ask and waits for the first sample; ``BusUnavailable`` after ``timeout`` seconds."""
        if self._task is None:
            self._connection.on_up.append(self._wake.set)
            self._task = Tasks().spawn("bus.clock", self._run())
        try:
            async with asyncio.timeout(timeout):
                await self._known.wait()
        except TimeoutError:
            raise BusUnavailable(Kind.TIMEOUT, detail="the bus clock") from None

    async def close(self) -> None:
        """Asks no more."""
        if self._task is not None:
            with contextlib.suppress(ValueError):
                self._connection.on_up.remove(self._wake.set)
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self.sample()
            except BusError:
                pass  # the connection says what is wrong, and wakes us when it is back
            except Exception:
                logger.exception("a sample of the bus clock failed in an unforeseen way")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._wake.wait()

    async def sample(self) -> None:
        """Asks once. Raises ``BusError``."""
        sent = self._monotonic() * 1000
        reply = cast("list[bytes]", await answer(self._connection.call("TIME"), self._every_s))
        answered = self._monotonic() * 1000
        metrics.BUS_SECONDS.observe((answered - sent) / 1000)
        server = int(reply[0]) * 1000 + int(reply[1]) / 1000
        step = self.offset.add(Sample(sent, answered, server))
        self._known.set()
        if step:
            self.steps += 1
            self.step_ms = step
            logger.warning("the bus clock stepped by %d ms", step)
            for callback in self.on_step:
                callback(step)
