"""One run: a thread that plays a prompt and tells what happens, in the order that the protocol promises.

It owns the run's events and how it ends. It never reads stdin, and it writes through ``output`` alone, so it may
block: a pause, an open call and a full queue hold up this run and nothing else.
"""

import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import cards
from calls import Answer, Broker, Call, CallFailed
from output import Output, Unavailable
from redact import redact, summary
from registry import Tool
from sessions import Session, parts

if TYPE_CHECKING:
    from loop import Loop

LIVE_BYTES: Final = 4_000  # of one delta or reconciled part
RUN_BYTES: Final = 8 * 1024 * 1024
RUN_MESSAGES: Final = 512
APPROVAL_MS: Final = 60_000

T = TypeVar("T")


class Cancelled(Exception):
    """The run was cancelled, or the child ends."""


class Failed(Exception):
    """The run fails with this error code."""

    def __init__(self, code: str, persistence: str = "durable") -> None:
        super().__init__(code)
        self.code = code
        self.persistence = persistence


@dataclass(frozen=True)
class Delegate:
    """Who asks for a call: the run's own agent, or one of its subagents."""

    task_id: str | None = None
    subagent_id: str | None = None
    depth: int = 0


@dataclass(eq=False)
class Message:
    """One assistant message of the run."""

    text: str
    id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(eq=False)
class Started:
    """A call that was asked for; ``call`` is a text when it never went out."""

    name: str
    activity_id: str
    call: Call | str
    task_id: str | None = None


class Run:
    """One run of one session. ``host`` is the loop around it: only the faults of a script reach for it."""

    def __init__(
        self, *, output: Output, broker: Broker, session: Session, prompt: str, host: "Loop", with_cards: bool = False
    ) -> None:
        self.id = str(uuid.uuid4())
        self.output = output
        self.broker = broker
        self.session = session
        self.prompt = prompt
        self.host = host
        self.with_cards = with_cards
        self.messages: list[Message] = []
        self.abandoned: list[Call] = []
        self.approvals: dict[str, bool | None] = {}
        self.cancelled = False
        self.tasks = 0
        self._unreconciled: Message | None = None

    @property
    def tools(self) -> dict[str, Tool]:
        """The client's tools."""
        return self.broker.tools

    def start(self, play: Callable[["Run"], None], ended: Callable[[], None]) -> None:
        """Play in a thread. ``ended`` is called just before ``run.finished`` is queued."""
        threading.Thread(target=self._live, args=(play, ended), daemon=True).start()

    def cancel(self, reason: str) -> None:
        """End it soon, and its calls at once (from the loop's thread)."""
        with self.output.room:
            self.cancelled = True
            self.broker.end_run(self.id, reason)
            self.output.room.notify_all()

    # The life of a run.

    def _live(self, play: Callable[["Run"], None], ended: Callable[[], None]) -> None:
        outcome, persistence, code = "completed", "durable", None
        try:
            self._persist_input()
            play(self)
            self.check()
        except Cancelled:
            outcome, persistence = "cancelled", "durable" if self.session.durable else "not_started"
        except Failed as failure:
            outcome, persistence, code = "failed", failure.persistence, failure.code
        except Unavailable:
            outcome, code = "failed", "output_unavailable"
        except OSError:
            outcome, persistence, code = "failed", "degraded", "persistence_failed"
        except Exception:  # a defect of this program: say so, and end the run as the protocol has it
            traceback.print_exc(file=sys.stderr)
            outcome, code = "failed", "execution_failed"
        try:
            self._finish(outcome, persistence, code, ended)
        except Unavailable:
            ended()  # the loop is about to end the child for the same reason

    def _persist_input(self) -> None:
        try:
            self.session.append("user", text=redact(self.prompt), turn=self.id)
        except OSError:
            raise Failed("persistence_failed", "not_started") from None
        revision = self.session.renew()
        self.emit("input.persisted", {"message_id": str(uuid.uuid4()), "durable": True, "revision": revision})

    def _finish(self, outcome: str, persistence: str, code: str | None, ended: Callable[[], None]) -> None:
        self.broker.end_run(self.id, "run_finished")
        for call in self.abandoned:
            self._outcome(call)
        if outcome != "failed":
            for message in self.messages:
                self._reconcile(message, partial=outcome == "cancelled")
        revision = None
        if persistence != "not_started":
            try:
                self.session.append("end", turn=self.id, outcome=outcome)
            except OSError:
                persistence = "degraded"
            revision = self.session.renew()
        with self.output.room:
            self.output.wait_for_room()
            ended()
            data = {"outcome": outcome, "persistence": persistence, "revision": revision, "error_code": code}
            self.emit("run.finished", data)

    # What a run does.

    def emit(self, name: str, data: dict[str, Any], *, droppable: bool = False) -> None:
        """One event of this run."""
        self.output.event(name, {"session_id": self.session.id, "run_id": self.id, **data}, droppable=droppable)

    def check(self) -> None:
        """Cancelled if it was."""
        if self.cancelled:
            raise Cancelled

    def pause(self, seconds: float) -> None:
        """Do nothing for so long; Cancelled ends it."""
        if seconds > 0:
            with self.output.room:
                self.output.room.wait_for(lambda: self.cancelled, seconds)
        self.check()

    def say(self, text: str, chunk: int = 0, chunk_s: float = 0.0) -> None:
        """A message: deltas (of ``chunk`` characters, ``chunk_s`` apart), then the whole of it, reconciled."""
        text = redact(text)
        if not text:
            return
        size = sum(len(message.text.encode()) for message in self.messages) + len(text.encode())
        if size > RUN_BYTES or len(self.messages) >= RUN_MESSAGES:
            raise Failed("content_limit", "degraded")
        message = Message(text)
        pieces = [text[i : i + chunk] for i in range(0, len(text), chunk)] if chunk else parts(text, LIVE_BYTES)
        said = 0
        if self.messages:
            pieces.insert(0, "\n\n")  # what a live display shows between messages, and no part of the text
            said = -2
        self.messages.append(message)
        try:
            for number, piece in enumerate(pieces):
                self.pause(chunk_s)
                self.emit("message.delta", {"message_id": message.id, "part": number, "text": piece}, droppable=True)
                said += len(piece)
        except Cancelled:
            message.text = text[: max(said, 0)]
            if not message.text:
                self.messages.remove(message)
            raise
        finally:
            if message.text:
                self.session.append("assistant", text=message.text, turn=self.id)
        self._reconcile(message, partial=True)
        self._unreconciled = message

    def _reconcile(self, message: Message, *, partial: bool) -> None:
        pieces = parts(message.text, LIVE_BYTES)
        for number, piece in enumerate(pieces):
            data = {"message_id": message.id, "part": number, "text": piece, "partial": partial}
            self.emit("message.reconcile", {**data, "last_part": number == len(pieces) - 1})

    def _activity(self, activity_id: str, kind: str, state: str, name: str, task_id: str | None = None) -> None:
        data = {"activity_id": activity_id, "kind": kind, "state": state, "name": summary(name), "summary": state}
        self.emit("activity", data)
        if kind == "tool":
            self.session.append("activity", id=activity_id, name=summary(name), state=state)
            if self.with_cards:
                self._cards(activity_id, state, summary(name), task_id)

    def _cards(self, activity_id: str, state: str, name: str, task_id: str | None) -> None:
        if state == "started":
            known = [cards.snapshot(activity_id, n, name if n else None, task_id=task_id) for n in range(2)]
        else:
            outcome = "success" if state == "completed" else "failure"
            known = [cards.snapshot(activity_id, 2, name, task_id=task_id, outcome=outcome)]
        for card in known:
            self.emit("tool.card", {"activity_id": activity_id, "part": 0, "last_part": True, "card": card})

    @contextmanager
    def activity(self, kind: str, name: str, *, announce: int = 1) -> Generator[None]:
        """Started before, completed or failed after; a subagent's start is announced twice."""
        activity_id = str(uuid.uuid4())
        for _ in range(announce):
            self._activity(activity_id, kind, "started", name)
        try:
            yield
        except BaseException:
            self._activity(activity_id, kind, "failed", name)
            raise
        self._activity(activity_id, kind, "completed", name)

    def begin(
        self,
        name: str,
        arguments: Any,
        who: Delegate,
        call_id: str | None = None,
        hook: Callable[[Any], Any] | None = None,
    ) -> Started:
        """Ask for a call, and do not wait for it. ``hook`` makes other arguments of these, or raises CallFailed."""
        self.check()
        activity_id = str(uuid.uuid4())
        self._activity(activity_id, "tool", "started", name, who.task_id)
        if self._unreconciled is not None:
            self._reconcile(self._unreconciled, partial=True)
            self._unreconciled = None
        scope = {
            "session_id": self.session.id,
            "run_id": self.id,
            "task_id": who.task_id,
            "subagent_id": who.subagent_id,
        }
        try:
            if hook is not None:
                self.broker.check(arguments)
                arguments = hook(arguments)
            return Started(name, activity_id, self.broker.open(scope, name, arguments, call_id), who.task_id)
        except CallFailed as failure:
            return Started(name, activity_id, str(failure), who.task_id)

    def _outcome(self, call: Call | str) -> Answer:
        if isinstance(call, str):
            return Answer(call, failed=True)
        try:
            return self.broker.wait(call)
        except CallFailed as failure:
            return Answer(str(failure), failed=True)

    def end(self, started: Started) -> Answer:
        """Wait for a call that was begun; a failed one is an answer too."""
        answer = self._outcome(started.call)
        state = "failed" if answer.failed else "completed"
        self._activity(started.activity_id, "tool", state, started.name, started.task_id)
        self.check()
        return answer

    def call(self, name: str, arguments: Any, who: Delegate | None = None) -> Answer:
        """Call one of the client's tools and wait for its answer."""
        return self.end(self.begin(name, arguments, who or Delegate()))

    def side_by_side(self, tasks: Sequence[Callable[[], T]], at_once: int) -> list[T]:
        """Do several things at once, at most ``at_once``; their values in order, or the first one's exception."""
        done: dict[int, T | BaseException] = {}
        turn = threading.Semaphore(at_once)

        def do(number: int) -> None:
            with turn:
                try:
                    done[number] = tasks[number]()
                except BaseException as error:  # raised again below
                    done[number] = error

        threads = [threading.Thread(target=do, args=(number,), daemon=True) for number in range(len(tasks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        values: list[T] = []
        for number in range(len(tasks)):
            value = done[number]
            if isinstance(value, BaseException):
                raise value
            values.append(value)
        return values

    def approve(self, text: str, expires_in_ms: int = APPROVAL_MS) -> None:
        """Ask for an approval. A denial, or none in time, fails the run."""
        approval_id = str(uuid.uuid4())
        room = self.output.room
        with room:
            self.approvals[approval_id] = None
            data = {"approval_id": approval_id, "summary": summary(text), "expires_in_ms": expires_in_ms}
            end = time.monotonic() + expires_in_ms / 1000
            self.emit("approval.requested", data)

            def answered() -> bool:
                return self.cancelled or self.approvals[approval_id] is not None

            room.wait_for(answered, max(0.0, end - time.monotonic()))
            allowed = self.approvals.pop(approval_id)
        self.check()
        if not allowed:
            raise Failed("execution_failed")

    def diagnose(self, code: str, text: str) -> None:
        """A diagnostic event."""
        self.emit("diagnostic", {"code": code, "summary": summary(text)})
