"""Instants on the bus clock, kept by this node: the owner's own timers, and the sweep for owners that are gone.

Owns one timer of the event loop for all calls and one round of sweeps; a call costs a heap entry, no task and no timer.
A timer that fires late or twice does no harm: the script that it leads to reads Redis' own clock (bridge 5).
"""

import asyncio
import heapq
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from gateway.bus.errors import BusUnavailable
from gateway.bus.nodes import Nodes
from gateway.bus.store import Store
from gateway.model import limits
from gateway.observe.log import get_logger

log = get_logger("deadlines")

_SWEPT: Final = 200  # members of one partition and round
_STEP_MS: Final = 2_000  # a clock that moved more than this beyond our own has stepped
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


class Sweeper:
    """Settles what is due in the partitions that fall to this node: one script a partition and round."""

    def __init__(self, store: Store, nodes: Nodes) -> None:
        self._store = store
        self._nodes = nodes
        self.shifts = 0

    async def run(self) -> None:
        """Rounds without end; the caller supervises them."""
        while True:
            await asyncio.sleep(limits.SWEEP_MS / 1000)
            try:
                await self.round()
            except BusUnavailable as error:
                log.warning("a sweep could not reach the bus", error=error)

    async def round(self) -> int:
        """One round over this node's partitions: how many instants were settled."""
        keys, scripts = self._store.keys, self._store.scripts
        waits = [
            self._store.topology.for_partition(tag).run(
                scripts.sweep, (keys.root(tag), keys.due(tag)), (_SWEPT, self._store.now_ms(tag), _STEP_MS)
            )
            for tag in self._mine()
        ]
        settled = 0
        for reply in await asyncio.gather(*waits, return_exceptions=True):
            if isinstance(reply, BaseException):
                raise reply
            count, shift = cast("list[Any]", reply)
            settled += int(count)
            if int(shift) > _STEP_MS:
                self.shifts += 1
                log.warning("the bus clock has stepped; nothing was settled", shift_ms=int(shift))
        return settled

    def _mine(self) -> Sequence[str]:
        """Partitions by this node's rank among the living, so that each is swept by one of them."""
        living = sorted(node.incarnation for node in self._nodes.living())
        if self._nodes.incarnation not in living:
            return self._store.keys.tags
        rank = living.index(self._nodes.incarnation)
        return self._store.keys.tags[rank :: len(living)]
