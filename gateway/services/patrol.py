"""What any node does for those that are gone: instants that have come are settled, sessions find a new owner.

Owns when that may be done. Silence of Redis is not death: a node that was out of contact itself declares nothing until
it has had contact for one lease again, so nobody loses anything to an outage that nobody could help (bridge 10).
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

from gateway.bus.errors import BusUnavailable
from gateway.bus.nodes import Nodes
from gateway.bus.store import Store
from gateway.model import limits
from gateway.observe.log import get_logger
from gateway.services.succession import Succession

log = get_logger("patrol")

_SWEPT: Final = 200  # members of one partition and round
_ROUNDS: Final = 20  # in which every partition is looked at once for sessions whose owner is gone
_ROUNDS_GONE: Final = 2  # the same while the deployment misses a node
_LEASE_S: Final = limits.NODE_LEASE_MS / 1000


class Patrol:
    """Looks after the partitions that fall to this node, by its rank among those that live."""

    def __init__(self, store: Store, nodes: Nodes, succession: Succession) -> None:
        self._store = store
        self._nodes = nodes
        self._succession = succession
        self._last_contact = 0.0
        self._trusted_from = 0.0  # no lapse or death is declared before
        succession.may_declare = lambda: self.trusted
        self._mourned: frozenset[str] = frozenset()  # the gone that a round has looked after
        self._wake = asyncio.Event()

    def contact(self) -> bool:
        """The lease was renewed just now. Returns whether this node's own had ended meanwhile: others may have declared
        it dead."""
        now = asyncio.get_running_loop().time()
        lapsed = bool(self._last_contact) and now - self._last_contact > _LEASE_S
        if lapsed:
            self._trusted_from = now + _LEASE_S
        self._last_contact = now
        if not self._mourned.issuperset(self._nodes.gone):
            self._wake.set()
        return lapsed

    def gap(self) -> None:
        """The bus was away: one lease of grace for everything."""
        self._trusted_from = asyncio.get_running_loop().time() + _LEASE_S

    @property
    def in_contact(self) -> bool:
        """Whether this node's lease holds as far as it knows."""
        return asyncio.get_running_loop().time() - self._last_contact <= _LEASE_S

    @property
    def trusted(self) -> bool:
        """Whether this node may declare a lapse or a death."""
        return asyncio.get_running_loop().time() >= self._trusted_from and self.in_contact

    async def run(self) -> None:
        """Rounds without end; the caller supervises them."""
        rounds = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.SWEEP_MS / 1000):
                    await self._wake.wait()
            self._wake.clear()
            if not self.trusted:
                continue
            try:
                rounds += 1
                gone = frozenset(self._nodes.gone)
                mine, spread = self._mine(), _ROUNDS_GONE if gone else _ROUNDS
                # In turns, so that the bus sees no burst; all at once when somebody has just gone.
                await self._succession.look_after(mine if gone - self._mourned else mine[rounds % spread :: spread])
                self._mourned = gone
                await self.sweep()
            except BusUnavailable as error:
                log.warning("a round could not reach the bus", error=error)
                self.gap()

    async def sweep(self) -> int:
        """Settles what is due: how many instants were. Partitions with nothing due cost one read each."""
        keys, scripts = self._store.keys, self._store.scripts
        waits = [
            self._store.topology.for_partition(tag).run(
                scripts.sweep, (keys.root(tag), keys.due(tag)), (_SWEPT, self._store.stamp(tag))
            )
            for tag in await self._due()
        ]
        settled = 0
        for reply in await asyncio.gather(*waits, return_exceptions=True):
            if isinstance(reply, BaseException):
                raise reply
            settled += cast("int", reply)
        return settled

    async def _due(self) -> list[str]:
        """Which of this node's partitions have something due, by its estimate of their clocks."""
        keys, tags = self._store.keys, self._mine()
        waits = [
            self._store.topology.for_partition(tag).call(
                "ZRANGEBYSCORE", keys.due(tag), "-inf", self._store.now_ms(tag), "LIMIT", 0, 1
            )
            for tag in tags
        ]
        found: list[str] = []
        for tag, reply in zip(tags, await asyncio.gather(*waits, return_exceptions=True), strict=True):
            if isinstance(reply, BaseException):
                raise reply
            if reply:
                found.append(tag)
        return found

    def _mine(self) -> Sequence[str]:
        """Each partition falls to one living node, so the work of all together does not grow with their number."""
        living = sorted(node.incarnation for node in self._nodes.living())
        if self._nodes.incarnation not in living:
            return ()
        rank = living.index(self._nodes.incarnation)
        return self._store.keys.tags[rank :: len(living)]
