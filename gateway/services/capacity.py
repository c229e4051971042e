"""Places for children on this node. Owns the count and the order of idleness; never starts or ends a child itself."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from gateway.model.errors import Code, Refusal

Evict = Callable[[], None]


class Capacity:
    """At most ``most`` children at once. When all places are taken the longest idle holder is asked to give its up."""

    def __init__(self, most: int) -> None:
        self.most: Final = most
        self._holders: set[str] = set()
        self._idle: OrderedDict[str, Evict] = OrderedDict()  # the longest idle first
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def taken(self) -> int:
        """Places that are taken."""
        return len(self._holders)

    async def take(self, holder: str, *, wait_s: float) -> None:
        """Takes a place; a holder that has one keeps it. Raises Refusal(NO_CAPACITY) after ``wait_s`` seconds."""
        self._idle.pop(holder, None)
        if holder in self._holders:
            return
        try:
            async with asyncio.timeout(wait_s):
                while len(self._holders) >= self.most:
                    self._evict_one()
                    place = asyncio.get_running_loop().create_future()
                    self._waiting.append(place)
                    await place
        except TimeoutError:
            raise Refusal(Code.NO_CAPACITY) from None
        self._holders.add(holder)

    def idle(self, holder: str, evict: Evict) -> None:
        """The holder does nothing now; ``evict`` asks it to end its child and to ``free`` the place."""
        if holder in self._holders:
            self._idle[holder] = evict
            self._idle.move_to_end(holder)
            if self._waiting:
                self._evict_one()

    def busy(self, holder: str) -> None:
        """The holder works again."""
        self._idle.pop(holder, None)

    def free(self, holder: str) -> None:
        """The holder has no child any more. Idempotent."""
        self._idle.pop(holder, None)
        if holder in self._holders:
            self._holders.remove(holder)
            while self._waiting:
                place = self._waiting.popleft()
                if not place.done():
                    place.set_result(None)
                    break

    def _evict_one(self) -> None:
        if self._idle:
            _, evict = self._idle.popitem(last=False)
            evict()
