"""A machine that has a tool and a run, and its child's pen."""

from adapters.stdio.events import Violation
from adapters.stdio.protocol import CAPABILITIES, ChildProtocol
from adapters.stdio.requests import Request, ToolDescriptor
from gateway.model.clean import ModelText
from gateway.model.redaction import ours_for_model, ours_for_model_json
from tests.doubles.child_frames import RUN, SESSION, FrameWriter

TOOL = ToolDescriptor("client__page__read", ours_for_model("Reads a row."), ours_for_model_json('{"type":"object"}'))


def started(*, cards: bool = False) -> tuple[ChildProtocol, FrameWriter]:
    """A machine with one registered tool and a run under way."""
    machine, child = ChildProtocol(), FrameWriter()
    request = machine.initialize([TOOL], cards=cards)
    extra = ["client.tools", "tool.cards"] if cards else ["client.tools"]
    machine.receive(child.initialized(request.id, [TOOL.name], [*CAPABILITIES, *extra]))
    turn = machine.turn_start(SESSION, ModelText("hello"))
    machine.receive(child.result(turn.id, {"run_id": RUN, "accepted": True}))
    assert machine.active_run == RUN
    return machine, child


def violation_of(machine: ChildProtocol, data: bytes) -> Violation:
    events = machine.receive(data)
    assert len(events) == 1, events
    assert isinstance(events[0], Violation), events
    return events[0]


def answer(machine: ChildProtocol, call_id: str = "call-1", text: str = "done") -> Request:
    return machine.tool_result(call_id, status="success", text=ModelText(text))
