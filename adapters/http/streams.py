"""The SSE streams of this node. Owns how many there are and how all of them are told to end.

A place is taken before a stream's head is sent and given back when its answer is over, whatever ended it.
"""

from typing import Final

from gateway.model.errors import Code, Refusal
from gateway.observe import metrics
from gateway.services.feeds import Reader, Signal

DRAIN: Final = Signal("drain")


class Streams:
    """Open streams, at most ``limit``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: set[Reader] = set()
        self._opening = 0
        self._gauge = metrics.READERS.labels("sse")

    def __len__(self) -> int:
        return len(self._open) + self._opening

    def take(self) -> None:
        """Takes a place for a stream that is being opened. Raises Refusal(TOO_MANY_REQUESTS)."""
        if len(self) >= self._limit:
            metrics.REFUSED.labels("streams").inc()
            raise Refusal(Code.TOO_MANY_REQUESTS, "this node has as many streams as it may", retry_after_s=5)
        self._opening += 1

    def give_back(self) -> None:
        """The stream was not opened after all."""
        self._opening -= 1

    def add(self, reader: Reader) -> None:
        """The stream is open in the place that was taken."""
        self._opening -= 1
        self._open.add(reader)
        self._gauge.inc()

    def remove(self, reader: Reader) -> None:
        """The stream is over: its place is free. Idempotent."""
        if reader in self._open:
            self._open.discard(reader)
            self._gauge.dec()
        reader.close()

    def drain(self) -> None:
        """Ends all of them, each with a ``retry:``; new ones are refused by whoever opens them."""
        for reader in list(self._open):
            reader.push_signal(DRAIN)
