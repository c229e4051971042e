"""One child process on the event loop. Owns its pipes, its requests under way and its end; must never know sessions,
runs or calls.

Sources: stdio protocol, Framing, Launch; bridge 9; faults 14, 15, 18. stdout is read whenever it has something, and
what it says is handed to a plain function that must not block: the reader waits for nothing but the child.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from adapters.stdio.events import EndOfOutput, LostRequest, ProtocolEvent, Response, Violation
from adapters.stdio.launch import Launched, LaunchError, LaunchSpec, close_all, launch
from adapters.stdio.pipes import STALL_S, STDIN_BUFFER_BYTES, ErrorPipe, InputPipe, PipeClosedError, PipeStalledError
from adapters.stdio.protocol import ChildProtocol
from adapters.stdio.reaper import Reaper
from adapters.stdio.reaper_process import kill_session
from adapters.stdio.requests import Request, RequestError
from adapters.stdio.results import Result
from gateway.model.clean import DiagnosticText
from gateway.observe.tasks import Tasks

READ_BYTES: Final = 64 * 1024  # a pipe holds as much
STOP_S: Final = 4.0  # shutdown and the end of stdin
TERM_S: Final = 2.0
KILL_S: Final = 5.0
LAST_WORDS_S: Final = 1.0  # for the rest of stdout once the process is dead

Cause: TypeAlias = Literal["exited", "stopped", "killed", "stalled", "violation"]


@dataclass(frozen=True, slots=True)
class ChildBounds:
    """Times in seconds; a test sets its own."""

    stall_s: float = STALL_S
    stdin_bytes: int = STDIN_BUFFER_BYTES
    stop_s: float = STOP_S
    term_s: float = TERM_S
    kill_s: float = KILL_S


@dataclass(frozen=True, slots=True)
class Stalled:
    """The child has not read its stdin for its bound while bytes waited. It is being killed."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The child's last event, once: it is dead and reaped, its session empty, its pipes closed.

    ``code`` is set after an exit, ``signal`` after a signal. ``cause`` says who began it. ``left`` counts processes of
    its session that could not be killed. Exit code 0 proves nothing (stdio protocol, Launch).
    """

    code: int | None
    signal: int | None
    cause: Cause
    left: int


ChildEvent: TypeAlias = ProtocolEvent | Stalled | Exited


class ChildError(Exception):
    """Something asked of a child did not come about."""


class ChildRefusedError(ChildError):
    """The child answered with an error; ``code`` is one of ``ERROR_CODES``."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class ChildGoneError(ChildError):
    """The child is dead, dying or deaf; nobody knows whether the request was done."""


class ChildStalledError(ChildError):
    """The child does not read; the request was not written."""


class ChildTimeoutError(ChildError):
    """No answer in time. One may still come; it is told as an event and changes no other answer."""


class ChildStuckError(ChildError):
    """Not even SIGKILL ended it in time (a process inside the kernel)."""


async def spawn(
    spec: LaunchSpec,
    on_event: Callable[[ChildEvent], None],
    *,
    reaper: Reaper,
    bounds: ChildBounds | None = None,
    protocol: ChildProtocol | None = None,
) -> "Child":
    """Start a child. Raises LaunchError, after which nothing is left.

    ``on_event`` gets every event, in the child's order, on the loop; it must return at once. Call ``spawn`` on the
    thread that lives as long as the node (see ``launch``). Whoever spawns also calls ``stop``.
    """
    launched = await launch(spec)
    pid = launched.process.pid
    try:
        start = reaper.register(pid)
        return Child(
            launched,
            start,
            on_event=on_event,
            reaper=reaper,
            bounds=bounds or ChildBounds(),
            protocol=protocol or ChildProtocol(),
        )
    except BaseException as error:
        kill_session(pid)
        launched.process.wait()
        reaper.unregister(pid)
        close_all((launched.stdin, launched.stdout, launched.stderr))
        if isinstance(error, OSError):
            raise LaunchError("no_resources", f"cannot be watched: {error.strerror}") from error
        raise


class Child:
    """A running child; made by ``spawn``."""

    def __init__(
        self,
        launched: Launched,
        start: int,
        *,
        on_event: Callable[[ChildEvent], None],
        reaper: Reaper,
        bounds: ChildBounds,
        protocol: ChildProtocol,
    ) -> None:
        self.pid: Final = launched.process.pid
        self.protocol: Final = protocol
        self._loop = asyncio.get_running_loop()
        self._process = launched.process
        self._start = start
        self._on_event = on_event
        self._reaper = reaper
        self._bounds = bounds
        self._tasks = Tasks(limit=2)  # its own: they must outlive whatever else is being ended
        self._waiting: dict[str, asyncio.Future[Result]] = {}
        self._cause: Cause = "exited"
        self._exited: asyncio.Future[Exited] = self._loop.create_future()
        self._output_ended = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._burying: asyncio.Task[None] | None = None
        self._dead = False  # the process is no more ours to signal
        self._exit_descriptor = -1
        self._watch_exit()
        self._stdout = launched.stdout
        self._loop.add_reader(self._stdout, self._read)
        self._stderr = ErrorPipe(launched.stderr)
        self._stdin = InputPipe(
            launched.stdin,
            on_stalled=self._stalled,
            on_broken=self._deaf,
            on_drained=self._write,
            stall_s=bounds.stall_s,
            max_bytes=bounds.stdin_bytes,
        )

    # For the owner.

    @property
    def exit(self) -> Exited | None:
        """How it ended; None while it lives."""
        return self._exited.result() if self._exited.done() else None

    def send(self, request: Request) -> None:
        """Write a request, or keep it until the child may have it; its answer is awaited as an event, if at all.
        Raises ChildGoneError, ChildStalledError."""
        if self._stdin.closed:
            raise ChildGoneError("its stdin is closed")
        waiting = self._stdin.waiting + self.protocol.queued_bytes
        if self._stdin.stalled or waiting + len(request.data) > self._bounds.stdin_bytes:
            raise ChildStalledError("it does not read")
        self.protocol.queue(request)
        self._write()
        if self._stdin.closed:
            raise ChildGoneError("its stdin is closed")

    def _write(self) -> None:
        """One frame at a time, so that what waits for the pipe can still be taken back."""
        with suppress(PipeClosedError, PipeStalledError):
            while not self._stdin.waiting and not self._stdin.closed and (request := self.protocol.next_request()):
                self._stdin.write(request.data)

    async def request(self, request: Request, timeout: float) -> Result:
        """Write a request and wait ``timeout`` seconds for its result. Raises ChildRefusedError with the child's code,
        ChildGoneError, ChildStalledError, ChildTimeoutError.

        The response comes to ``on_event`` too, and there in order with the events that follow it. Giving up, by the
        timeout or by cancellation, leaves the request in flight: a late answer is matched and told, and hurts nothing.
        """
        answer: asyncio.Future[Result] = self._loop.create_future()
        self._waiting[request.id] = answer
        try:
            self.send(request)
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise ChildTimeoutError(f"{request.method}: no answer within {timeout} s") from None
        finally:
            self._waiting.pop(request.id, None)

    def stderr_tail(self, clean: Callable[[str], DiagnosticText]) -> DiagnosticText:
        """The last 4 KiB of stderr, after ``clean``; complete once the child has exited."""
        return self._stderr.tail(clean)

    async def stop(self, *, grace: float | None = None) -> Exited:
        """End it: ``shutdown`` and the end of stdin, SIGTERM, SIGKILL to its whole session, each after its bound.

        ``grace`` (seconds) stands for the first bound; 0 begins with SIGTERM. Called again, it waits for the same end.
        Raises ChildStuckError.
        """
        self._stop("stopped", self._bounds.stop_s if grace is None else grace)
        if self._stopping is not None:
            await asyncio.shield(self._stopping)
        return await self.wait()

    def kill(self) -> None:
        """SIGKILL to its group, now; its other groups go when it is buried."""
        if self._cause == "exited":
            self._cause = "killed"
        self._signal(signal.SIGKILL)

    async def wait(self) -> Exited:
        """Until it is dead and buried, however long it lives."""
        return await asyncio.shield(self._exited)

    # stdout.

    def _read(self) -> None:
        try:
            data = os.read(self._stdout, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            for event in self.protocol.receive(data):
                self._tell(event)
            self._write()
        else:
            self._end_of_output()

    def _end_of_output(self) -> None:
        self._loop.remove_reader(self._stdout)
        close_all((self._stdout,))
        self._stdout = -1
        for event in self.protocol.receive_eof():
            self._tell(event)
        self._output_ended.set()

    def _tell(self, event: ChildEvent) -> None:
        match event:
            case Response(request=request):
                self._answer(request.id, event.result, event.error)
            case LostRequest(code=code, suspects=(suspect,)):
                self._answer(suspect.id, None, code)
            case Violation():
                self._give_up("it broke the protocol")
            case EndOfOutput():
                self._give_up("its output has ended")
            case _:
                pass
        try:
            self._on_event(event)
        except Exception as error:
            self._loop.call_exception_handler(
                {"message": f"a child's event was not handled: {type(event).__name__}", "exception": error}
            )
        if isinstance(event, Violation):
            self._stop("violation", 0)
        elif isinstance(event, EndOfOutput):
            self._deaf()

    def _answer(self, request_id: str, result: Result | None, code: str | None) -> None:
        answer = self._waiting.pop(request_id, None)
        if answer is None or answer.done():
            return
        if result is not None:
            answer.set_result(result)
        else:
            answer.set_exception(ChildRefusedError(code or ""))

    def _give_up(self, why: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(ChildGoneError(why))

    # Its end.

    def _stalled(self) -> None:
        self._cause = "stalled"
        self._tell(Stalled())
        self.kill()

    def _deaf(self) -> None:
        """One of its pipes has ended. It is about to exit by itself, or will be made to."""
        self._stop("exited", self._bounds.stop_s)

    def _stop(self, cause: Cause, grace: float) -> None:
        if self._cause == "exited" and self._stopping is None:
            self._cause = cause
        if self._stopping is None and not self._dead:
            self._stopping = self._tasks.spawn("child.stop", self._descend(grace))

    async def _descend(self, grace: float) -> None:
        if grace > 0:
            with suppress(RequestError, ChildError):
                self.protocol.withdraw_queued()
                if not self._output_ended.is_set():
                    self.send(self.protocol.shutdown())
            self._stdin.close()
            if await self._ends_within(grace):
                return
        self._signal(signal.SIGTERM)
        if await self._ends_within(self._bounds.term_s):
            return
        self._signal(signal.SIGKILL)
        if not await self._ends_within(self._bounds.kill_s):
            raise ChildStuckError(f"process {self.pid} outlives SIGKILL")

    async def _ends_within(self, seconds: float) -> bool:
        await asyncio.wait([self._exited], timeout=seconds)
        return self._exited.done()

    def _signal(self, number: signal.Signals) -> None:
        if not self._dead:  # unreaped, so the number is still its own
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _watch_exit(self) -> None:
        if hasattr(os, "pidfd_open"):
            self._exit_descriptor = os.pidfd_open(self.pid)
            self._loop.add_reader(self._exit_descriptor, self._died)
        else:
            threading.Thread(target=self._await_exit, name=f"exit of {self.pid}", daemon=True).start()

    def _await_exit(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)  # left a zombie: its number stays its own
        with suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._died)

    def _died(self) -> None:
        if self._exit_descriptor >= 0:
            self._loop.remove_reader(self._exit_descriptor)
            close_all((self._exit_descriptor,))
            self._exit_descriptor = -1
        if self._burying is None:
            self._burying = self._tasks.spawn("child.bury", self._bury())

    async def _bury(self) -> None:
        """Its session first, while the zombie still holds the number; then the reaping; then its last words."""
        try:
            left = await self._loop.run_in_executor(None, kill_session, self.pid, self._start)
        except RuntimeError:  # the loop is closing and has no threads any more
            left = kill_session(self.pid, self._start)
        self._dead = True
        status = self._process.wait()
        self._reaper.unregister(self.pid)
        self._stdin.abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._output_ended.wait()
        if not self._output_ended.is_set():  # a process that fled from the session holds the pipe
            self._end_of_output()
        self._stderr.close()
        exited = Exited(None if status < 0 else status, -status if status < 0 else None, self._cause, left)
        self._exited.set_result(exited)
        self._tell(exited)
