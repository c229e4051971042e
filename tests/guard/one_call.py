"""One call through the owner and the edge in one process, over transports that are none.

    python -m tests.guard.one_call COUNT [gate]

What Redis would answer is written down here; everything between the bytes is the product's: the child's machine, the
run's calls, the outbox, the connection, the socket's machine, the answer, the feed with two readers. Used by the test
that counts instructions, and by itself for a profile. ``gate``: after ten calls it says so and waits for a line, and
once more after the COUNT that follow.
"""

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from adapters.stdio.events import Response
from adapters.stdio.frames import ToolCall
from adapters.stdio.run_calls import RunCalls
from adapters.websocket import protocol
from adapters.websocket.protocol import Command, Held, Machine, Rate
from gateway.bus.calls import Calls
from gateway.bus.connect import Endpoint
from gateway.bus.connection import Connection
from gateway.bus.keys import Keys
from gateway.bus.outbox import Outbox
from gateway.bus.scripts import Bounds as ScriptBounds
from gateway.bus.scripts import Scripts
from gateway.bus.store import Store, outcome
from gateway.bus.wire import Bounds, Wire
from gateway.config.settings import Limits
from gateway.model.catalog import DescriptorRedaction, build_catalog
from gateway.model.redaction import KnownSecret, Redactor
from gateway.model.registration import Registration
from gateway.model.tools import parse_tools
from gateway.observe.tasks import Tasks
from gateway.services.answers import Answers
from gateway.services.deadlines import Timers
from gateway.services.feeds import Feed, Reader
from tests.doubles.started_protocol import TOOL, started

SESSION_ID = str(UUID(int=7))
CLIENT_ID = str(UUID(int=8))
SCHEMA = {
    "type": "object",
    "properties": {"row": {"type": "integer"}, "query": {"type": "string"}},
    "required": ["row"],
}
TEXT = "The first line of the table, as the page shows it: 1,024 rows, 42 of them marked. " * 3


WARM = 10


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def abort(self) -> None:
        pass


class Bus:
    """A store whose one connection is open and leads nowhere; ``say`` is what the server answers."""

    def __init__(self) -> None:
        self.transport = Transport()
        self.wire = Wire(asyncio.get_running_loop(), Bounds(reply_s=3_600))
        self.wire.connection_made(cast(Any, self.transport))
        connection = Connection(Endpoint("nowhere", 1))
        connection._wire, connection.fault = self.wire, None
        clock = SimpleNamespace(now_ms=lambda: 1_000, stamp=lambda: b"1000")
        topology = SimpleNamespace(for_partition=lambda _tag: connection, clock_for=lambda _tag: clock)
        self.store = Store(cast(Any, topology), Keys("tr"), Scripts(ScriptBounds()))

    async def say(self, reply: bytes) -> None:
        """Lets what was sent out, and answers it."""
        while not self.transport.written:
            await asyncio.sleep(0)
        self.transport.written.clear()
        self.wire.data_received(reply)
        await asyncio.sleep(0)


class Context:
    """A session that has one tool, as its run sees it."""

    def __init__(self, bus: Bus) -> None:
        redactor = Redactor([KnownSecret("a-known-secret-of-a-deployment", "key")])
        self.session_id = SESSION_ID
        self.stale = False
        self.agent = SimpleNamespace(redact_arguments_by_name=False, delegated_use=())
        tools = parse_tools([{"name": "read", "description": "Reads a row.", "parameters": SCHEMA}])
        registration = Registration(client_id=CLIENT_ID, name="page", order=1, tools=tools)
        redaction = DescriptorRedaction(redactor.model_text, redactor.schema_json)
        self.catalog = build_catalog([registration], redaction=redaction)
        tasks = Tasks()
        self.outbox = Outbox(
            bus.store, SESSION_ID, 1, tasks=tasks, isolation_s=10, on_lost=lambda error: sys.exit(f"lost: {error}")
        )
        self.services = SimpleNamespace(
            store=bus.store, redactor=redactor, limits=Limits(), calls=Calls(bus.store), timers=Timers(), tasks=tasks
        )
        self.marks: list[str] = []

    def revision(self, _client_id: str) -> int:
        return 1

    def take_marks(self) -> str:
        marks, self.marks = " ".join(self.marks), []
        return marks

    def mark(self, call_id: str, what: str) -> None:
        self.marks.append(f"{call_id} {what}")

    def used(self, _name: str) -> None:
        pass

    def refresh(self) -> None:
        raise AssertionError("the list has not changed")

    def write(self, *_: object, **__: object) -> None:
        raise AssertionError("a call is written by its dispatch")


def gate(name: str) -> None:
    print(name, flush=True)
    sys.stdin.readline()


async def main(count: int, *, gated: bool = False) -> None:
    owner_bus, edge_bus = Bus(), Bus()
    context = Context(owner_bus)
    machine, pen = started()
    sent: list[bytes] = []
    child = SimpleNamespace(protocol=machine, send=lambda request: sent.append(request.data))
    generation = SimpleNamespace(child=child, native=frozenset({TOOL.name}))
    calls = RunCalls(cast(Any, context), cast(Any, generation), "run-1")
    held = {CLIENT_ID: Held(CLIENT_ID, SESSION_ID, "hash", "holder")}
    socket = Machine({SESSION_ID: object()}, held, Rate(1e9, 1e9))
    socket.open = True
    answers = Answers(Calls(edge_bus.store), context.services.redactor)
    feed = Feed(SESSION_ID)
    readers = [Reader(cast(Any, None), feed, 0, deltas=True) for _ in range(2)]
    feed.readers.update(readers)
    seq = 0
    for number in range(count + WARM * gated):
        if gated and number == WARM:
            gate("warm")
        call_id = f"call-{number}"
        frame = pen.call(call_id, name=TOOL.name, arguments={"row": number, "query": "the first line"})
        (event,) = machine.receive(frame)
        assert isinstance(event, ToolCall)
        calls.call(event, [])
        await owner_bus.say(b"*3\r\n$10\r\ndispatched\r\n$4\r\n2000\r\n$5\r\n30000\r\n")
        pushed: list[bytes] = []
        for kind in ("message_assistant", "tool_call", "client_tool_dispatched"):
            seq += 1
            pushed.append(b'{"seq":%d,"type":"%b","call_id":"%b"}' % (seq, kind.encode(), call_id.encode()))
        feed.receive(b"E" + b"\n".join(pushed))
        result = {"id": number, "op": "result", "client_id": CLIENT_ID, "call_id": call_id, "text": TEXT}
        command = socket.receive(json.dumps(result).encode(), 0.0)
        assert isinstance(command, Command)
        recorded: list[bytes] = []
        answer = answers.send_answer(SESSION_ID, CLIENT_ID, call_id, text=TEXT, is_error=False, structured=None)
        recorded = [arg for arg in edge_bus.wire._in_flight[-1].args if isinstance(arg, bytes)]
        await edge_bus.say(b"$8\r\nanswered\r\n")
        assert outcome(answer) == b"answered"
        protocol.ok(number, protocol.EMPTY)
        calls.answered(call_id, recorded[-3])
        seq += 1
        feed.receive(b'E{"seq":%d,"type":"tool_result","call_id":"%b"}' % (seq, call_id.encode()))
        for reader in readers:
            entries = reader.poll()
            assert isinstance(entries, list)
            assert len(entries) == 4
            for entry in entries:
                protocol.event(b'{"session_id":"s",', entry.event)
        request = json.loads(sent.pop())
        assert request["params"]["text"] == TEXT
        (accepted,) = machine.receive(pen.result(request["id"], {"accepted": True}))
        assert isinstance(accepted, Response)
        calls.response(accepted)
    if gated:
        gate("done")
    context.services.timers.close()
    await context.services.tasks.aclose()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), gated="gate" in sys.argv))
