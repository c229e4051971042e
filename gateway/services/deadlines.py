"""Instants that this node keeps itself: one timer of the event loop for all of them.

A call costs a heap entry, no task and no timer. A timer that fires late or twice does no harm: the script that it leads
to reads Redis' own clock (bridge 5).
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Final

_COMPACT: Final = 1_024  # stale entries that are worth a new heap

Due = Callable[[str], None]


class Timers:
    """Keyed instants of the event loop's clock. A bus instant is turned into one by whoever arms it, once, so a step of
    the bus clock moves no timer that is armed."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._live: dict[str, tuple[int, Due]] = {}  # key: (entry's number, what to do)
        self._number = 0
        self._handle: asyncio.TimerHandle | None = None
        self._armed_for = 0.0

    def __len__(self) -> int:
        return len(self._live)

    def arm(self, key: str, at: float, fire: Due) -> None:
        """Calls ``fire(key)`` once the instant has come; an earlier arming of the key is void."""
        self._number += 1
        self._live[key] = (self._number, fire)
        heapq.heappush(self._heap, (at, self._number, key))
        if len(self._heap) > 2 * len(self._live) + _COMPACT:
            self._heap = [entry for entry in self._heap if self._is_live(entry)]
            heapq.heapify(self._heap)
        if self._handle is None or at < self._armed_for:
            self._schedule(at)

    def disarm(self, key: str) -> None:
        """Forgets the key. Idempotent."""
        self._live.pop(key, None)

    def _is_live(self, entry: tuple[float, int, str]) -> bool:
        live = self._live.get(entry[2])
        return live is not None and live[0] == entry[1]

    def _schedule(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._armed_for = at
        self._handle = asyncio.get_running_loop().call_at(at, self._fire)

    def _fire(self) -> None:
        self._handle = None
        now = asyncio.get_running_loop().time()
        while self._heap and (self._heap[0][0] <= now or not self._is_live(self._heap[0])):
            entry = heapq.heappop(self._heap)
            if self._is_live(entry):
                _, fire = self._live.pop(entry[2])
                fire(entry[2])
        if self._heap:
            self._schedule(self._heap[0][0])

    def close(self) -> None:
        """No instant fires any more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._live.clear()
        self._heap.clear()
