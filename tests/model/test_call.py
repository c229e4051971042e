"""The call's transition table, exhaustively: every state, event and guard."""

from dataclasses import replace
from itertools import product

import pytest

from gateway.model import limits
from gateway.model.call import OPEN, TABLE, Call, Event, Outcome, Reason, State, Verdict, dispatch, step
from gateway.model.deadline import Deadline, call_budget_ms

NOW = 1_000_000
CLIENT = "client"
BY_CLIENT = (Event.ACK, Event.ANSWER, Event.REFUSE)


def call(state: State, **changes: object) -> Call:
    made = replace(dispatch("call", CLIENT, NOW, 600_000), state=state)
    if state is State.FAILED:
        made = replace(made, reason=Reason.ACK_TIMEOUT, outcome=Outcome.NOT_STARTED)
    return replace(made, **changes)  # pyright: ignore[reportArgumentType]


def test_the_table_names_every_state_and_event() -> None:
    assert set(TABLE) == set(State)
    assert all(set(cells) == set(Event) for cells in TABLE.values())


@pytest.mark.parametrize("state", [s for s in State if s not in OPEN])
def test_nothing_leaves_a_settled_state(state: State) -> None:
    assert {cell.to for cell in TABLE[state].values()} == {state}
    assert Verdict.APPLIED not in {cell.verdict for cell in TABLE[state].values()}


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_step_does_what_the_table_says(state: State, event: Event) -> None:
    before = call(state)
    now = before.due.at_ms if event is Event.DUE else NOW + 1
    after, verdict = step(before, event, now, client_id=CLIENT, digest="d")
    cell = TABLE[state][event]
    assert after.state is cell.to
    assert verdict is cell.verdict
    assert (after.reason is not None) == (after.state is State.FAILED)
    assert (after.outcome is None) == (after.open or (before == after and before.outcome is None))


@pytest.mark.parametrize(("state", "event"), list(product(State, BY_CLIENT)))
def test_another_client_finds_no_such_call(state: State, event: Event) -> None:
    before = call(state)
    assert step(before, event, NOW, client_id="other", digest="d") == (before, Verdict.NOT_FOUND)


@pytest.mark.parametrize(("state", "event"), list(product(sorted(OPEN), [e for e in Event if e is not Event.DUE])))
def test_what_comes_late_finds_the_call_settled(state: State, event: Event) -> None:
    before = call(state)
    after, verdict = step(before, event, before.due.at_ms, client_id=CLIENT, digest="d")
    assert after.state is State.FAILED
    assert verdict in (Verdict.CONFLICT, Verdict.IGNORED)


def test_a_timer_that_fires_early_changes_nothing() -> None:
    before = call(State.DISPATCHED)
    assert step(before, Event.DUE, before.due.at_ms - 1) == (before, Verdict.IGNORED)


def test_dues() -> None:
    made = dispatch("call", CLIENT, NOW, 600_000)
    assert made.due == Deadline(NOW + limits.ACK_MS)
    acked, _ = step(made, Event.ACK, NOW + 10, client_id=CLIENT)
    assert acked.due == Deadline(NOW + 10 + limits.RESULT_MS)
    short = dispatch("call", CLIENT, NOW, 5_000)
    assert short.due == short.deadline == Deadline(NOW + 5_000)
    acked, _ = step(short, Event.ACK, NOW + 10, client_id=CLIENT)
    assert acked.due == short.deadline
    refused, _ = step(made, Event.REFUSE, NOW, client_id=CLIENT)
    assert refused.due == Deadline(NOW + limits.REFUSED_ANSWER_MS)
    again, _ = step(refused, Event.ACK, NOW + 1, client_id=CLIENT)
    assert again.due == refused.due


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, Outcome.NOT_STARTED),
        ({"acked": True}, Outcome.UNKNOWN),
        ({"refused": True}, Outcome.UNKNOWN),
        ({"attempt": 2}, Outcome.UNKNOWN),
    ],
)
def test_what_may_be_said_of_the_work(changes: dict[str, object], outcome: Outcome) -> None:
    after, _ = step(call(State.DISPATCHED, **changes), Event.END, NOW)
    assert after.outcome is outcome


def test_the_same_again_is_a_repeat_and_anything_else_a_conflict() -> None:
    answered, _ = step(call(State.DISPATCHED), Event.ANSWER, NOW, client_id=CLIENT, digest="d")
    assert step(answered, Event.ANSWER, NOW, client_id=CLIENT, digest="d")[1] is Verdict.REPEATED
    assert step(answered, Event.ANSWER, NOW, client_id=CLIENT, digest="e")[1] is Verdict.CONFLICT
    assert step(answered, Event.ACK, NOW, client_id=CLIENT)[1] is Verdict.CONFLICT
    acked, _ = step(call(State.DISPATCHED), Event.ACK, NOW, client_id=CLIENT)
    answered, _ = step(acked, Event.ANSWER, NOW, client_id=CLIENT, digest="d")
    assert step(answered, Event.ACK, NOW, client_id=CLIENT)[1] is Verdict.REPEATED


def test_a_registration_that_is_gone_has_no_calls() -> None:
    gone, _ = step(call(State.ACKED), Event.LEAVE, NOW)
    assert gone.reason is Reason.CLIENT_GONE
    for event in (Event.ACK, Event.ANSWER):
        assert step(gone, event, NOW, client_id=CLIENT, digest="d")[1] is Verdict.NOT_FOUND


def test_a_call_that_is_taken_over_begins_again_under_its_deadline() -> None:
    acked, _ = step(call(State.DISPATCHED), Event.ACK, NOW, client_id=CLIENT)
    moved, verdict = step(acked, Event.RETAKE, NOW + 5, client_id="heir")
    assert verdict is Verdict.APPLIED
    assert (moved.state, moved.client_id, moved.attempt, moved.acked) == (State.DISPATCHED, "heir", 2, False)
    assert moved.deadline == acked.deadline
    assert moved.due == Deadline(NOW + 5 + limits.ACK_MS)


@pytest.mark.parametrize(
    ("timeout_ms", "margin_ms", "budget"),
    [(30_000, 500, 29_500), (1_000, 500, 500), (1_000, 900, 500), (300_000, 0, 300_000)],
)
def test_the_margin_takes_at_most_half(timeout_ms: int, margin_ms: int, budget: int) -> None:
    assert call_budget_ms(timeout_ms, margin_ms) == budget


def test_a_deadline_counts_down_and_never_below_nothing() -> None:
    deadline = Deadline.after(NOW, 100)
    assert deadline.remaining(NOW) == 100
    assert deadline.remaining(NOW + 200) == 0
    assert deadline.passed(NOW + 100)
    assert not deadline.passed(NOW + 99)
    assert deadline.capped_by(Deadline(NOW)) == Deadline(NOW)
    assert deadline.less(30) == Deadline(NOW + 70)
    assert Deadline.after(NOW, -5) == Deadline(NOW)
