"""The sans-I/O machine of one child's frames. Owns sequence, correlation, open calls and the request budget of one
child's life; must never read, write, wait or look at a clock.

Source: stdio protocol, all of it; bridge 6, 9. Bytes go in, typed events come out, and requests come out as bytes that
were measured. After a violation the machine is deaf: it fails closed, and its owner stops the child.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

from msgspec import UNSET

from adapters.stdio.calls import Calls
from adapters.stdio.events import (
    EndOfOutput,
    LateEvent,
    LostRequest,
    Noise,
    ProtocolEvent,
    Response,
    Violation,
)
from adapters.stdio.frames import PROTOCOL_MARKER, Envelope, RunEvent, RunFinished, ToolCall, ToolCancel, ToolCard
from adapters.stdio.lines import LineSplitter, OverlongLine
from adapters.stdio.outgoing import Outgoing
from adapters.stdio.reading import FrameError, NoiseKind, read_event, read_line, read_result
from adapters.stdio.requests import (
    Initialize,
    Request,
    ResultRoom,
    ToolDescriptor,
    answer_call,
    encode_registry,
    result_room,
)
from adapters.stdio.results import Admitted, Initialized
from gateway.model.clean import ModelJson, ModelText
from gateway.model.limits import (
    CHILD_INPUT_FRAME_BYTES,
    CHILD_JSON_DEPTH,
    CHILD_OUTPUT_FRAME_BYTES,
    CHILD_PENDING_CALLS,
    CHILD_PROMPT_BYTES,
    CHILD_REQUEST_IDS,
    CHILD_RESULT_BYTES,
)

CLIENT_TOOLS: Final = "client.tools"
TOOL_CARDS: Final = "tool.cards"
CAPABILITIES: Final = (
    "session.create",
    "session.open",
    "history.page",
    "turn.start",
    "turn.cancel",
    "approval.answer",
    "shutdown",
)
"""What a session is built on; ``client.tools`` and ``tool.cards`` are asked for beside them."""

_PROMISED: Final[Mapping[str, int]] = {
    "frame_bytes": CHILD_INPUT_FRAME_BYTES,
    "json_depth": CHILD_JSON_DEPTH,
    "prompt_bytes": CHILD_PROMPT_BYTES,
    "requests_per_child": CHILD_REQUEST_IDS,
    "result_bytes": CHILD_RESULT_BYTES,
    "pending_calls": CHILD_PENDING_CALLS,
}


class ChildProtocol(Outgoing):
    """One child's life on the wire. ``requests`` is its budget of request ids (a test's own; else the protocol's)."""

    def __init__(self, *, requests: int = CHILD_REQUEST_IDS) -> None:
        super().__init__(requests)
        self._lines = LineSplitter(CHILD_OUTPUT_FRAME_BYTES - 1, PROTOCOL_MARKER)
        self._seq = 0
        self._instance_id: str | None = None
        self._calls = Calls()
        self._asked: tuple[tuple[str, ...], tuple[str, ...] | None] = ((), None)
        self._capabilities: frozenset[str] = frozenset()
        self._tools: frozenset[str] = frozenset()
        self._run: str | None = None
        self._last_run: str | None = None
        self._noise: dict[NoiseKind, int] = {}
        self._violation: Violation | None = None
        self._ended = False

    # What is known.

    @property
    def instance_id(self) -> str | None:
        """The child's own name for this life; None before its first frame."""
        return self._instance_id

    @property
    def open_calls(self) -> Mapping[str, ToolCall]:
        """Calls that wait for an answer, by ``call_id``. A view that moves on."""
        return self._calls.open

    @property
    def active_run(self) -> str | None:
        """The child's id of the run that it has admitted and not finished."""
        return self._run

    @property
    def capabilities(self) -> frozenset[str]:
        """What a successful ``initialize`` has named; empty before it."""
        return self._capabilities

    @property
    def violation(self) -> Violation | None:
        """Why the machine is deaf; None while it is not."""
        return self._violation

    @property
    def noise(self) -> Mapping[NoiseKind, int]:
        """How often each kind of noise came."""
        return MappingProxyType(self._noise)

    # Bytes in.

    def receive(self, data: bytes) -> list[ProtocolEvent]:
        """What the child's next bytes say. Any split of the same bytes gives the same events."""
        if self._violation or self._ended:
            return []
        events: list[ProtocolEvent] = []
        for line in self._lines.feed(data):
            try:
                if isinstance(line, OverlongLine):
                    self._overlong(line, events)
                else:
                    self._line(line, events)
            except FrameError as found:
                self._violation = Violation(found.reason, found.detail)
                events.append(self._violation)
                break
        return events

    def receive_eof(self) -> list[ProtocolEvent]:
        """stdout has ended. A last line without its LF is no message (stdio protocol, Framing)."""
        if self._ended:
            return []
        self._ended = True
        rest = self._lines.finish()
        torn = rest.size if isinstance(rest, OverlongLine) else len(rest or b"")
        return [EndOfOutput(torn, self.in_flight, self._calls.unsettled)]

    def _overlong(self, line: OverlongLine, events: list[ProtocolEvent]) -> None:
        if line.marked:
            raise FrameError("frame_too_large", f"{line.size + 1} bytes, at most {CHILD_OUTPUT_FRAME_BYTES}")
        self._count("overlong", events)

    def _line(self, line: bytes, events: list[ProtocolEvent]) -> None:
        reading = read_line(line)
        for kind in reading.noise:
            self._count(kind, events)
        envelope = reading.envelope
        if envelope is None:
            return
        if envelope.seq <= self._seq:
            raise FrameError("seq_not_rising", f"{envelope.seq} after {self._seq}")
        if self._instance_id is None:
            self._instance_id = envelope.instance_id
        elif envelope.instance_id != self._instance_id:
            raise FrameError("instance_changed")
        self._seq = envelope.seq
        if isinstance(envelope.event, str):
            events.append(self._event(envelope.event, read_event(envelope.event, bytes(envelope.data), reading.text)))
        else:
            events.append(self._response(envelope))

    def _count(self, kind: NoiseKind, events: list[ProtocolEvent]) -> None:
        count = self._noise[kind] = self._noise.get(kind, 0) + 1
        if count & (count - 1) == 0:
            events.append(Noise(kind, count))

    # Responses.

    def _response(self, envelope: Envelope) -> Response | LostRequest:
        code = None if envelope.error is UNSET else envelope.error.code
        if envelope.id is None:
            if code is None:
                raise FrameError("malformed_frame", "a result without an id")
            return self._lose(code)
        request = self._taken(str(envelope.id))
        if request is None:
            raise FrameError("unknown_response", "no request in flight has this id")
        if code is not None:
            if request.call_id is not None:
                self._calls.refused(request.call_id, code)
            return Response(request, None, code)
        result = read_result(request.method, bytes(envelope.result))
        match result:
            case Initialized():
                self._initialized(result)
            case Admitted():
                self._run = result.run_id
            case _:
                if request.call_id is not None:
                    self._calls.close(request.call_id)
        return Response(request, result, None)

    def _initialized(self, result: Initialized) -> None:
        required, tools = self._asked
        if missing := set(required).difference(result.capabilities):
            raise FrameError("capability_missing", ", ".join(sorted(missing)))
        named = None if result.client_tools is None else tuple(result.client_tools.tools)
        if named != tools:
            raise FrameError("registry_mismatch", "other tools than were registered")
        reported = {**result.limits, **(result.client_tools.limits if result.client_tools else {})}
        for name, promised in _PROMISED.items():
            if reported.get(name, promised) < promised:
                raise FrameError("limits_lowered", name)
        self._capabilities = frozenset(result.capabilities)
        self._tools = frozenset(tools or ())

    # Events.

    def _event(self, name: str, event: RunEvent) -> RunEvent | LateEvent:
        if event.run_id != self._run:
            if self._last_run is None or event.run_id != self._last_run:
                raise FrameError("unknown_run", name)
            if isinstance(event, RunFinished):
                raise FrameError("run_finished_twice")
            if isinstance(event, ToolCall):
                raise FrameError("unknown_run", "a call of a finished run")
            return LateEvent(name)
        match event:
            case ToolCall():
                self._call(event)
            case ToolCancel():
                if not self._calls.cancelled(event):
                    return LateEvent(name)
                self._withdraw(event.call_id)
            case ToolCard() if TOOL_CARDS not in self._capabilities:
                raise FrameError("not_negotiated", name)
            case RunFinished():
                for call in self._calls.close_all():
                    self._withdraw(call.call_id)
                self._last_run, self._run = self._run, None
            case _:
                pass
        return event

    def _call(self, call: ToolCall) -> None:
        if CLIENT_TOOLS not in self._capabilities:
            raise FrameError("not_negotiated", "client.tool.call")
        if call.name not in self._tools:
            raise FrameError("unknown_tool", "a call of a tool that was not registered")
        self._calls.asked(call)

    # Requests out. Each raises RequestsSpentError, and TooLargeError or UnfitError before an id is spent.

    def initialize(
        self,
        tools: Sequence[ToolDescriptor] | None,
        *,
        capabilities: Sequence[str] = CAPABILITIES,
        cards: bool = False,
    ) -> Request:
        """The registry for the child's life. With None ``client.tools`` is not asked for; an empty one is legal."""
        required = (*capabilities, *((CLIENT_TOOLS,) if tools is not None else ()), *((TOOL_CARDS,) if cards else ()))
        registry = UNSET if tools is None else encode_registry(tools)
        request = self._make("initialize", Initialize(list(required), registry))
        self._asked = (required, None if tools is None else tuple(tool.name for tool in tools))
        return request

    def tool_result(
        self,
        call_id: str,
        *,
        status: Literal["success", "error"],
        text: ModelText,
        structured: ModelJson | None = None,
    ) -> Request:
        """The answer to an open call, its identity copied back as it came. Raises CallClosedError.

        ``structured`` of None is left out (JSON's null is ``b"null"``). If the child refuses the answer
        (``invalid_params``) the call is open again.
        """
        call = self._calls.waiting(call_id)
        params = answer_call(self._named(), call, status, text, structured)
        request = self._make("client.tool.result", params, call_id=call_id)
        self._calls.answered(call_id)
        return request

    def result_room(self, call_id: str, structured: ModelJson | None = None) -> ResultRoom:
        """What an answer's text may have, beside ``structured``. Raises CallClosedError, TooLargeError, UnfitError."""
        return result_room(self._named(), self._calls.waiting(call_id), structured, len(f"r{self._requests}"))

    def _named(self) -> str:
        assert self._instance_id is not None, "a call came, so the child has named itself"
        return self._instance_id
