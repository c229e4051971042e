"""Places for children on this node. Owns the count and the order of idleness; never starts or ends a child itself."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from gateway.model.errors import Code, Refusal

Evict = Callable[[], None]


class Capacity:
    """At most ``most`` children at once. When all places are taken the longest idle holder is asked to give its up.

    A place that is given up goes to who has waited longest, at once: none is free while somebody waits.
    """

    def __init__(self, most: int) -> None:
        self.most: Final = most
        self._holders: set[str] = set()
        self._idle: OrderedDict[str, Evict] = OrderedDict()  # the longest idle first
        self._waiting: dict[asyncio.Future[None], str] = {}  # who waits, the longest first

    @property
    def taken(self) -> int:
        """Places that are taken."""
        return len(self._holders)

    async def take(self, holder: str, *, wait_s: float) -> None:
        """Takes a place; a holder that has one keeps it. Raises Refusal(NO_CAPACITY) after ``wait_s`` seconds.

        May be cancelled at any time. A holder waits once at a time.
        """
        self._idle.pop(holder, None)
        if holder in self._holders:
            return
        if len(self._holders) < self.most:
            self._holders.add(holder)
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[place] = holder
        self._evict_one()
        try:
            async with asyncio.timeout(wait_s):
                await place
        except TimeoutError:
            if place.cancelled():  # else the place came in the same moment
                raise Refusal(Code.NO_CAPACITY) from None
        except BaseException:
            if not place.cancelled():  # nor may it be lost: the next one gets it
                self.free(holder)
            raise
        finally:
            self._waiting.pop(place, None)

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
        self._holders.discard(holder)
        while self._waiting and len(self._holders) < self.most:
            place = next(iter(self._waiting))
            following = self._waiting.pop(place)
            if not place.done():  # it may have been given up in this moment
                self._holders.add(following)
                place.set_result(None)

    def _evict_one(self) -> None:
        if self._idle:
            _, evict = self._idle.popitem(last=False)
            evict()
