"""One call's life: the transition table as data, and ``step`` that reads it. No clock, no I/O.

The same table is rendered into the bus' Lua scripts (``gateway/bus/scripts.py``), checked exhaustively by
``tests/model/test_call.py`` and drawn in docs/calls.md. Whatever the table does not name cannot happen.

Guards that come before the table, in this order: a client that does not own the call is told that there is no such
call; a due instant that has passed is applied (``DUE``) before whatever arrived late; a registration that is gone has
no calls any more (bridge 7).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from gateway.model import limits
from gateway.model.deadline import Deadline


class State(StrEnum):
    """Where a call is. The last two are settled: nothing leaves them."""

    DISPATCHED = "dispatched"
    ACKED = "acked"
    ANSWERED = "answered"
    FAILED = "failed"


class Event(StrEnum):
    """What can happen to a call."""

    ACK = "ack"  # its client says that it works on it
    ANSWER = "answer"  # its client's result was valid
    REFUSE = "refuse"  # its client's result was not valid and may be corrected (bridge 6)
    DUE = "due"  # the instant it waits for has passed
    TIMEOUT = "timeout"  # the child's own clock ran out
    LEAVE = "leave"  # its client left, lapsed or was taken over
    END = "end"  # the child cancelled it, or its run or its owner is gone
    RETAKE = "retake"  # its client's place was taken over by key and the tool is idempotent


class Reason(StrEnum):
    """Why a call failed: the four reasons of ``client_tool_failed``."""

    CLIENT_GONE = "client_gone"
    ACK_TIMEOUT = "ack_timeout"
    RESULT_TIMEOUT = "result_timeout"
    RUN_GONE = "run_gone"


class Outcome(StrEnum):
    """What may be said of the work (bridge 7): trust the first, try the second again, the third not blindly."""

    DONE = "done"
    NOT_STARTED = "not_started"
    UNKNOWN = "unknown"


class Verdict(StrEnum):
    """What whoever caused an event is told."""

    APPLIED = "applied"
    REPEATED = "repeated"  # the same thing again: the first answer holds
    CONFLICT = "conflict"  # it contradicts what is recorded: 409
    IGNORED = "ignored"  # nobody waits for an answer, and nothing changed
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class Transition:
    """One cell of the table: the state that follows, the verdict, and the reason where the call fails."""

    to: State
    verdict: Verdict
    reason: Reason | None = None


def _applied(to: State, reason: Reason | None = None) -> Transition:
    return Transition(to, Verdict.APPLIED, reason)


def _stays(state: State, verdict: Verdict) -> Transition:
    return Transition(state, verdict)


OPEN: Final = frozenset({State.DISPATCHED, State.ACKED})

TABLE: Final[Mapping[State, Mapping[Event, Transition]]] = {
    State.DISPATCHED: {
        Event.ACK: _applied(State.ACKED),
        Event.ANSWER: _applied(State.ANSWERED),
        Event.REFUSE: _applied(State.DISPATCHED),
        Event.DUE: _applied(State.FAILED, Reason.ACK_TIMEOUT),
        Event.TIMEOUT: _applied(State.FAILED, Reason.ACK_TIMEOUT),
        Event.LEAVE: _applied(State.FAILED, Reason.CLIENT_GONE),
        Event.END: _applied(State.FAILED, Reason.RUN_GONE),
        Event.RETAKE: _applied(State.DISPATCHED),
    },
    State.ACKED: {
        Event.ACK: _stays(State.ACKED, Verdict.REPEATED),
        Event.ANSWER: _applied(State.ANSWERED),
        Event.REFUSE: _applied(State.ACKED),
        Event.DUE: _applied(State.FAILED, Reason.RESULT_TIMEOUT),
        Event.TIMEOUT: _applied(State.FAILED, Reason.RESULT_TIMEOUT),
        Event.LEAVE: _applied(State.FAILED, Reason.CLIENT_GONE),
        Event.END: _applied(State.FAILED, Reason.RUN_GONE),
        Event.RETAKE: _applied(State.DISPATCHED),
    },
    State.ANSWERED: {
        Event.ACK: _stays(State.ANSWERED, Verdict.CONFLICT),  # a repeat, if it was acked: see step
        Event.ANSWER: _stays(State.ANSWERED, Verdict.CONFLICT),  # a repeat, if it is the same: see step
        Event.REFUSE: _stays(State.ANSWERED, Verdict.CONFLICT),
        Event.DUE: _stays(State.ANSWERED, Verdict.IGNORED),
        Event.TIMEOUT: _stays(State.ANSWERED, Verdict.IGNORED),
        Event.LEAVE: _stays(State.ANSWERED, Verdict.IGNORED),
        Event.END: _stays(State.ANSWERED, Verdict.IGNORED),
        Event.RETAKE: _stays(State.ANSWERED, Verdict.IGNORED),
    },
    State.FAILED: {
        Event.ACK: _stays(State.FAILED, Verdict.CONFLICT),
        Event.ANSWER: _stays(State.FAILED, Verdict.CONFLICT),
        Event.REFUSE: _stays(State.FAILED, Verdict.CONFLICT),
        Event.DUE: _stays(State.FAILED, Verdict.IGNORED),
        Event.TIMEOUT: _stays(State.FAILED, Verdict.IGNORED),
        Event.LEAVE: _stays(State.FAILED, Verdict.IGNORED),
        Event.END: _stays(State.FAILED, Verdict.IGNORED),
        Event.RETAKE: _stays(State.FAILED, Verdict.IGNORED),
    },
}


@dataclass(frozen=True, slots=True)
class Call:
    """A call as its record holds it.

    ``deadline`` is the ceiling that the child's clock sets; ``due`` is the instant that the present state waits for
    (ack due, result due or the ceiling, whichever comes first; bridge 5). ``acked`` says whether an ack was logged
    in this attempt; ``digest`` is that of the accepted answer.
    """

    call_id: str
    client_id: str
    deadline: Deadline
    due: Deadline
    state: State = State.DISPATCHED
    attempt: int = 1
    acked: bool = False
    refused: bool = False
    digest: str | None = None
    reason: Reason | None = None
    outcome: Outcome | None = None

    @property
    def open(self) -> bool:
        """Whether the call can still be answered."""
        return self.state in OPEN


def dispatch(call_id: str, client_id: str, now_ms: int, budget_ms: int) -> Call:
    """A new call: its deadline is ``budget_ms`` from now, its ack due after 60 s or at the deadline."""
    deadline = Deadline.after(now_ms, budget_ms)
    return Call(call_id, client_id, deadline, Deadline.after(now_ms, limits.ACK_MS).capped_by(deadline))


def step(
    call: Call, event: Event, now_ms: int, *, client_id: str | None = None, digest: str | None = None
) -> tuple[Call, Verdict]:
    """Apply one event. ``client_id`` is that of the client that speaks (``None``: the gateway itself); ``digest`` is
    that of an answer; for ``RETAKE`` ``client_id`` is the one that takes over.

    Returns the call as it is afterwards and what whoever caused the event is told. A late event settles the call
    first, so a result that comes after its due instant is a conflict even when no timer has fired yet.
    """
    if event in (Event.ACK, Event.ANSWER, Event.REFUSE) and client_id != call.client_id:
        return call, Verdict.NOT_FOUND
    if event is not Event.DUE and call.open and call.due.passed(now_ms):
        call, _ = step(call, Event.DUE, now_ms)
    if event is Event.DUE and call.open and not call.due.passed(now_ms):
        return call, Verdict.IGNORED
    if event in (Event.ACK, Event.ANSWER) and call.reason is Reason.CLIENT_GONE:
        return call, Verdict.NOT_FOUND
    cell = TABLE[call.state][event]
    if cell.verdict is not Verdict.APPLIED:
        return call, _repeat(call, event, digest) or cell.verdict
    return _apply(call, event, cell, now_ms, client_id, digest), Verdict.APPLIED


def _repeat(call: Call, event: Event, digest: str | None) -> Verdict | None:
    """The same thing said again to an answered call: the first answer holds (bridge 7)."""
    if call.state is not State.ANSWERED:
        return None
    same = (event is Event.ANSWER and digest == call.digest) or (event is Event.ACK and call.acked)
    return Verdict.REPEATED if same else None


def _apply(call: Call, event: Event, cell: Transition, now_ms: int, client_id: str | None, digest: str | None) -> Call:
    match event:
        case Event.ACK:
            due = Deadline.after(now_ms, limits.RESULT_MS).capped_by(call.deadline)
            return replace(call, state=cell.to, acked=True, due=due.capped_by(call.due) if call.refused else due)
        case Event.ANSWER:
            return replace(call, state=cell.to, digest=digest, outcome=Outcome.DONE)
        case Event.REFUSE:
            due = Deadline.after(now_ms, limits.REFUSED_ANSWER_MS).capped_by(call.due)
            return replace(call, refused=True, due=due)
        case Event.RETAKE:
            assert client_id is not None
            due = Deadline.after(now_ms, limits.ACK_MS).capped_by(call.deadline)
            return replace(
                call, state=cell.to, client_id=client_id, attempt=call.attempt + 1, acked=False, refused=False, due=due
            )
        case Event.DUE | Event.TIMEOUT | Event.LEAVE | Event.END:
            timed_out = event in (Event.DUE, Event.TIMEOUT)
            reason = Reason.RESULT_TIMEOUT if call.refused and timed_out else cell.reason
            return replace(call, state=cell.to, reason=reason, outcome=_doubt(call))


def _doubt(call: Call) -> Outcome:
    """A call that nobody ever acked (in any attempt) was never begun; of any other nothing is known."""
    begun = call.acked or call.refused or call.attempt > 1
    return Outcome.UNKNOWN if begun else Outcome.NOT_STARTED
