"""A session on the node that owns it: its queue of inputs and what is asked of it beside them.

Owns the order of runs (bridge 3, 9); its children are ``lineage.py``'s, what they are offered ``offering.py``'s.
Messages of the bus come in by ``Runner``'s calls, which never wait; one task at a time works the queue off.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from adapters.stdio import enquiries
from adapters.stdio.child import Child, ChildEvent, Exited
from adapters.stdio.failures import RunFailure
from adapters.stdio.frames import RunFinished
from adapters.stdio.generation import Generation
from adapters.stdio.lineage import Lineage
from adapters.stdio.offering import Offering
from adapters.stdio.run import Run
from adapters.stdio.services import StdioServices
from adapters.stdio.turns import Turns
from gateway.bus.errors import BusUnavailable
from gateway.bus.outbox import Outbox
from gateway.bus.sessions import QueuedRun, Resumption
from gateway.config.settings import Agent
from gateway.model import events
from gateway.model.catalog import Catalog
from gateway.model.clean import ModelText
from gateway.model.enquiries import Answer, AskHistory, AskModels, Question, Selected, SelectModel
from gateway.model.errors import Code, Refusal
from gateway.model.events import EventPayload
from gateway.model.redaction import trusted
from gateway.observe.log import get_logger
from gateway.services.catalogs import read_record
from gateway.services.owners import Runner

log = get_logger("session")

ENQUIRY_S: Final = 30.0  # for a question to a child, its start included
_FLUSH_S: Final = 3.0
_ENDING: Final = "the agent is being ended; ask again"


class AgentSession(Runner):
    """The runner of one session. ``forget(runner, bus_lost, work_left)`` is called when it has ended by itself."""

    def __init__(
        self,
        services: StdioServices,
        agent: Agent,
        session_id: str,
        epoch: int,
        resumption: Resumption,
        *,
        forget: Callable[["AgentSession", bool, bool], None],
    ) -> None:
        self.services = services
        self.agent = agent
        self.session_id = session_id
        self.epoch = epoch
        self.outbox = Outbox(
            services.store,
            session_id,
            epoch,
            tasks=services.tasks,
            isolation_s=services.limits.isolation_s,
            on_lost=self._lost,
        )
        self._forget = forget
        self.long_answers: dict[str, ModelText] = {}
        self._marks: list[str] = []
        self._offering = Offering(
            services,
            agent,
            session_id,
            recorded=read_record(resumption.catalog),
            record=lambda record: self.write([], fields=[("catalog", record)]),
            on_changed=self._catalog_changed,
        )
        self._lineage = Lineage(
            services,
            agent,
            session_id,
            self._offering,
            durable=resumption.child_session,
            on_event=self._child_event,
            on_restart=self._restarted,
        )
        self._run: Run | None = None
        self._working: asyncio.Task[None] | None = None
        self._more = False
        self._closed = False
        self._leaving = False
        self._turns = Turns()
        self._coming: asyncio.Future[QueuedRun | None] | None = None
        if resumption.run_id is not None:  # its owner is gone: nobody can say what the child did
            gone = RunFailure.of("owner_gone", "the node that ran it is gone")
            self.write([events.run_failed(resumption.run_id, gone.text)], ends_run=resumption.run_id)

    # --- SessionContext

    @property
    def catalog(self) -> Catalog:
        """What is offered now, as far as this node has heard."""
        return self._offering.catalog

    @property
    def stale(self) -> bool:
        """Whether the list has changed since ``catalog`` was built; so it may have while it is being read."""
        return self._offering.stale

    def revision(self, client_id: str) -> int:
        """The revision of a registration's list that ``catalog`` was built from; 0 when it is not in it."""
        return self._offering.revision(client_id)

    def take_marks(self) -> str:
        """What became of answers at the child since the last write."""
        marks, self._marks = self._marks, []
        return " ".join(marks)

    def mark(self, call_id: str, what: str) -> None:
        """Notes what became of an answer at the child."""
        self._marks.append(f"{call_id} {what}")

    def write(
        self, payloads: Sequence[EventPayload], *, ends_run: str = "", fields: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Log events."""
        self.services.sessions.append(
            self.outbox, payloads, ends_run=ends_run, delivered=self.take_marks(), fields=fields
        )

    def persisted(self, child_session: str) -> None:
        """The child's session outlives the child from now on: the next generation opens it."""
        self._lineage.persisted(child_session)

    def used(self, model_name: str) -> None:
        """A tool was called."""
        self._offering.used(model_name)

    def spent(self, generation: Generation) -> None:
        """The child has hardly any request ids left: its run ends, and another child comes (bridge 9)."""
        run = self._run
        if run is not None and run.generation is generation:
            run.exhaust()

    # --- Runner

    def input_waiting(self) -> None:
        """An input waits, or may."""
        self._more = True
        if self._working is None and not (self._closed or self._leaving):
            self.services.timers.disarm(self._idle_key)
            self.services.capacity.busy(self.session_id)
            self._working = self.services.tasks.spawn("session.work", self._work())

    def clients_changed(self) -> None:
        """A registration came, went, or has another list."""
        self.refresh()

    def answered(self, call_id: str, answer: bytes) -> None:
        """A call was answered."""
        if self._run is not None and self._run.calls is not None:
            self._run.calls.answered(call_id, answer)

    def failed(self, call_id: str, reason: str, outcome: str, said: bytes = b"") -> None:
        """A call failed."""
        if self._run is not None and self._run.calls is not None:
            self._run.calls.failed(call_id, reason, outcome, said)

    def due_changed(self, call_id: str, due_ms: int) -> None:
        """A call waits for an earlier instant."""
        if self._run is not None and self._run.calls is not None:
            self._run.calls.due_changed(call_id, due_ms)

    def cancel(self, run_id: str) -> None:
        """The run is to end."""
        if self._run is not None and self._run.run_id == run_id:
            self._run.cancel()

    def approval_answered(self, approval_id: str, decision: str) -> None:
        """An approval was answered."""
        if self._run is not None:
            self._run.approval_answered(approval_id, decision)

    def resync(self) -> None:
        """Messages may have been lost: what stands in the session's keys is read."""
        self.refresh()
        self.input_waiting()
        if self._run is not None and self._run.calls is not None:
            self.services.tasks.spawn("session.resync", self._resync_calls(self._run))

    async def _resync_calls(self, run: Run) -> None:
        calls = run.calls
        if calls is None:
            return
        for call_id in calls.open_ids():
            record = await self.services.calls.get(self.session_id, call_id)
            if record is not None and record.answer is not None:
                calls.answered(call_id, record.answer)
            elif record is not None and record.reason is not None and record.outcome is not None:
                calls.failed(call_id, record.reason, record.outcome, record.refused_text or b"")

    def refresh(self) -> None:
        """Read the registrations again."""
        self._offering.refresh()

    def _catalog_changed(self) -> None:
        if self._run is not None and self._run.calls is not None:
            self._run.calls.catalog_changed()

    # --- runs

    async def _work(self) -> None:
        try:
            while self._more and not (self._closed or self._leaving):
                self._more = False
                while not self._leaving and (queued := await self._next()) is not None:
                    await self._turn(queued)
        finally:
            self._working = None
            if not self._closed:
                self._rest()

    async def _next(self) -> QueuedRun | None:
        coming: asyncio.Future[QueuedRun | None] = asyncio.get_running_loop().create_future()
        self._coming = coming

        def came(queued: QueuedRun | None) -> None:
            if not coming.done():
                coming.set_result(queued)

        self.services.sessions.start_run(self.outbox, came)
        return None if self._closed else await coming

    async def _turn(self, queued: QueuedRun) -> None:
        run = self._run = Run(self, queued)
        try:
            async with self._turns.run():
                generation = await self._prepared(run)
                if generation is not None:
                    await run.begin(generation)
                    await run.ended
        except RunFailure as failure:
            run.fail(failure)
        except Refusal as refusal:  # of the node's capacity
            run.fail(RunFailure.of("no_capacity", "no agent could be started in time"))
            log.warning("no capacity", session_id=self.session_id, code=refusal.envelope_code)
        finally:
            self._run = None
            run.finish()
        await self._after(run)

    async def _prepared(self, run: Run) -> Generation | None:
        """A child for the run; None when the run has ended (by a cancel, say) before there was one."""
        bound = asyncio.timeout(None)

        def ended(_: object) -> None:
            with suppress(RuntimeError):  # the child was ready in the same moment
                bound.reschedule(asyncio.get_running_loop().time())

        run.ended.add_done_callback(ended)
        try:
            async with bound:
                generation = await self._lineage.ready()
        except TimeoutError:
            return None
        finally:
            run.ended.remove_done_callback(ended)
        return None if run.ended.done() else generation

    async def _after(self, run: Run) -> None:
        """What a run's end says about its child and its tools."""
        generation, outcome = run.generation, run.ended.result() if run.ended.done() else None
        if generation is None:
            return
        if run.spoke:
            self._offering.spoke(generation.native)
        elif isinstance(outcome, RunFinished) and outcome.outcome == "failed":
            self._offering.failed_unheard(generation.native)
        if isinstance(outcome, RunFailure):
            outcome.count()
            if self._lineage.current is generation:
                await self._lineage.stop()

    def _child_event(self, child: Child, event: ChildEvent) -> None:
        run = self._run
        if run is None or run.generation is None or run.generation.child is not child:
            if isinstance(event, Exited):
                log.warning("a child ended between runs", session_id=self.session_id, code=event.code)
            return
        if isinstance(event, Exited):
            tail = child.stderr_tail(self.services.redactor.diagnostic)
            run.fail(RunFailure.of("child_exited", "the agent ended during the run").with_last_words(tail))
        else:
            run.handle(event)

    def _restarted(self) -> None:
        self.write([events.error(trusted("the agent's session is lost; it starts anew without its history"))])

    # --- enquiries: what may be asked of the child between runs

    async def enquire(self, question: Question) -> Answer:
        """Answers a question beside the runs; what it says is redacted. Raises Refusal(CONFLICT) while a run is active
        or for a cursor of an older list, Refusal(INVALID_REQUEST) for a cursor or a model that is none,
        Refusal(NO_CAPACITY, CHILD_TIMEOUT, DRAINING)."""
        redactor = self.services.redactor
        async with self._idle_child() as generation:
            match question:
                case AskHistory(cursor):
                    return await enquiries.history(generation, self._lineage.revision, cursor, redactor)
                case AskModels(cursor):
                    return await enquiries.models(generation, cursor, redactor)
                case SelectModel(provider, model, effort):
                    selected = await enquiries.select_model(generation, provider, model, effort)
        self._lineage.revision = selected.history_revision
        if selected.durable:
            self._lineage.persisted(selected.session_id)
            self.write([], fields=[("child_session", selected.session_id)])
        return Selected(enquiries.shown_selection(selected.selection, redactor), selected.durable)

    @asynccontextmanager
    async def _idle_child(self) -> AsyncGenerator[Generation]:
        """The child between two runs; questions wait for each other."""
        if self._run is not None:
            raise Refusal(Code.CONFLICT, "a run is active: ask again when it has ended")
        try:
            async with self._turns.question(ENQUIRY_S):
                if self._closed or self._leaving:
                    raise Refusal(Code.DRAINING, _ENDING)
                self.services.timers.disarm(self._idle_key)
                self.services.capacity.busy(self.session_id)
                yield await self._lineage.ready()
        except TimeoutError:
            raise (Refusal(Code.DRAINING, _ENDING) if self._closed else Refusal(Code.CHILD_TIMEOUT)) from None
        except RunFailure as failure:
            log.warning("no child for a question", session_id=self.session_id, reason=failure.text)
            raise Refusal(Code.CHILD_TIMEOUT, "the agent could not be started") from None
        finally:
            if self._working is None and not (self._closed or self._turns.taken()):
                self._rest()

    # --- rest and end

    @property
    def _idle_key(self) -> str:
        return f"idle {self.session_id}"

    def _rest(self) -> None:
        """Nothing waits: the child is kept for a while, then the session needs no runner."""
        if self._more:
            self.input_waiting()
            return
        at = asyncio.get_running_loop().time() + self.agent.idle_timeout_s
        self.services.timers.arm(self._idle_key, at, lambda _: self._retire())
        self.services.capacity.idle(self.session_id, self._retire)

    def _retire(self) -> None:
        if self._working is None and not (self._closed or self._turns.taken()):
            self.services.tasks.spawn("session.retire", self._end(lost=False))

    def _lost(self, error: Exception) -> None:
        """The session is somebody else's, or gone, or the bus has been away for too long."""
        log.warning("a session is lost to this node", session_id=self.session_id, error=error)
        if self._run is not None:
            self._run.fail(RunFailure.of("owner_lost", "this node may not run the session any more"))
        self.services.tasks.spawn("session.lost", self._end(lost=isinstance(error, BusUnavailable)))

    async def _end(self, *, lost: bool) -> None:
        await self.close()
        self._forget(self, lost, self._more)

    async def leave(self) -> None:
        """Take no further input; return when the run under way has ended, however long it takes."""
        self._leaving = True
        if self._working is not None:
            await asyncio.wait([self._working])

    async def close(self) -> None:
        """End the child; what was written before goes out, within a bound."""
        if self._closed:
            return
        self._closed = True
        self.services.timers.disarm(self._idle_key)
        if self._run is not None:
            self._run.fail(RunFailure.of("stopped", "the node that ran it was stopped"))
        if self._coming is not None and not self._coming.done():
            self._coming.set_result(None)
        working = self._working
        if working is not None and working is not asyncio.current_task():
            await asyncio.wait([working], timeout=_FLUSH_S)
        await self._turns.end_question(_FLUSH_S)
        self._offering.close()
        await self._lineage.stop()
        self.services.capacity.free(self.session_id)
        if self.outbox.healthy:
            await self.outbox.drained(_FLUSH_S)
        self.outbox.close()
