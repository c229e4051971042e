"""Which requests may be written when: a child ends itself over too many at once (stdio protocol, Framing)."""

import pytest

from adapters.stdio.events import LostRequest
from adapters.stdio.outgoing import WINDOW
from adapters.stdio.protocol import ChildProtocol
from adapters.stdio.requests import TooLargeError
from gateway.model.clean import ModelJson, ModelText
from gateway.model.results import fit_result
from tests.doubles.child_frames import RUN, SESSION
from tests.doubles.python_child import Start
from tests.doubles.started_protocol import answer, started


def written(machine: ChildProtocol) -> list[str]:
    found: list[str] = []
    while request := machine.next_request():
        found.append(request.id)
    return found


def test_no_more_than_a_window_stands_unanswered_and_each_answer_lets_one_through():
    machine, child = started()
    requests = [machine.status() for _ in range(WINDOW + 4)]
    for request in requests:
        machine.queue(request)
    assert written(machine) == [request.id for request in requests[:WINDOW]]
    assert machine.queued_bytes == sum(len(request.data) for request in requests[WINDOW:])
    machine.receive(child.error(requests[3].id, "busy"))
    assert written(machine) == [requests[WINDOW].id]


def test_a_cancel_goes_before_what_waits_and_over_the_window():
    machine, _ = started()
    for _ in range(WINDOW + 1):
        machine.queue(machine.status())
    written(machine)
    cancel = machine.turn_cancel(SESSION, RUN)
    machine.queue(cancel)
    assert written(machine) == [cancel.id]


@pytest.mark.parametrize("how", ["cancel", "finished"])
def test_an_answer_that_waits_is_taken_back_when_its_call_ends(how: str):
    machine, child = started()
    machine.receive(child.call("call-1") + child.call("call-2"))
    for _ in range(WINDOW):
        machine.queue(machine.status())
    written(machine)
    machine.queue(answer(machine, "call-1"))
    machine.queue(last := machine.status())
    machine.receive(child.cancel("call-1") if how == "cancel" else child.finished())
    assert machine.queued_bytes == len(last.data)
    assert all(flight.call_id is None for flight in machine.in_flight)


def test_a_lost_request_does_not_hold_its_place_for_ever():
    machine, child = started()
    for _ in range(3 * WINDOW):
        machine.queue(machine.status())
    taken = len(written(machine))
    assert taken == WINDOW
    for _ in range(WINDOW):
        (lost,) = machine.receive(child.error(None, "invalid_frame"))
        assert isinstance(lost, LostRequest)
        assert len(lost.suspects) == taken, "what waits is no suspect"
        taken += len(written(machine))
    assert taken == 2 * WINDOW


async def test_a_burst_of_requests_reaches_the_child_in_windows(start: Start):
    child, heard = await start(
        f"""
os.set_blocking(0, False)
total = 0
while total < 100:
    time.sleep(0.02)
    data = os.read(0, 1 << 20)
    lines = data.splitlines()
    assert len(lines) <= {WINDOW}, len(lines)
    total += len(lines)
    for line in lines:
        respond(json.loads(line)["id"], STATUS)
""",
    )
    for _ in range(100):
        child.send(child.protocol.status())
    assert (await child.wait()).code == 0
    assert child.protocol.queued_bytes == 0
    assert len(heard.events) == 102


@pytest.mark.parametrize("size", [32_738, 32_739])
def test_a_result_with_a_structured_value_has_thirty_bytes_less(size: int):
    machine, child = started()
    machine.receive(child.call())
    structured = ModelJson(b'{"a":1}')
    text = ModelText("x" * (size - len(structured)))
    room = machine.result_room("call-1", structured)
    assert room.raw == 32_738 - len(structured)
    fitted = fit_result(text, structured, call_id="call-1", overhead=600)
    if size == 32_738:
        machine.tool_result("call-1", status="success", text=text, structured=structured)
        assert fitted.structured == structured
    else:
        with pytest.raises(TooLargeError, match="result_bytes"):
            machine.tool_result("call-1", status="success", text=text, structured=structured)
        assert fitted.structured is None
