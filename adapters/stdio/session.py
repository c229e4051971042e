"""A session on the node that owns it: its queue of inputs, its generations of children, what is offered to them.

Owns the order of runs and the life of children (bridge 3, 9). Messages of the bus come in by ``Runner``'s calls, which
never wait; one task at a time works the queue off.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from adapters.stdio.child import Child, ChildEvent, ChildStuckError, Exited
from adapters.stdio.failures import RunFailure
from adapters.stdio.frames import RunFinished
from adapters.stdio.generation import Generation, LostSession, attach, start
from adapters.stdio.run import Run
from adapters.stdio.services import StdioServices
from gateway.bus.errors import BusUnavailable
from gateway.bus.outbox import Outbox
from gateway.bus.sessions import QueuedRun, Resumption
from gateway.config.settings import Agent
from gateway.model import events
from gateway.model.catalog import REFUSED_BY_CHILD, REFUSED_BY_PROVIDER, Catalog, DescriptorRedaction, build_catalog
from gateway.model.errors import Refusal
from gateway.model.events import EventPayload
from gateway.model.limits import CHILD_REQUEST_IDS
from gateway.model.names import RESERVED, ToolKey
from gateway.model.redaction import trusted
from gateway.observe.log import get_logger
from gateway.services.owners import Runner

log = get_logger("session")

REQUESTS_OF_A_GENERATION: Final = 3_500
"""Request ids after which a child is replaced between runs (bridge 9); a run may use the rest."""
_BACKOFF_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_USED: Final = 64  # tools whose last use is remembered
_FLUSH_S: Final = 3.0
_RETRY_S: Final = 0.5


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
        self._durable = resumption.child_session
        redactor = services.redactor
        self._redaction = DescriptorRedaction(redactor.model_text, redactor.schema_json)
        self._catalog = build_catalog((), redaction=self._redaction, dynamic_tools=agent.dynamic_tools)
        self._revisions: dict[str, int] = {}
        self._excluded: dict[str, str] = {}
        self._proven: set[str] = set()
        self._used: list[str] = []
        self._marks: list[str] = []
        self._stale = True
        self._reading: asyncio.Task[None] | None = None
        self._generation: Generation | None = None
        self._run: Run | None = None
        self._working: asyncio.Task[None] | None = None
        self._more = False
        self._failures = 0
        self._closed = False
        self._leaving = False
        self._coming: asyncio.Future[QueuedRun | None] | None = None
        if resumption.run_id is not None:  # its owner is gone: nobody can say what the child did
            gone = RunFailure.of("owner_gone", "the node that ran it is gone")
            self.write([events.run_failed(resumption.run_id, gone.text)], ends_run=resumption.run_id)

    # --- SessionContext

    @property
    def catalog(self) -> Catalog:
        """What is offered now, as far as this node has heard."""
        return self._catalog

    @property
    def stale(self) -> bool:
        """Whether the list has changed since ``catalog`` was built."""
        return self._stale

    def revision(self, client_id: str) -> int:
        """The revision of a registration's list that ``catalog`` was built from; 0 when it is not in it."""
        return self._revisions.get(client_id, 0)

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
        self._durable = child_session

    def used(self, model_name: str) -> None:
        """A tool was called."""
        with suppress(ValueError):
            self._used.remove(model_name)
        self._used.insert(0, model_name)
        del self._used[_USED:]

    def spent(self, generation: Generation) -> None:
        """The child has hardly any request ids left: its run ends, and another child comes (bridge 9)."""
        run = self._run
        if run is not None and run.generation is generation and not run.ended.done():
            run.fail(RunFailure.of("request_limit", "the run needed more requests than an agent may serve"))

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

    def failed(self, call_id: str, reason: str, outcome: str) -> None:
        """A call failed."""
        if self._run is not None and self._run.calls is not None:
            self._run.calls.failed(call_id, reason, outcome)

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
                calls.failed(call_id, record.reason, record.outcome)

    # --- what is offered

    def refresh(self) -> None:
        """Read the registrations again."""
        self._stale = True
        if self._reading is None and not self._closed:
            self._reading = self.services.tasks.spawn("session.read_tools", self._read_tools())

    async def _read_tools(self) -> None:
        try:
            while self._stale and not self._closed:
                self._stale = False
                try:
                    found = await self.services.offers.all(self.session_id)
                except BusUnavailable:
                    self._stale = True
                    await asyncio.sleep(_RETRY_S)
                    continue
                held: dict[ToolKey, str] = self._catalog.names
                self._revisions = {stored.client_id: stored.revision for _, stored in found}
                self._catalog = build_catalog(
                    [registration for registration, _ in found],
                    redaction=self._redaction,
                    used=self._used,
                    held=held,
                    dynamic_tools=self.agent.dynamic_tools,
                    excluded=self._excluded,
                )
        finally:
            self._reading = None
        if self._run is not None and self._run.calls is not None:
            self._run.calls.catalog_changed()

    async def _fresh_catalog(self) -> Catalog:
        if self._stale:
            self.refresh()
        while self._reading is not None:
            await asyncio.shield(self._reading)
        return self._catalog

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
            generation = await self._ready_generation()
            if not run.cancelled:
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

    async def _after(self, run: Run) -> None:
        """What a run's end says about its child and its tools."""
        generation, outcome = run.generation, run.ended.result() if run.ended.done() else None
        if generation is None:
            return
        if run.spoke:
            self._proven |= generation.native
        elif isinstance(outcome, RunFinished) and outcome.outcome == "failed":
            suspects = generation.native - self._proven - RESERVED
            self._exclude(suspects, REFUSED_BY_PROVIDER)
        if isinstance(outcome, RunFailure) and self._generation is generation:
            await self._stop_child()

    def _exclude(self, names: frozenset[str] | set[str], why: str) -> None:
        if names - self._excluded.keys():
            self._excluded.update(dict.fromkeys(names, why))
            self.refresh()

    # --- children

    async def _ready_generation(self) -> Generation:
        """A child with the list as it is now, attached. Raises RunFailure, Refusal(NO_CAPACITY)."""
        catalog = await self._fresh_catalog()
        current = self._generation
        if current is not None and current.alive and self._serves(current, catalog):
            return current
        await self.services.capacity.take(self.session_id, wait_s=self.services.limits.start_wait_s)
        await asyncio.sleep(_BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)])
        try:
            generation = await self._replace(catalog)
        except RunFailure:
            self._failures += 1
            raise
        self._failures = 0
        return generation

    def _serves(self, generation: Generation, catalog: Catalog) -> bool:
        used = CHILD_REQUEST_IDS - generation.child.protocol.requests_left
        return generation.fingerprint == catalog.native_fingerprint and used < REQUESTS_OF_A_GENERATION

    async def _replace(self, catalog: Catalog) -> Generation:
        """The next generation: started and initialised beside the one before, then attached in its stead."""
        source: list[Child] = []  # what a child says before it is ready concerns nobody
        generation = await start(
            self.services,
            self.agent,
            self.session_id,
            catalog,
            lambda event: self._child_event(source, event),
            requests=CHILD_REQUEST_IDS,
        )
        source.append(generation.child)
        if generation.refused:
            self._exclude(frozenset(item.model_name for item in catalog.items if item.native), REFUSED_BY_CHILD)
        await self._stop_child()
        try:
            attached = await self._attach(generation)
        except BaseException:
            await _stop(generation.child)
            raise
        self._generation = attached
        return attached

    async def _attach(self, generation: Generation) -> Generation:
        try:
            return await attach(generation, self._durable)
        except LostSession as lost:
            if self.agent.on_lost_session == "error":
                raise lost.failure from None
            log.warning("a child's session is lost; it starts anew", session_id=self.session_id)
            self._durable = None
            self.write([events.error(trusted("the agent's session is lost; it starts anew without its history"))])
            return await attach(generation, None)

    def _child_event(self, source: list[Child], event: ChildEvent) -> None:
        run = self._run
        if run is None or run.generation is None or run.generation.child not in source:
            return
        if isinstance(event, Exited):
            tail = source[0].stderr_tail(self.services.redactor.diagnostic)
            run.fail(RunFailure.of("child_exited", "the agent ended during the run").with_last_words(tail))
        else:
            run.handle(event)

    async def _stop_child(self) -> None:
        generation, self._generation = self._generation, None
        if generation is not None:
            await _stop(generation.child)

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
        if self._working is None and not self._closed:
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
        run = self._run
        if run is not None:
            run.fail(RunFailure.of("stopped", "the node that ran it was stopped"))
        if self._coming is not None and not self._coming.done():
            self._coming.set_result(None)
        working = self._working
        if working is not None and working is not asyncio.current_task():
            await asyncio.wait([working], timeout=_FLUSH_S)
        await self._stop_child()
        self.services.capacity.free(self.session_id)
        if self.outbox.healthy:
            await self.outbox.drained(_FLUSH_S)
        self.outbox.close()


async def _stop(child: Child) -> None:
    try:
        await child.stop()
    except ChildStuckError as error:
        log.error("a child does not end", error=error)
