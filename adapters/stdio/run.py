"""One run: a turn of a child, told to the log. Owns the translation of a run's frames and its end.

Events are handled while the child's frame is read and never wait; what they write goes to the outbox in the child's
order (bridge 8).
"""

import asyncio
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec

from adapters.stdio.cards import Cards
from adapters.stdio.child import ChildError, ChildEvent, ChildRefusedError, Exited, Stalled
from adapters.stdio.context import SessionContext
from adapters.stdio.deltas import Deltas
from adapters.stdio.events import EndOfOutput, LateEvent, LostRequest, Noise, Response, Violation
from adapters.stdio.failures import RunFailure
from adapters.stdio.frames import (
    Activity,
    ApprovalRequested,
    Diagnostic,
    InputPersisted,
    MessageDelta,
    MessageReconcile,
    RunFinished,
    ToolCall,
    ToolCancel,
    ToolCard,
)
from adapters.stdio.generation import Generation
from adapters.stdio.messages import ClosedMessage, MessagesError, RunMessages
from adapters.stdio.requests import RequestError
from adapters.stdio.results import Admitted
from adapters.stdio.run_calls import RunCalls
from gateway.bus.sessions import QueuedRun
from gateway.model import events
from gateway.model.events import EventPayload
from gateway.model.names import RESERVED
from gateway.model.redaction import RedactionCollision, trusted
from gateway.model.text import clean_text
from gateway.observe.log import get_logger

log = get_logger("run")

ADMIT_S: Final = 20.0
CANCEL_S: Final = 9.0
"""From the cancel to the child's ``run.finished``; then the child is stopped, so that the cancel's answer is true."""

_encode: Final = msgspec.json.Encoder().encode


class Run:
    """One input's life on a child. ``ended`` is done when the child has finished it, or cannot any more."""

    def __init__(self, context: SessionContext, queued: QueuedRun) -> None:
        self._context = context
        self.run_id: Final = queued.run_id
        self._prompt = queued.prompt
        self.ended: asyncio.Future[RunFinished | RunFailure] = asyncio.get_running_loop().create_future()
        self.generation: Generation | None = None
        self.calls: RunCalls | None = None
        self._child_run: str | None = None
        self._messages = RunMessages()
        self._deltas = Deltas(
            context.services.redactor,
            lambda body: context.services.sessions.publish_delta(context.session_id, body),
        )
        self._approvals: dict[str, asyncio.TimerHandle] = {}
        self._input_logged = False
        self._cards = Cards()
        self._client_activities: set[str] = set()
        self._verdict: RunFailure | None = None  # why it is being ended, whatever its child says of that
        self.spoke = False
        self.cancelled = False

    # --- begin and end

    async def begin(self, generation: Generation) -> None:
        """Asks the child for the turn. Raises RunFailure."""
        self.generation = generation
        self.calls = RunCalls(self._context, generation, self.run_id)
        child = generation.child
        generation.counted.become("running")
        try:
            await child.request(child.protocol.turn_start(generation.session_id, self._prompt), ADMIT_S)
        except ChildRefusedError as refusal:
            raise RunFailure.of_child(refusal.code, "the agent refused the turn") from None
        except (ChildError, RequestError) as error:
            log.warning("a turn could not be started", session_id=self._context.session_id, error=error)
            raise RunFailure.of("child_gone", "the agent ended before it took the turn") from None

    def cancel(self) -> None:
        """Somebody wants it to end. Once is enough."""
        if self.cancelled:
            return
        self.cancelled = True
        if self.generation is None:  # no child has it yet, and none need be waited for
            self.fail(RunFailure.of("cancelled", "it was cancelled before an agent had it"))
            return
        asyncio.get_running_loop().call_later(CANCEL_S, self._give_up)
        self._ask_to_end()

    def exhaust(self) -> None:
        """The child has hardly any request ids left: its open calls are answered, then it is to end the run; another
        child takes the next one (bridge 9)."""
        if self._verdict is not None or self.ended.done():
            return
        self._verdict = RunFailure.of("request_limit", "the run needed more requests than an agent may serve")
        if self.calls is not None:
            self.calls.give_up()
        asyncio.get_running_loop().call_later(CANCEL_S, self._give_up)
        self._ask_to_end()

    def _ask_to_end(self) -> None:
        if self.generation is None or self._child_run is None:
            return  # once it is admitted
        child = self.generation.child
        with suppress(ChildError, RequestError):
            child.send(child.protocol.turn_cancel(self.generation.session_id, self._child_run))

    def _give_up(self) -> None:
        if not self.ended.done():
            log.warning("a run did not end on its cancel", session_id=self._context.session_id, run_id=self.run_id)
            self.fail(RunFailure.of("cancel_timeout", "the agent did not end the run in time"))

    def fail(self, failure: RunFailure) -> None:
        """It cannot go on."""
        if not self.ended.done():
            self.ended.set_result(failure)

    def finish(self) -> None:
        """Writes the end: what is new or differs of the messages, the approvals that nobody answered, the outcome."""
        outcome = self.ended.result() if self.ended.done() else RunFailure.of("stopped", "the session was stopped")
        for timer in self._approvals.values():
            timer.cancel()
        if self.calls is not None:
            self.calls.close()
        payloads: list[EventPayload] = []
        try:
            payloads = self._last_words(outcome)
        except Exception as error:  # a defect of ours; the run must have its end all the same
            log.error("the end of a run is not whole", session_id=self._context.session_id, error=error)
        fields = [self._denial(approval_id) for approval_id in self._approvals]
        self._context.write([*payloads, self._end(outcome)], ends_run=self.run_id, fields=fields)
        if self.generation is not None:
            self.generation.counted.become("ready")

    def _last_words(self, outcome: RunFinished | RunFailure) -> list[EventPayload]:
        payloads = [*self._input(), *self._logged(self._messages.finish())]
        if isinstance(outcome, RunFinished) and outcome.persistence != "durable":
            payloads += self._customs("persistence", {"run_id": self.run_id, "persistence": outcome.persistence})
        self._deltas.flush()
        return payloads

    def _end(self, outcome: RunFinished | RunFailure) -> EventPayload:
        if self.cancelled and not (isinstance(outcome, RunFinished) and outcome.outcome == "completed"):
            return events.run_cancelled(self.run_id)
        if self._verdict is not None:
            return events.run_failed(self.run_id, self._verdict.text)
        if isinstance(outcome, RunFailure):
            return events.run_failed(self.run_id, outcome.text)
        match outcome.outcome:
            case "completed":
                return events.run_completed(self.run_id)
            case "cancelled":
                return events.run_cancelled(self.run_id)
            case "failed":
                code = outcome.error_code or "execution_failed"
                return events.run_failed(self.run_id, RunFailure.of_child(code, "the agent's run failed").text)

    # --- the child's frames

    def handle(self, event: ChildEvent) -> None:
        """One event of the child that runs it."""
        try:
            self._handle(event)
        except MessagesError as error:
            log.warning("the child's messages break a rule", session_id=self._context.session_id, error=error)
            self.fail(RunFailure.of("protocol_violation", "the agent's messages were not consistent"))
        except Exception as error:  # a defect of ours: a run with a hole in it must not look whole
            log.error("an event was not handled", session_id=self._context.session_id, error=error)
            self.fail(RunFailure.of("internal", "the gateway could not tell the run; it has been logged"))

    def _handle(self, event: ChildEvent) -> None:  # noqa: PLR0912 - one row for each kind of event
        match event:
            case ToolCall() if self.calls is not None:
                self.calls.call(event, self._close_messages())
            case ToolCancel() if self.calls is not None:
                self.calls.cancel(event)
            case MessageDelta():
                self.spoke = True
                self._deltas.add(event.message_id, event.text, follows=self._messages.delta(event))
            case MessageReconcile():
                self._messages.reconcile(event)
                self.spoke = True
            case Activity():
                self._activity(event)
            case InputPersisted():
                fields = [("child_session", event.session_id)] if event.durable else []
                self._context.write(self._input(), fields=fields)
                if event.durable:
                    self._context.persisted(event.session_id)
            case ApprovalRequested():
                self._approval(event)
            case Diagnostic():
                self._custom("diagnostic", {"code": event.code, "summary": event.summary})
            case RunFinished():
                if not self.ended.done():
                    self.ended.set_result(event)
            case Response():
                self._response(event)
            case LostRequest():
                self._lost_request(event)
            case Noise():
                log.warning("noise", session_id=self._context.session_id, kind=event.kind, count=event.count)
            case Violation():
                log.error("violation", session_id=self._context.session_id, reason=event.reason)
                self.fail(RunFailure.of_child(event.reason, "the agent broke its protocol"))
            case Stalled():
                self.fail(RunFailure.of("child_stalled", "the agent does not read what it is sent"))
            case EndOfOutput() | Exited():
                pass  # the session fails the run once the child's last words are there
            case ToolCard():
                if event.activity_id not in self._client_activities and self._cards.wanted(event):
                    self._custom("card", {"activity_id": event.activity_id, "card": event.card})
            case LateEvent() | ToolCall() | ToolCancel():
                pass

    def _response(self, response: Response) -> None:
        if isinstance(response.result, Admitted):
            self._child_run = response.result.run_id
            if self.cancelled:
                self._ask_to_end()
        elif response.request.call_id is not None and self.calls is not None:
            self.calls.response(response)

    def _lost_request(self, lost: LostRequest) -> None:
        """An error without an id: where only one request can be meant the answer is treated as refused."""
        log.error("lost request", session_id=self._context.session_id, code=lost.code, suspects=len(lost.suspects))
        if len(lost.suspects) == 1 and lost.suspects[0].call_id is not None and self.calls is not None:
            self.calls.response(Response(lost.suspects[0], None, "invalid_params"))

    def _close_messages(self) -> list[EventPayload]:
        return self._logged(self._messages.close())

    def _logged(self, closed: list[ClosedMessage]) -> list[EventPayload]:
        payloads: list[EventPayload] = []
        for message in closed:
            self._deltas.close(message.message_id)
            text = self._context.services.redactor.log_text(clean_text(message.text))
            if text.strip():
                payloads.append(events.message_assistant(text, message.message_id))
        return payloads

    def _input(self) -> list[EventPayload]:
        if self._input_logged:
            return []
        self._input_logged = True
        return [events.message_user(self._context.services.redactor.log_text(self._prompt))]

    def _activity(self, activity: Activity) -> None:
        """Activities and cards of client tools write nothing: their calls do. All others close the messages before
        them."""
        native = self.generation.native if self.generation is not None else RESERVED
        if activity.kind == "tool" and activity.name in native:
            self._client_activities.add(activity.activity_id)
            return
        payloads = self._close_messages()
        body = {
            "activity_id": activity.activity_id,
            "kind": activity.kind,
            "state": activity.state,
            "name": activity.name,
            "summary": activity.summary,
        }
        self._context.write([*payloads, *self._customs("activity", body)])

    def _custom(self, kind: str, body: Mapping[str, object]) -> None:
        self._context.write(self._customs(kind, body))

    def _customs(self, kind: str, body: Mapping[str, object]) -> list[EventPayload]:
        raw = msgspec.json.format(_encode(body), indent=-1)
        try:
            return [events.custom(kind, self._context.services.redactor.log_json(raw))]
        except RedactionCollision:
            return []

    # --- approvals (bridge 8)

    def _approval(self, asked: ApprovalRequested) -> None:
        redactor = self._context.services.redactor
        arguments = redactor.log_json(_encode({"summary": clean_text(asked.summary)}))
        payloads = self._close_messages()
        payloads.append(events.message_assistant_call(asked.approval_id, "approval", arguments))
        args_hash = hashlib.sha256(arguments).hexdigest()
        payloads.append(events.approval_requested(asked.approval_id, arguments, args_hash))
        self._context.write(payloads, fields=[(f"@{asked.approval_id}", "open")])
        expire = asyncio.get_running_loop().call_later(asked.expires_in_ms / 1000, self._expire, asked.approval_id)
        self._approvals[asked.approval_id] = expire

    def approval_answered(self, approval_id: str, decision: str) -> None:
        """Somebody decided (or its time is up): the child hears it."""
        timer = self._approvals.pop(approval_id, None)
        if timer is None or self.generation is None or self._child_run is None:
            return
        timer.cancel()
        child = self.generation.child
        with suppress(ChildError, RequestError):
            allow = decision == "allow"
            child.send(
                child.protocol.approval_answer(self.generation.session_id, self._child_run, approval_id, allow=allow)
            )

    def _expire(self, approval_id: str) -> None:
        if self._approvals.pop(approval_id, None) is not None:
            self._context.write([], fields=[self._denial(approval_id)])

    def _denial(self, approval_id: str) -> tuple[str, str]:
        """The field of a write that denies an approval, if nobody has answered it by then."""
        return f"?{approval_id}", b"\n".join(self._denied(approval_id)).decode()

    def _denied(self, approval_id: str) -> tuple[EventPayload, EventPayload]:
        return (
            events.approval_resolved(approval_id, "deny", None, None),
            events.tool_result(approval_id, trusted("denied"), is_error=True),
        )
