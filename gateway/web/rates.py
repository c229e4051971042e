"""Requests a second: a bucket for each who. Owns the buckets; bounded, so a flood of names costs nothing."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from gateway.model.errors import Code, Refusal
from gateway.observe import metrics

_KEPT: Final = 20_000


class Rates:
    """Buckets that hold ``burst`` and fill by ``per_second``. ``what``: the label of refusals."""

    def __init__(
        self, per_second: float, burst: int, what: str, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._refusals = metrics.REFUSED.labels(what)
        self._monotonic = monotonic
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, as of when

    def __len__(self) -> int:
        return len(self._buckets)

    def _left(self, who: str, now: float) -> float:
        left, at = self._buckets.get(who, (self._burst, now))
        return min(self._burst, left + (now - at) * self._per_second)

    def check(self, who: str) -> None:
        """Raises Refusal(TOO_MANY_REQUESTS) with the wait if nothing is left; takes nothing."""
        left = self._left(who, self._monotonic())
        if left < 1.0:
            self._refusals.inc()
            wait = math.ceil((1.0 - left) / self._per_second)
            raise Refusal(Code.TOO_MANY_REQUESTS, retry_after_s=max(1, wait))

    def take(self, who: str) -> None:
        """Takes one. Raises Refusal(TOO_MANY_REQUESTS) with the wait if nothing is left."""
        self.check(who)
        self.spend(who)

    def spend(self, who: str) -> None:
        """Takes one, down to nothing; never refuses."""
        now = self._monotonic()
        self._buckets[who] = (max(0.0, self._left(who, now) - 1.0), now)
        self._buckets.move_to_end(who)
        if len(self._buckets) > _KEPT:
            self._buckets.popitem(last=False)
