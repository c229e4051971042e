"""Events for whoever reads them. Owns how far a reader may be behind."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

from toolrelay_client.errors import ToolrelayError

Event = dict[str, Any]
"""An event of the session's log: ``{seq, type, …}``."""
EVENTS: Final = 10_000


class Events:
    """Of one client."""

    def __init__(self) -> None:
        self._readers: dict[asyncio.Queue[Event], bool] = {}  # and whether it has lost one
        self._ended = asyncio.Event()

    def put(self, event: Event) -> None:
        """To every reader; one that is too far behind is ended."""
        for queue in self._readers:
            if queue.full():
                self._readers[queue] = True
            else:
                queue.put_nowait(event)

    def end(self) -> None:
        """No more will come."""
        self._ended.set()

    async def read(self) -> AsyncGenerator[Event]:
        """Until the end. Raises ToolrelayError for a reader that is 10,000 events behind."""
        queue: asyncio.Queue[Event] = asyncio.Queue(EVENTS)
        self._readers[queue] = False
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            while True:
                coming = asyncio.ensure_future(queue.get())
                try:
                    await asyncio.wait({coming, ended}, return_when=asyncio.FIRST_COMPLETED)
                    if not coming.done():
                        return
                    yield coming.result()
                finally:
                    coming.cancel()
                if self._readers[queue] and queue.empty():
                    raise ToolrelayError("too_large", f"this reader was more than {EVENTS} events behind")
        finally:
            ended.cancel()
            del self._readers[queue]
