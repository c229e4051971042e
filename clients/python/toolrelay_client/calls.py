"""The calls of one client: each is run once, however often it is delivered, and answered once."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from toolrelay_client.errors import ToolrelayError
from toolrelay_client.link import Link
from toolrelay_client.tools import Answer, Tool

ACK_AFTER_S: Final = 0.05
RETRY_S: Final = 1.0
REMEMBERED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Call:
    """What a tool gets beside its arguments. The tool is cancelled once nobody waits any more."""

    call_id: str
    tool: str
    attempt: int
    until: float
    """On ``time.monotonic``'s clock; infinite where there is no bound."""

    @property
    def idempotency_key(self) -> str:
        """The call's id: the same however often the call is delivered, also to another worker."""
        return self.call_id

    @property
    def remaining_s(self) -> float:
        """Seconds until the call fails by itself."""
        return max(0.0, self.until - time.monotonic())


class Host(Protocol):
    """What calls need of their client."""

    @property
    def registered(self) -> Link | None:
        """The socket that holds the registration now."""
        ...

    def find(self, name: str) -> Tool | None:
        """A tool that is offered now."""
        ...

    def flush(self) -> None:
        """Sends a changed list now."""
        ...

    def spawn(self, work: Any) -> "asyncio.Task[None]":
        """A task that ends with the client."""
        ...


@dataclass(slots=True)
class _Known:
    call: Call
    client_id: str
    answer: Answer | None = None
    corrected: bool = False
    over: bool = False
    task: "asyncio.Task[None] | None" = None
    timers: list[asyncio.TimerHandle] = field(default_factory=list[asyncio.TimerHandle])


class Calls:
    """Of one client."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: dict[str, _Known] = {}

    def take(self, event: dict[str, Any]) -> None:
        """A call was delivered: run it, or say again what it was answered with."""
        known = self._known.get(event["call_id"])
        if known is None:
            self._start(event)
            return
        known.client_id = event["client_id"]
        if known.over:
            return
        if known.answer is not None:
            self._host.spawn(self._deliver(known))
        else:
            self._ack(known)

    def resumed(self, events: list[dict[str, Any]]) -> None:
        """All calls that are open after a resume: what else was begun is settled."""
        open_calls = {event["call_id"] for event in events}
        for call_id in [call_id for call_id in self._known if call_id not in open_calls]:
            self.settle(call_id)
        for event in events:
            self.take(event)

    def redeliver(self) -> None:
        """Says again what has not been taken."""
        for known in list(self._known.values()):
            if known.answer is not None and not known.over:
                self._host.spawn(self._deliver(known))

    def settle(self, call_id: str) -> None:
        """Nobody waits for this call any more."""
        known = self._known.get(call_id)
        if known is None or known.over:
            return
        running = known.answer is None and known.task is not None
        self._forget(known)
        if running and known.task is not None:
            known.task.cancel()

    def end(self) -> None:
        """Ends all of them."""
        for call_id in list(self._known):
            self.settle(call_id)

    def _start(self, event: dict[str, Any]) -> None:
        left = event.get("remaining_ms")
        until = float("inf") if left is None else time.monotonic() + left / 1000
        call = Call(event["call_id"], event["tool"], event.get("attempt", 1), until)
        known = _Known(call, event["client_id"])
        self._remember(known)
        tool = self._host.find(call.tool)
        if tool is None:
            known.answer = Answer(f"This client has no tool {call.tool} any more.", is_error=True)
            self._host.spawn(self._deliver(known))
            return
        self._later(known, ACK_AFTER_S, lambda: self._ack(known))
        if left is not None:
            self._later(known, left / 1000, lambda: self.settle(call.call_id))
        known.task = self._host.spawn(self._run(known, tool, event.get("arguments")))

    async def _run(self, known: _Known, tool: Tool, arguments: Any) -> None:
        answer = await tool.run(arguments, known.call)
        if known.over:
            return
        known.answer = answer
        self._stop_timers(known)
        await self._deliver(known)

    def _ack(self, known: _Known) -> None:
        link = self._host.registered
        if link is None or known.answer is not None or known.over:
            return
        asked = link.ask("ack", client_id=known.client_id, call_id=known.call.call_id)
        asked.add_done_callback(lambda asked: self._acked(known, link, asked))

    def _acked(self, known: _Known, link: Link, asked: "asyncio.Future[Any]") -> None:
        error = None if asked.cancelled() else asked.exception()
        settled = isinstance(error, ToolrelayError) and error.code in ("conflict", "not_found")
        if settled and self._host.registered is link:  # in a way that was not heard of here
            self.settle(known.call.call_id)

    async def _deliver(self, known: _Known) -> None:
        link, answer = self._host.registered, known.answer
        if link is None or answer is None or known.over:
            return  # the next resume brings the call again if it is still open
        self._host.flush()
        fields: dict[str, Any] = {"text": answer.text, "is_error": answer.is_error}
        if answer.structured is not None:
            fields["structured"] = answer.structured
        try:
            await link.ask("result", client_id=known.client_id, call_id=known.call.call_id, **fields)
        except ToolrelayError as error:
            if error.code == "connection_lost" or known.over or self._host.registered is not link:
                return
            if error.code in ("internal", "too_many_requests"):
                self._later(known, RETRY_S, lambda: self._host.spawn(self._deliver(known)))
                return
            if error.code in ("invalid_request", "too_large") and not known.corrected:
                known.corrected = True
                known.answer = Answer(f"The tool's result was refused: {error}"[:2_000], is_error=True)
                await self._deliver(known)
                return
        self._forget(known)

    def _later(self, known: _Known, seconds: float, act: Callable[[], Any]) -> None:
        known.timers.append(asyncio.get_running_loop().call_later(seconds, act))

    def _stop_timers(self, known: _Known) -> None:
        for timer in known.timers:
            timer.cancel()
        known.timers.clear()

    def _forget(self, known: _Known) -> None:
        """Its id stays, so that it is never run again."""
        known.over = True
        known.answer = None
        self._stop_timers(known)

    def _remember(self, known: _Known) -> None:
        self._known[known.call.call_id] = known
        if len(self._known) > REMEMBERED:
            oldest = next((call_id for call_id, one in self._known.items() if one.over), None)
            if oldest is not None:
                del self._known[oldest]
