"""The requests of one child's life, until they are answered. Owns their ids, their budget and which may be written now.

Must never write. Source: stdio protocol, Framing, Methods; bridge 9. A child that has read more requests than it may
have answers waiting ends itself, and it reads many at once; so at most ``WINDOW`` stand unanswered, and the rest wait
here, where an answer that nobody waits for any more can be taken back.
"""

from collections import deque
from typing import Final, Literal

from msgspec import UNSET, Struct

from adapters.stdio.events import InFlight, LostRequest
from adapters.stdio.requests import (
    AnswerApproval,
    CancelTurn,
    Empty,
    ListPage,
    OpenSession,
    PageHistory,
    Request,
    RequestsSpentError,
    Select,
    SetEffort,
    encode_request,
    start_turn,
)
from adapters.stdio.results import Method
from gateway.model.clean import ModelText

WINDOW: Final = 16
"""Requests without an answer at any moment: half of the frames that may wait in a child, whose runs need the rest."""
_URGENT: Final = frozenset({"turn.cancel", "shutdown"})


class Outgoing:
    """``requests`` is the budget of ids. Each builder raises RequestsSpentError, and TooLargeError or UnfitError before
    an id is spent."""

    def __init__(self, requests: int) -> None:
        self._requests = requests
        self._made = 0
        self._in_flight: dict[str, InFlight] = {}
        self._queue: deque[Request] = deque()
        self._queued_bytes = 0
        self._lost = 0

    @property
    def requests_left(self) -> int:
        """Request ids that may still be spent, the one that is kept for ``shutdown`` counted."""
        return self._requests - self._made

    @property
    def in_flight(self) -> tuple[InFlight, ...]:
        """Requests without a response, oldest first; those that wait to be written too."""
        return tuple(self._in_flight.values())

    # Which may be written.

    @property
    def queued_bytes(self) -> int:
        """Bytes of the requests that wait to be written."""
        return self._queued_bytes

    def queue(self, request: Request) -> None:
        """It is to be written, in its turn; a cancel and the shutdown go before all that wait."""
        if request.method in _URGENT:
            self._queue.appendleft(request)
        else:
            self._queue.append(request)
        self._queued_bytes += len(request.data)

    def next_request(self) -> Request | None:
        """The one to write now; None while none waits, or ``WINDOW`` are unanswered."""
        unanswered = len(self._in_flight) - len(self._queue) - self._lost
        if not self._queue or (unanswered >= WINDOW and self._queue[0].method not in _URGENT):
            return None
        request = self._queue.popleft()
        self._queued_bytes -= len(request.data)
        return request

    def withdraw_queued(self) -> None:
        """Nothing that waits is written any more."""
        for request in self._queue:
            self._in_flight.pop(request.id, None)
        self._queue.clear()
        self._queued_bytes = 0

    def _withdraw(self, call_id: str) -> None:
        """An answer to this call, where it still waits, is not written."""
        for request in [request for request in self._queue if request.call_id == call_id]:
            self._queue.remove(request)
            self._queued_bytes -= len(request.data)
            self._in_flight.pop(request.id, None)

    def _taken(self, request_id: str) -> InFlight | None:
        return self._in_flight.pop(request_id, None)

    def _lose(self, code: str) -> LostRequest:
        """An error without an id: of all requests in flight those are suspects that the code can mean. Ours are
        measured, so where a bound is the reason only the largest can have been misjudged."""
        waiting = {request.id for request in self._queue}
        suspects = tuple(request for request in self._in_flight.values() if request.id not in waiting)
        if code == "frame_too_large" and suspects:
            largest = max(request.size for request in suspects)
            suspects = tuple(request for request in suspects if request.size == largest)
        if len(suspects) == 1:
            del self._in_flight[suspects[0].id]
        elif suspects:
            self._lost += 1
        return LostRequest(code, suspects)

    # Builders.

    def status(self) -> Request:
        """Answers at any time after ``initialize`` was sent."""
        return self._make("status", Empty())

    def shutdown(self) -> Request:
        """The last request of a life; one id is always kept for it."""
        return self._make("shutdown", Empty(), reserve=0)

    def session_create(self) -> Request:
        """A new session of the child's own."""
        return self._make("session.create", Empty())

    def session_open(self, session_id: str) -> Request:
        """An earlier session, by its exact id."""
        return self._make("session.open", OpenSession(session_id))

    def history_page(self, session_id: str, revision: str, cursor: str | None = None) -> Request:
        """A page of the child's own history."""
        return self._make("history.page", PageHistory(session_id, revision, cursor))

    def session_list(self, revision: str | None = None, cursor: str | None = None) -> Request:
        """A page of the sessions of this folder; the first without a cursor."""
        return self._make("session.list", ListPage(revision, cursor))

    def model_catalog(self, revision: str | None = None, cursor: str | None = None) -> Request:
        """A page of the models; the first without a cursor, which makes a new snapshot."""
        return self._make("model.catalog", ListPage(revision, cursor))

    def selection_set(
        self,
        session_id: str,
        selection_revision: str,
        catalog_revision: str,
        provider: str,
        model: str,
        effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None,
    ) -> Request:
        """Another model for the turns to come; without ``effort`` the present one is kept."""
        wanted = UNSET if effort is None else SetEffort(effort)
        return self._make(
            "selection.set", Select(session_id, selection_revision, catalog_revision, provider, model, wanted)
        )

    def turn_start(self, session_id: str, prompt: ModelText) -> Request:
        """A run. The prompt is at most 16,384 bytes of UTF-8, not blank, and its frame has the bound of all frames."""
        return self._make("turn.start", start_turn(session_id, prompt))

    def turn_cancel(self, session_id: str, run_id: str) -> Request:
        """Ends the active run."""
        return self._make("turn.cancel", CancelTurn(session_id, run_id))

    def approval_answer(self, session_id: str, run_id: str, approval_id: str, *, allow: bool) -> Request:
        """One answer to one question."""
        return self._make("approval.answer", AnswerApproval(session_id, run_id, approval_id, allow))

    def _make(self, method: Method, params: Struct, *, call_id: str | None = None, reserve: int = 1) -> Request:
        if self.requests_left <= reserve:
            raise RequestsSpentError(f"{self._made} of {self._requests} request ids are spent")
        request_id = f"r{self._made + 1}"
        data = encode_request(request_id, method, params)
        self._made += 1
        self._in_flight[request_id] = InFlight(request_id, method, len(data) - 1, call_id)
        return Request(request_id, method, data, call_id)
