"""The bus clock: what time it is for everything that this deployment stamps. Owns the way from this node's monotonic
clock to it.

Nobody compares the wall clocks of two machines: deadlines are instants on this clock (milliseconds since 1970). It is
Redis' ``TIME`` less a shift, which is 0 until somebody sets that server's clock while nodes live. Then their monotonic
clocks know better, and the shift takes the step up: the bus clock goes on as if nothing had happened, and so does every
deadline (docs/design/0005-bus-clock.md). What the nodes agree on is in ``nodes.py``; here is one node's view of one
server.
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

STEP_MS: Final = 1_000
"""A server's clock that has moved more than this against ours was set; less is followed."""

_WINDOW: Final = 12  # samples kept
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


def monotonic() -> float:
    """Seconds that go on while the machine sleeps, where the system has such a clock: Redis' clock goes on as well."""
    return time.clock_gettime(_STEADY)


_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS' monotonic clock counts sleep


class Clock:
    """Keeps the offset to one connection's server: a sample every ``every_s`` seconds and after each reconnect.

    ``shift_ms`` is how far the server's clock is ahead of the bus clock. ``agreed``: whether the shift is the
    deployment's; until then it is this node's guess, and no script is told of it.
    """

    def __init__(
        self, connection: Connection, *, every_s: float = 5.0, monotonic: Callable[[], float] = monotonic
    ) -> None:
        self.offset = Offset()
        self.shift_ms = 0
        self.agreed = False
        self.steps = 0
        self._connection = connection
        self._every_s = every_s
        self._monotonic = monotonic
        self._wake = asyncio.Event()
        self._known = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def known(self) -> bool:
        """Whether there was a sample."""
        return self._known.is_set()

    def ms(self) -> float:
        """This node's monotonic clock in milliseconds, as samples are measured with."""
        return self._monotonic() * 1000

    def now_ms(self) -> int:
        """The bus clock now, as estimated. ``BusUnavailable`` before the first sample."""
        offset = self.offset.ms
        if offset is None:
            raise BusUnavailable(Kind.DOWN, detail="the bus clock is not known yet")
        return int(self._monotonic() * 1000 + offset) - self.shift_ms

    def stamp(self) -> bytes:
        """What a script is told of the time (``instant.lua``): the estimate, behind it the shift where there is one.
        Empty while this node has no say."""
        if not self.agreed:
            return b""
        now = self.now_ms()
        return b"%d %d" % (now, self.shift_ms) if self.shift_ms else b"%d" % now

    def agree(self, shift_ms: int) -> None:
        """The deployment's shift of this server."""
        if abs(shift_ms - self.shift_ms) > STEP_MS:
            logger.warning("the bus clock is the server's less %d ms (was %d)", shift_ms, self.shift_ms)
        self.shift_ms = shift_ms
        self.agreed = True

    def align(self, reference: "Clock") -> None:
        """Another server of the same deployment: one bus clock for all of them, so a server that is far off, or was
        set, is shifted to where the reference is."""
        apart = self.now_ms() - reference.now_ms()
        self.agree(self.shift_ms + (apart if abs(apart) > STEP_MS else 0))

    def take(self, sample: Sample) -> None:
        """A sample, the newest. A step of the server's clock goes into the shift: the bus clock does not move."""
        step = self.offset.add(sample)
        self._known.set()
        if abs(step) > STEP_MS:
            self.steps += 1
            self.shift_ms += round(step)
            logger.warning("the server's clock was set by %d ms; the bus clock goes on without it", step)

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
        sent = self.ms()
        reply = cast("list[bytes]", await answer(self._connection.call("TIME"), self._every_s))
        answered = self.ms()
        metrics.BUS_SECONDS.observe((answered - sent) / 1000)
        self.take(Sample(sent, answered, server_ms(*reply)))


def server_ms(seconds: bytes, micros: bytes) -> float:
    """What ``TIME`` answers, in milliseconds."""
    return int(seconds) * 1000 + int(micros) / 1000
