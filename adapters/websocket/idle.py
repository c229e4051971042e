"""A queue and a gate that cost an idle connection next to nothing.

Own what asyncio's ``Queue`` and ``Event`` do for one connection of uvicorn's, by the same names. A deque takes 760
bytes while it is empty, and a connection that waits would have five; here there is one while something waits.
"""

import asyncio
from collections import deque
from typing import Any


class Messages:
    """ASGI messages for the one who receives them. It has no bound: the connection pauses its reading instead."""

    __slots__ = ("_messages", "_waiting")

    def __init__(self) -> None:
        self._messages: deque[Any] | None = None
        self._waiting: asyncio.Future[None] | None = None

    def put_nowait(self, message: Any) -> None:
        """Adds one."""
        if self._messages is None:
            self._messages = deque()
        self._messages.append(message)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def empty(self) -> bool:
        """Whether ``get`` would wait."""
        return self._messages is None

    async def get(self) -> Any:
        """The next one, once it is there. One task at a time may wait."""
        while self._messages is None:
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        message = self._messages.popleft()
        if not self._messages:
            self._messages = None
        return message


class Gate:
    """An event that is set at first: ``wait`` returns at once while it is."""

    __slots__ = ("_open", "_waiting")

    def __init__(self) -> None:
        self._open = True
        self._waiting: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        """Whether it is open."""
        return self._open

    def clear(self) -> None:
        """Closes it."""
        self._open = False

    def set(self) -> None:
        """Opens it; all who wait go on."""
        self._open = True
        waiting, self._waiting = self._waiting, None
        for one in waiting or ():
            if not one.done():
                one.set_result(None)

    async def wait(self) -> None:
        """Until it is open."""
        if self._open:
            return
        mine = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(mine)
        await mine
