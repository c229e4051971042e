"""This node among the others: the lease that says it lives.

Owns the renewal; what a lapse means is decided elsewhere.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.bus.errors import BusError, BusUnavailable
from gateway.bus.nodes import NodeInfo, Nodes
from gateway.model import limits
from gateway.observe.log import get_logger

log = get_logger("membership")

_LEAVE_S: Final = 2.0
_SLACK_MS: Final = 20


class Membership:
    """Renews this node's lease every second. ``info`` is asked anew each time; ``on_contact`` hears of each success."""

    def __init__(self, nodes: Nodes, info: Callable[[], NodeInfo], on_contact: Callable[[], None]) -> None:
        self._nodes = nodes
        self._info = info
        self._on_contact = on_contact
        self.fault: BusUnavailable | None = None
        """Why the last renewal failed; None when it did not."""

    async def join(self) -> None:
        """The first lease. Raises BusUnavailable."""
        await self._nodes.renew(self._info())
        self._on_contact()

    async def run(self) -> None:
        """Renewals without end; the caller supervises them."""
        while True:
            await asyncio.sleep(self._pause_s())
            try:
                await self._nodes.renew(self._info())
            except BusUnavailable as error:
                if self.fault is None or self.fault.kind is not error.kind:  # once per reason
                    log.warning("the lease could not be renewed", error=error)
                self.fault = error
            else:
                self.fault = None
                self._on_contact()

    def _pause_s(self) -> float:
        """A second; less when a node has missed its renewals, so that its end is noticed when it comes."""
        ends_ms = self._nodes.next_end_ms + _SLACK_MS
        return min(limits.NODE_RENEW_MS, max(ends_ms, _SLACK_MS)) / 1000

    async def leave(self) -> None:
        """Gives the lease up, so that others need not wait for its end."""
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._nodes.leave()
        except (BusError, TimeoutError) as error:
            log.warning("the lease could not be given up", error=error)
