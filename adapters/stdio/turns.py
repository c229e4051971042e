"""A child does one thing at a time: a run, or a question beside the runs. Owns whose turn it is.

A question's turn may be ended by others: a child that starts for it alone is needed by nobody once its session ends.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


class Turns:
    """The turns at one session's child, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._question: asyncio.Timeout | None = None  # the bound of the one whose turn it is

    def taken(self) -> bool:
        """Whether it is anybody's turn now."""
        return self._lock.locked()

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """A run's turn, however long it takes."""
        async with self._lock:
            yield

    @asynccontextmanager
    async def question(self, within_s: float) -> AsyncGenerator[None]:
        """A question's turn. ``TimeoutError`` after so many seconds, the wait for it included, or when it is ended."""
        async with asyncio.timeout(within_s) as bound, self._lock:
            self._question = bound
            try:
                yield
            finally:
                self._question = None

    async def end_question(self, within_s: float) -> None:
        """Ends a question whose turn it is, and waits for its end, for so many seconds at most."""
        if self._question is None:
            return
        with suppress(RuntimeError):  # it ends already
            self._question.reschedule(asyncio.get_running_loop().time())
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s), self._lock:
                pass
