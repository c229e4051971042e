"""What any node does for those that are gone: instants that have come are settled, sessions find a new owner.

Owns when that may be done. Silence of Redis is not death: a node that was out of contact itself declares nothing until
it has had contact for one lease again, so nobody loses anything to an outage that nobody could help (bridge 10).
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, cast

from gateway.bus.errors import BusUnavailable
from gateway.bus.nodes import Nodes
from gateway.bus.store import Store
from gateway.model import limits
from gateway.observe.log import get_logger
from gateway.services.succession import Succession

log = get_logger("patrol")

_SWEPT: Final = 200  # members of one partition and round
_STEP_MS: Final = 2_000  # a clock that moved more than this beyond our own has stepped
_LEASE_S: Final = limits.NODE_LEASE_MS / 1000


class Patrol:
    """Looks after the partitions that fall to this node, by its rank among those that live."""

    def __init__(self, store: Store, nodes: Nodes, succession: Succession) -> None:
        self._store = store
        self._nodes = nodes
        self._succession = succession
        self._last_contact = 0.0
        self._trusted_from = 0.0  # no lapse or death is declared before
        self.shifts = 0

    def contact(self) -> None:
        """The lease was renewed just now."""
        now = asyncio.get_running_loop().time()
        if now - self._last_contact > _LEASE_S:
            self._trusted_from = now + _LEASE_S if self._last_contact else now
        self._last_contact = now

    def gap(self) -> None:
        """The bus was away, or its clock has been set: one lease of grace for everything."""
        self._trusted_from = asyncio.get_running_loop().time() + _LEASE_S

    @property
    def trusted(self) -> bool:
        """Whether this node may declare a lapse or a death."""
        now = asyncio.get_running_loop().time()
        return now >= self._trusted_from and now - self._last_contact <= _LEASE_S

    async def run(self) -> None:
        """Rounds without end; the caller supervises them."""
        rounds = 0
        while True:
            await asyncio.sleep(limits.SWEEP_MS / 1000)
            if not self.trusted:
                continue
            try:
                await self.sweep()
                rounds += 1
                if rounds % 2 == 0 and (self._nodes.gone or rounds % 20 == 0):
                    await self._succession.look_after(self._mine())
            except BusUnavailable as error:
                log.warning("a round could not reach the bus", error=error)
                self.gap()

    async def sweep(self) -> int:
        """Settles what is due: how many instants were."""
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
                self.gap()
                log.warning("the bus clock has stepped; nothing was settled", shift_ms=int(shift))
                break
        return settled

    def _mine(self) -> Sequence[str]:
        """Each partition falls to one living node, so the work of all together does not grow with their number."""
        living = sorted(node.incarnation for node in self._nodes.living())
        if self._nodes.incarnation not in living:
            return ()
        rank = living.index(self._nodes.incarnation)
        return self._store.keys.tags[rank :: len(living)]
