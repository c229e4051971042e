"""The SSE streams of this node. Owns how many there are and how all of them are told to end.

A place is taken before a stream's head is sent and given back when its answer is over, whatever ended it.
"""

from collections import Counter
from typing import Final, NoReturn

from gateway.model.errors import Code, Refusal
from gateway.model.limits import STREAMS_PER_SESSION
from gateway.observe import metrics
from gateway.services.feeds import Reader
from gateway.services.pushes import Signal

DRAIN: Final = Signal("drain")


class Streams:
    """Open streams, at most ``limit``; one session has at most ``per_session`` of them, so that whoever holds a token
    takes no places from others."""

    def __init__(self, limit: int, per_session: int = STREAMS_PER_SESSION) -> None:
        self._limit = limit
        self._per_session = per_session
        self._open: dict[Reader, str] = {}
        self._taken: Counter[str] = Counter()  # by session, those that are being opened too
        self._count = 0
        self._gauge = metrics.READERS.labels("sse")

    def __len__(self) -> int:
        return self._count

    def take(self, session_id: str) -> None:
        """Takes a place for a stream that is being opened. Raises Refusal(TOO_MANY_REQUESTS)."""
        if self._taken[session_id] >= self._per_session:
            self._refuse("this session has as many streams as it may")
        if len(self) >= self._limit:
            self._refuse("this node has as many streams as it may")
        self._taken[session_id] += 1
        self._count += 1

    def _refuse(self, message: str) -> NoReturn:
        metrics.REFUSED.labels("streams").inc()
        raise Refusal(Code.TOO_MANY_REQUESTS, message, retry_after_s=5)

    def give_back(self, session_id: str) -> None:
        """A place of the session is free again."""
        self._count -= 1
        self._taken[session_id] -= 1
        if not self._taken[session_id]:
            del self._taken[session_id]

    def add(self, reader: Reader, session_id: str) -> None:
        """The stream is open in the place that was taken."""
        self._open[reader] = session_id
        self._gauge.inc()

    def remove(self, reader: Reader) -> None:
        """The stream is over: its place is free. Idempotent."""
        session_id = self._open.pop(reader, None)
        if session_id is not None:
            self.give_back(session_id)
            self._gauge.dec()
        reader.close()

    def drain(self) -> None:
        """Ends all of them, each with a ``retry:``; new ones are refused by whoever opens them."""
        for reader in list(self._open):
            reader.push_signal(DRAIN)
