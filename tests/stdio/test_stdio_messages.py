"""A run's messages, put together (stdio protocol, Run events, Runs; bridge 8)."""

import pytest

from adapters.stdio.frames import MessageDelta, MessageReconcile
from adapters.stdio.messages import ClosedMessage, MessagesError, RunMessages


def part(message: str, text: str, number: int = 0, *, last: bool = True, partial: bool = True) -> MessageReconcile:
    return MessageReconcile("s", "r", message, number, text, last, partial)


def piece(message: str, number: int) -> MessageDelta:
    return MessageDelta("s", "r", message, number, "text")


def test_a_message_is_closed_at_the_next_activity_once_its_series_is_complete():
    run = RunMessages()
    run.reconcile(part("a", "one ", 0, last=False))
    assert run.close() == []
    run.reconcile(part("a", "two", 1))
    assert run.close() == [ClosedMessage("a", "one two", replaces=False)]
    assert run.close() == []


def test_the_same_series_again_says_nothing_new():
    run = RunMessages()
    for partial in (True, True, False):
        run.reconcile(part("a", "text", partial=partial))
        run.close()
    assert run.finish() == []
    assert run.final


def test_at_the_end_what_is_new_or_differs_is_told_in_the_childs_order():
    run = RunMessages()
    run.reconcile(part("a", "first"))
    assert len(run.close()) == 1
    run.reconcile(part("b", "second"))
    run.reconcile(part("c", "third"))
    run.reconcile(part("a", "FIRST", partial=False))
    assert run.finish() == [
        ClosedMessage("a", "FIRST", replaces=True),
        ClosedMessage("b", "second", replaces=False),
        ClosedMessage("c", "third", replaces=False),
    ]
    assert run.finish() == []


def test_a_closed_message_that_differs_waits_for_the_end():
    run = RunMessages()
    run.reconcile(part("a", "first"))
    run.close()
    run.reconcile(part("a", "first and more"))
    assert run.close() == []
    assert run.finish() == [ClosedMessage("a", "first and more", replaces=True)]


def test_a_message_that_goes_back_to_what_was_told_is_not_told_again():
    run = RunMessages()
    for text in ("x", "y", "x"):
        run.reconcile(part("a", text))
        run.close()
    assert run.finish() == []


def test_after_a_failure_the_last_complete_series_stands():
    run = RunMessages()
    run.reconcile(part("a", "whole"))
    run.reconcile(part("a", "half", 0, last=False))
    run.reconcile(part("b", "never ", 0, last=False))
    assert run.finish() == [ClosedMessage("a", "whole", replaces=False)]
    assert run.incomplete == ("b",)
    assert not run.final


def test_a_series_that_begins_again_forgets_its_first_half():
    run = RunMessages()
    run.reconcile(part("a", "old", 0, last=False))
    run.reconcile(part("a", "new ", 0, last=False))
    run.reconcile(part("a", "text", 1))
    assert run.close() == [ClosedMessage("a", "new text", replaces=False)]


@pytest.mark.parametrize("numbers", [[1], [0, 2], [0, 1, 1]])
def test_parts_out_of_order_fail_closed(numbers: list[int]):
    run = RunMessages()
    *good, bad = numbers
    for number in good:
        run.reconcile(part("a", "x", number, last=False))
    with pytest.raises(MessagesError):
        run.reconcile(part("a", "x", bad, last=False))


def test_an_empty_message_is_none_unless_it_takes_the_place_of_one():
    run = RunMessages()
    run.reconcile(part("a", ""))
    run.reconcile(part("b", "text"))
    assert run.close() == [ClosedMessage("b", "text", replaces=False)]
    run.reconcile(part("b", "", partial=False))
    assert run.finish() == [ClosedMessage("b", "", replaces=True)]


def test_deltas_say_whether_they_follow_the_one_before():
    run = RunMessages()
    assert [run.delta(piece("a", n)) for n in (0, 1, 3, 4, 7)] == [True, True, False, True, False]
    assert run.delta(piece("b", 0))
    assert not run.delta(piece("c", 1))
    assert run.finish() == []


def test_a_run_has_512_messages():
    run = RunMessages()
    for number in range(512):
        run.reconcile(part(f"m{number}", "x"))
    run.reconcile(part("m0", "y"))
    with pytest.raises(MessagesError):
        run.delta(piece("m512", 0))
    assert len(run.finish()) == 512


def test_a_run_has_so_many_bytes_in_complete_and_in_growing_messages():
    run = RunMessages(max_bytes=10)
    run.reconcile(part("a", "éé"))
    run.reconcile(part("b", "123456"))
    run.reconcile(part("b", "123456", partial=False))
    with pytest.raises(MessagesError):
        run.reconcile(part("c", "x"))
    run = RunMessages(max_bytes=10)
    run.reconcile(part("a", "12345", 0, last=False))
    with pytest.raises(MessagesError):
        run.reconcile(part("b", "123456", 0, last=False))
