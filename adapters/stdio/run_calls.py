"""The calls of one run, between its child and the bus. Owns their translation both ways and what is still open here.

A call is logged and dispatched by one script, put while the child's frame is handled: no task and no wait stands
between the two. Its record on the bus is the truth; the table here only knows which child waits for which answer.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from adapters.stdio.child import ChildError
from adapters.stdio.context import SessionContext
from adapters.stdio.events import Response
from adapters.stdio.frames import ToolCall, ToolCancel
from adapters.stdio.generation import Generation
from adapters.stdio.own_tools import OwnTools
from adapters.stdio.requests import CallClosedError, RequestError, RequestsSpentError
from gateway.bus.calls import Dispatch, Dispatched, Reply
from gateway.model import events
from gateway.model.arguments import check_arguments, without_intent
from gateway.model.call import Event, Outcome, Reason
from gateway.model.catalog import Catalog, Item
from gateway.model.clean import LogJson, ModelJson, ModelText
from gateway.model.deadline import call_budget_ms
from gateway.model.error_texts import FAILURES, CallError, error_text
from gateway.model.events import EventPayload
from gateway.model.limits import CHILD_INPUT_FRAME_BYTES
from gateway.model.listing import change_line
from gateway.model.names import RESERVED, TOOLS, USE
from gateway.model.redaction import RedactionCollision, ours_for_model, trusted_json
from gateway.model.results import fit_result
from gateway.observe import metrics
from gateway.observe.log import get_logger
from gateway.services.answers import Answer, read_answer

log = get_logger("calls")

REQUESTS_KEPT: Final = 32
"""Request ids that must be left for answers and a cancel; with fewer the run ends (bridge 9)."""
_STALE_TRIES: Final = 5
_LOST: Final = ours_for_model(FAILURES[Reason.RESULT_TIMEOUT, Outcome.UNKNOWN])
_REFUSED: Final = ours_for_model(error_text(CallError.RESULT_REFUSED))
_RUN_ENDS: Final = ours_for_model(error_text(CallError.RUN_ENDS))
_COLLISION: Final = ours_for_model(error_text(CallError.ARGUMENTS_COLLIDE))

_ANSWERED: Final = metrics.CALLS.labels(Outcome.DONE.value, "answered")
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
_text: Final = msgspec.json.Decoder(str).decode
_encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Open:
    """A call that the child waits for. ``came`` and ``until``, our deadline, are instants of the loop's clock;
    ``before`` waits to be logged. ``arguments`` are the child's, compact; ``shown`` their form for the log, None where
    hiding made two names one."""

    call: ToolCall
    arguments: bytes
    shown: LogJson | None
    came: float
    until: float
    before: list[EventPayload]
    item: Item | None = None
    dispatched: bool = False
    tries: int = 0


class RunCalls:
    """The calls of one run on one child."""

    def __init__(self, context: SessionContext, generation: Generation, run_id: str) -> None:
        self._context = context
        self._generation = generation
        self._run_id = run_id
        self._open: dict[str, _Open] = {}
        self._held: list[tuple[str, Answer]] = []  # answers that wait for the list that came before them
        self._again: list[str] = []  # calls that wait for the list that the bus knows already
        self._told: Catalog = context.catalog  # the list as the model was last told of it
        self._own = OwnTools(context)

    def __len__(self) -> int:
        return len(self._open)

    # --- from the child

    def call(self, call: ToolCall, closed: Sequence[EventPayload]) -> None:
        """A ``client.tool.call``; ``closed`` are the messages that it closes."""
        redactor = self._context.services.redactor
        arguments = msgspec.json.format(bytes(call.arguments), indent=-1)
        try:
            shown = redactor.log_json(arguments)
        except RedactionCollision:
            shown = None
        logged = trusted_json("{}") if shown is None else shown
        before = [
            *closed,
            events.message_assistant_call(call.call_id, call.name, logged),
            events.tool_call(call.call_id, call.name, logged),
        ]
        budget_ms = call_budget_ms(call.timeout_ms, self._context.services.limits.deadline_margin_ms)
        now = asyncio.get_running_loop().time()
        opened = _Open(call, arguments, shown, now, now + budget_ms / 1000, before)
        self._open[call.call_id] = opened
        metrics.CALLS_OPEN.inc()
        if call.name in RESERVED and call.name != USE:
            if (given := self._arguments(opened)) is not None:
                self._own_tool(opened, given)
        else:
            self._client_tool(opened)

    def _arguments(self, opened: _Open) -> dict[str, Any] | None:
        """The call's arguments; None where they hold a number that no double is (1e400), which is answered."""
        try:
            return _decode(opened.arguments)
        except msgspec.MsgspecError:
            text = error_text(CallError.INVALID_ARGUMENTS, "a number in the arguments is out of range")
            self._answer_here(opened, text, is_error=True)
            return None

    def _own_tool(self, opened: _Open, arguments: dict[str, Any]) -> None:
        call_id = opened.call.call_id
        answer = self._own.answer(opened.call.name, arguments)
        if isinstance(answer, str):
            self._answer_here(opened, answer)
        else:  # a part of a result: it stands in the call's record
            self._context.services.tasks.spawn("calls.part", self._answer_later(call_id, answer))

    async def _answer_later(self, call_id: str, coming: Any) -> None:
        text: str = await coming
        opened = self._open.get(call_id)
        if opened is not None:
            self._answer_here(opened, text)

    def _client_tool(self, opened: _Open) -> None:
        call, encoded = opened.call, opened.arguments
        arguments = self._arguments(opened)
        if arguments is None:
            return
        name = call.name
        if name == USE:
            name, inner, problem = self._own.use(arguments, delegated=call.task_id is not None)
            if problem is not None or inner is None:
                self._answer_here(opened, problem or "", is_error=True)
                return
            arguments = inner
        item = self._context.catalog.by_name.get(name)
        if item is None:
            self._answer_here(opened, error_text(CallError.TOOL_GONE, name[:64]), is_error=True)
            return
        arguments = without_intent(item.spec.parameters, arguments)
        mismatch = check_arguments(item.spec.parameters, arguments)
        if mismatch is not None:
            self._answer_here(opened, error_text(CallError.INVALID_ARGUMENTS, str(mismatch)), is_error=True)
            return
        self._dispatch(opened, item, _encode(arguments) if name != call.name or b"intent" in encoded else encoded)

    def _dispatch(self, opened: _Open, item: Item, arguments: bytes) -> None:
        services, call = self._context.services, opened.call
        try:
            shown = opened.shown if arguments is opened.arguments else services.redactor.log_json(arguments)
            executing = None
            if (
                shown is not None and shown is not arguments
            ):  # something was hidden: the client may be given more than the log
                by_name = self._context.agent.redact_arguments_by_name
                executing = services.redactor.dispatch_json(arguments, by_name=by_name)
        except RedactionCollision:
            shown = executing = None
        if shown is None:
            self._answer_here(opened, _COLLISION, is_error=True)
            return
        loop = asyncio.get_running_loop()
        opened.until = min(opened.until, loop.time() + call_budget_ms(item.timeout_ms, 0) / 1000)
        opened.item = item
        dispatch = Dispatch(
            call.call_id,
            item.client_id,
            self._context.revision(item.client_id),
            item.tool,
            item.model_name,
            self._run_id,
            item.spec.idempotent,
            shown,
            executing if executing != shown else None,
            opened.before,
        )
        services.calls.dispatch(
            self._context.outbox,
            dispatch,
            until=opened.until,
            delivered=self._context.take_marks(),
            then=partial(self._dispatched, call.call_id),
        )
        services.timers.arm(call.call_id, opened.until, self._deadline_passed)
        self._context.used(item.model_name)

    def _dispatched(self, call_id: str, reply: Reply) -> None:
        opened = self._open.get(call_id)
        if isinstance(reply, Dispatched):
            if opened is None:  # answered already (the push may be quicker than this reply), or its end is on its way
                return
            opened.dispatched, opened.before = True, []
            self._wait_until(call_id, reply.due_ms)
            return
        if opened is None:
            return
        self._context.services.timers.disarm(call_id)
        opened.tries += 1
        if reply.why == "stale" and opened.tries < _STALE_TRIES:
            self._again.append(call_id)
            self._context.refresh()
            return
        self._context.refresh()
        text = FAILURES[Reason.CLIENT_GONE, Outcome.NOT_STARTED]
        self._answer_here(opened, text, is_error=True)

    def cancel(self, cancel: ToolCancel) -> None:
        """The child waits no longer: the bus is told, and nothing more is written for the call (bridge 7)."""
        opened = self._drop(cancel.call_id)
        if opened is None or opened.item is None:
            return
        event = Event.TIMEOUT if cancel.reason == "timeout" else Event.END
        self._context.services.calls.end(self._context.outbox, cancel.call_id, event)

    def response(self, response: Response) -> None:
        """The child's word on an answer (stdio protocol, "Execute and reply")."""
        call_id = response.request.call_id
        assert call_id is not None
        if response.error is None:
            self._context.mark(call_id, "delivered")
            return
        self._context.mark(call_id, "refused")
        log.warning("the child refused an answer", session_id=self._context.session_id, code=response.error)
        if response.error == "invalid_params":
            payload = self._context.services.redactor.log_json(_encode({"call_id": call_id, "code": response.error}))
            self._context.write([events.custom("delivery_failed", payload)])
            self._send(call_id, _REFUSED, None, is_error=True)

    # --- from the bus

    def answered(self, call_id: str, recorded: bytes) -> None:
        """The client's answer. When its list changed before it, the model is told of that with the answer."""
        if call_id in self._open:
            answer = read_answer(recorded)
            if self._context.stale:
                self._held.append((call_id, answer))
            elif self._deliver(call_id, answer):
                _ANSWERED.inc()

    def failed(self, call_id: str, reason: str, outcome: str, said: bytes = b"") -> None:
        """The call failed: the model hears why, unless its run is over."""
        if call_id in self._open and reason != Reason.RUN_GONE:
            timed_out = reason in (Reason.ACK_TIMEOUT, Reason.RESULT_TIMEOUT)
            if said and timed_out:
                text = self._context.services.redactor.model_text(_text(said))
            else:
                text = ours_for_model(FAILURES[Reason(reason), Outcome(outcome)])
            self._deliver(call_id, Answer(text, True, None))
            metrics.CALLS.labels(outcome, reason).inc()

    def due_changed(self, call_id: str, due_ms: int) -> None:
        """The call waits for an earlier instant."""
        if call_id in self._open:
            self._wait_until(call_id, due_ms)

    def catalog_changed(self) -> None:
        """The list was read again: what waited for it goes on."""
        again, self._again = self._again, []
        for call_id in again:
            opened = self._open.get(call_id)
            if opened is not None:
                self._client_tool(opened)
        held, self._held = self._held, []
        for call_id, answer in held:
            if self._deliver(call_id, answer):
                _ANSWERED.inc()

    # --- clocks

    def _wait_until(self, call_id: str, due_ms: int) -> None:
        store = self._context.services.store
        tag = store.keys.session(self._context.session_id).tag
        left = max(0, due_ms - store.now_ms(tag)) / 1000
        self._context.services.timers.arm(call_id, asyncio.get_running_loop().time() + left, self._due)

    def _due(self, call_id: str) -> None:
        opened = self._open.get(call_id)
        if opened is not None:
            services = self._context.services
            services.calls.expire(self._context.outbox, call_id, partial(self._expired, call_id))
            # The bus has half of the margin to say how it ended, so that the child hears of us before its own clock.
            patience_s = services.limits.deadline_margin_ms / 2000
            services.timers.arm(call_id, opened.until + patience_s, self._deadline_passed)

    def _expired(self, call_id: str, due_ms: int) -> None:
        if call_id not in self._open or due_ms == 0:
            return  # settled: how is on its way
        if due_ms > 0:
            self._wait_until(call_id, due_ms)
        else:  # the bus has lost it: nobody can answer it any more
            self._deliver(call_id, Answer(_LOST, True, None))

    def _deadline_passed(self, call_id: str) -> None:
        """The bus has been silent for so long that our own clock must do: the child is answered, the record follows."""
        opened = self._open.get(call_id)
        if opened is None:
            return
        self._context.services.calls.end(self._context.outbox, call_id, Event.TIMEOUT, "bus_unavailable")
        self._deliver(call_id, Answer(_LOST, True, None))

    # --- to the child

    def _answer_here(self, opened: _Open, text: str, *, is_error: bool = False) -> None:
        """Answers without a client: the log shows the call and its result."""
        call_id, redactor = opened.call.call_id, self._context.services.redactor
        result = events.tool_result(call_id, redactor.log_text(text), is_error=is_error)
        self._context.write([*opened.before, result])
        opened.before = []
        answer = Answer(redactor.model_text(text), is_error, None)
        if opened.call.name == TOOLS:
            self._own.keep(call_id, answer.text)
        self._deliver(call_id, answer, tell=False)

    def _deliver(self, call_id: str, answer: Answer, *, tell: bool = True) -> bool:
        """Gives the child its answer; false where it waits for none."""
        opened = self._drop(call_id)
        if opened is None:
            return False
        metrics.CALL_SECONDS.observe(asyncio.get_running_loop().time() - opened.came)
        line: str | None = None
        if tell and self._told is not self._context.catalog:
            line = change_line(self._told, self._context.catalog, self._generation.native)
            self._told = self._context.catalog
        shown = self._context.services.redactor.model_text(line) if line is not None else None
        self._send(call_id, answer.text, answer.structured, is_error=answer.is_error, line=shown)
        return True

    def _send(
        self,
        call_id: str,
        text: ModelText,
        structured: ModelJson | None,
        *,
        is_error: bool,
        line: ModelText | None = None,
    ) -> None:
        child = self._generation.child
        try:
            overhead = CHILD_INPUT_FRAME_BYTES - child.protocol.result_room(call_id).encoded
            fitted = fit_result(text, structured, call_id=call_id, overhead=overhead, line=line)
            status = "error" if is_error else "success"
            child.send(
                child.protocol.tool_result(call_id, status=status, text=fitted.text, structured=fitted.structured)
            )
        except (CallClosedError, RequestsSpentError, ChildError):
            return  # nobody waits for it any more; the run's end says why
        except RequestError as error:
            log.error("an answer did not fit", session_id=self._context.session_id, error=error)
            if text is not _REFUSED:
                self._send(call_id, _REFUSED, None, is_error=True)
        if child.protocol.requests_left <= REQUESTS_KEPT:
            self._context.spent(self._generation)

    def _drop(self, call_id: str) -> _Open | None:
        opened = self._open.pop(call_id, None)
        if opened is not None:
            metrics.CALLS_OPEN.dec()
            self._context.services.timers.disarm(call_id)
        return opened

    def give_up(self) -> None:
        """The run is about to be ended: the child hears so for every open call, and their clients by the bus."""
        for call_id, opened in list(self._open.items()):
            if opened.item is not None:
                self._context.services.calls.end(self._context.outbox, call_id, Event.END)
            self._deliver(call_id, Answer(_RUN_ENDS, True, None), tell=False)

    def open_ids(self) -> tuple[str, ...]:
        """Calls that were dispatched and have no answer yet."""
        return tuple(call_id for call_id, opened in self._open.items() if opened.dispatched)

    def close(self) -> None:
        """The run is over; what is open on the bus ends with the run's last write."""
        for call_id in list(self._open):
            self._drop(call_id)
