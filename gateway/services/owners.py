"""Which sessions this node owns, and who runs each. Owns the runners' table; how one is run is the adapter's.

A runner exists from the session's first message to this incarnation until it has nothing left to run. Messages that
find no runner are dropped: whatever they say stands in the session's keys, and a runner reads those when it begins.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

from gateway.bus.enquiries import Asked, EnquiryBus
from gateway.bus.errors import BusUnavailable
from gateway.bus.sessions import Owner, Resumption, Sessions
from gateway.model.enquiries import Answer, Question, Refused, Reply, read_question
from gateway.model.errors import Code, Refusal
from gateway.model.redaction import trusted
from gateway.observe.log import get_logger
from gateway.services.tasks import Tasks

log = get_logger("owners")

_AGAIN_S: Final = 2.0
QUESTIONS: Final = 256
"""Questions that this node answers at once; the next one is refused."""
_encode: Final = msgspec.json.Encoder().encode
_LOST_RUN: Final = trusted("owner_lost: the node that ran it was out of contact")


class Runner(Protocol):
    """Whoever runs a session. No call of these waits, but those that are awaited."""

    epoch: int

    def input_waiting(self) -> None:
        """An input waits, or may."""
        ...

    def clients_changed(self) -> None:
        """A registration came, went, or has another list."""
        ...

    def answered(self, call_id: str, answer: bytes) -> None:
        """A call was answered (``services.answers.read_answer``)."""
        ...

    def failed(self, call_id: str, reason: str, outcome: str) -> None:
        """A call failed."""
        ...

    def due_changed(self, call_id: str, due_ms: int) -> None:
        """A call waits for an earlier instant."""
        ...

    def cancel(self, run_id: str) -> None:
        """The run is to end."""
        ...

    def approval_answered(self, approval_id: str, decision: str) -> None:
        """An approval was answered."""
        ...

    def resync(self) -> None:
        """Messages may have been lost: read what stands in the session's keys."""
        ...

    async def enquire(self, question: Question) -> Answer:
        """What the agent says to a question beside its runs, within a bound. Raises Refusal."""
        ...

    async def leave(self) -> None:
        """Take no further input; return when the run under way has ended, however long it takes."""
        ...

    async def close(self) -> None:
        """End the child and write no more; bounded by the child's stop ladder."""
        ...


RunnerFactory = Callable[[str, int, Resumption], Runner]


class Owners:
    """The runners of this incarnation; hears its inbox (``bus.inbox.OwnerCalls``)."""

    def __init__(
        self, incarnation: str, sessions: Sessions, enquiries: EnquiryBus, tasks: Tasks, make: RunnerFactory
    ) -> None:
        self.incarnation: Final = incarnation
        self._sessions = sessions
        self._enquiries = enquiries
        self._tasks = tasks
        self._make = make
        self._runners: dict[str, Runner] = {}
        self._adopting: dict[str, asyncio.Task[None]] = {}
        self._questions = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._runners)

    def forget(self, session_id: str, runner: Runner, *, bus_lost: bool, work_left: bool) -> None:
        """A runner has ended by itself. ``work_left``: an input came while it did, so another begins at once.
        ``bus_lost``: the bus was away for too long; the session is looked at again when it is back."""
        if self._runners.get(session_id) is runner:
            del self._runners[session_id]
            if bus_lost or work_left:
                self._adopt(session_id)

    def input_waiting(self, session_id: str) -> None:
        """An input was queued, or the session was given to this node."""
        runner = self._runners.get(session_id)
        if runner is not None:
            runner.input_waiting()
        self._adopt(session_id)

    def _adopt(self, session_id: str) -> None:
        if session_id not in self._adopting and not self._closed:
            self._adopting[session_id] = self._tasks.spawn("owners.adopt", self._adopt_now(session_id))

    async def _adopt_now(self, session_id: str) -> None:
        """Makes a runner where there is none, and a new one where the epoch has moved on. Ends one whose session is
        somebody else's by now."""
        try:
            owner = await self._sessions.owner(session_id)
            runner = self._runners.get(session_id)
            if owner.incarnation != self.incarnation:
                await self._end(session_id, runner)
                return
            if runner is not None and runner.epoch == owner.epoch:
                return
            if runner is not None:  # taken away and given back: what it knows is old
                await runner.close()
            epoch = owner.epoch
            resumption = await self._sessions.resumption(session_id)
            if resumption.written:
                # A runner's writes are numbered within its epoch, and one that ended may have left some on their way.
                own = Owner("", self.incarnation, 0)
                claimed = await self._sessions.claim(
                    session_id, self.incarnation, own, lost_run=_LOST_RUN, home_wait_ms=0
                )
                if claimed is None:
                    return
                epoch, resumption = claimed, await self._sessions.resumption(session_id)
            self._runners[session_id] = runner = self._make(session_id, epoch, resumption)
            runner.input_waiting()
        except Refusal as refusal:
            if refusal.code is not Code.NOT_FOUND:
                raise
            await self._end(session_id, self._runners.get(session_id))
        except BusUnavailable as error:
            log.warning("a session could not be looked at", session_id=session_id, error=error)
            asyncio.get_running_loop().call_later(_AGAIN_S, self._adopt, session_id)
        finally:
            del self._adopting[session_id]

    async def _end(self, session_id: str, runner: Runner | None) -> None:
        if runner is not None and self._runners.get(session_id) is runner:
            del self._runners[session_id]
            log.warning("a session has been given to another node", session_id=session_id)
            await runner.close()

    def clients_changed(self, session_id: str) -> None:
        """For the runner."""
        if (runner := self._runners.get(session_id)) is not None:
            runner.clients_changed()

    def answered(self, session_id: str, call_id: str, answer: bytes) -> None:
        """For the runner."""
        if (runner := self._runners.get(session_id)) is not None:
            runner.answered(call_id, answer)

    def failed(self, session_id: str, call_id: str, reason: str, outcome: str) -> None:
        """For the runner."""
        if (runner := self._runners.get(session_id)) is not None:
            runner.failed(call_id, reason, outcome)

    def due_changed(self, session_id: str, call_id: str, due_ms: int) -> None:
        """For the runner."""
        if (runner := self._runners.get(session_id)) is not None:
            runner.due_changed(call_id, due_ms)

    def cancel(self, session_id: str, run_id: str) -> None:
        """For the runner."""
        if (runner := self._runners.get(session_id)) is not None:
            runner.cancel(run_id)

    def approval_answered(self, session_id: str, approval_id: str, decision: str) -> None:
        """For the runner."""
        if (runner := self._runners.get(session_id)) is not None:
            runner.approval_answered(approval_id, decision)

    def asked(self, session_id: str, asked: Asked) -> None:
        """A question: with no runner there is one from now on, as with an input."""
        self._questions += 1
        self._tasks.spawn("owners.reply", self._reply(session_id, asked))

    async def _reply(self, session_id: str, asked: Asked) -> None:
        try:
            try:
                epoch, answer = await self._answer(session_id, asked)
                reply = Reply(epoch, msgspec.Raw(_encode(answer)))
            except Refusal as refusal:
                reply = Reply(asked.epoch, refused=Refused(refusal.code.name, refusal.message, refusal.retry_after_s))
            await self._enquiries.reply(session_id, asked, _encode(reply))
        except BusUnavailable as error:
            log.warning("a question stays without its reply", session_id=session_id, error=error)
        finally:
            self._questions -= 1

    async def _answer(self, session_id: str, asked: Asked) -> tuple[int, Answer]:
        if self._closed:
            raise Refusal(Code.DRAINING)
        if self._questions > QUESTIONS:
            raise Refusal(Code.NO_CAPACITY, "too many questions to agents are waiting here")
        self._adopt(session_id)
        if (adopting := self._adopting.get(session_id)) is not None:
            await asyncio.wait([adopting])
        runner = self._runners.get(session_id)
        if runner is None or runner.epoch < asked.epoch:
            raise Refusal(Code.NO_CAPACITY, "the session has changed hands meanwhile", retry_after_s=1)
        return runner.epoch, await runner.enquire(read_question(asked.question))

    def deleted(self, session_id: str) -> None:
        """The session is gone: its child ends."""
        runner = self._runners.pop(session_id, None)
        if runner is not None:
            self._tasks.spawn("owners.end", runner.close())

    def resync(self) -> None:
        """After a gap of the inbox' subscription, or of this node's lease: every runner reads what it may have missed,
        and those whose session was given away meanwhile end."""
        for session_id, runner in self._runners.items():
            runner.resync()
            self._adopt(session_id)

    async def hand_over(self, give: Callable[[str], Awaitable[None]], *, wait_s: float) -> None:
        """The node goes away: each session is given up by ``give`` once its run has ended, for ``wait_s`` at most."""
        self._closed = True
        leaving = [
            self._tasks.spawn("owners.leave", self._give_up(session_id, runner, give))
            for session_id, runner in self._runners.items()
        ]
        if leaving:
            await asyncio.wait(leaving, timeout=wait_s)

    async def _give_up(self, session_id: str, runner: Runner, give: Callable[[str], Awaitable[None]]) -> None:
        await runner.leave()
        await runner.close()
        self.forget(session_id, runner, bus_lost=False, work_left=False)
        await give(session_id)

    async def close(self) -> None:
        """Ends every runner, side by side."""
        self._closed = True
        ends = [self._tasks.spawn("owners.end", runner.close()) for runner in self._runners.values()]
        self._runners.clear()
        for end in ends:
            await end
