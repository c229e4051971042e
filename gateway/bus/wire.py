"""One socket to one Redis: commands out in the order of their calls, answers matched to them in that order.

Owns the bytes: hiredis in and out, the flush once per turn of the event loop, the bounds, the watchdog over the oldest
unanswered command. Never reconnects, never sends a command twice (a script that the server did not know was not
executed), never creates a task, a timer or a lock for a command. The one place that knows hiredis.

A caller that is cancelled abandons its own future and nothing else: its answer is read when it comes and thrown away,
so no answer can reach another caller.
"""

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import hiredis

from gateway.bus.errors import BusError, BusUnavailable, Kind, NoScript, Redirect, read_error
from gateway.bus.replies import let_go

if TYPE_CHECKING:
    from asyncio import Future

logger = logging.getLogger(__name__)

Arg: TypeAlias = bytes | str | int | float
"""An argument of a command. Exact types: hiredis refuses subclasses (``bool``, ``StrEnum``) with ``TypeError``."""

_MISSING: Final = object()
_pack: Final = cast("Callable[[tuple[Arg, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]
_HIGH_WATER: Final = 1024 * 1024


class Script:
    """A Lua script and the name that Redis gives it (the SHA-1 of its source)."""

    __slots__ = ("sha", "source")

    def __init__(self, source: str | bytes) -> None:
        self.source: Final = source.encode() if isinstance(source, str) else source
        self.sha: Final = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()


@dataclass(frozen=True, slots=True)
class Bounds:
    """``in_flight``: commands without an answer; ``out_bytes``: bytes that the socket has not taken; ``reply_s``: how
    long the oldest command may wait before the connection counts as broken."""

    in_flight: int = 32_768
    out_bytes: int = 64 * 1024 * 1024
    reply_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Server:
    """What HELLO tells: ``redis`` or ``valkey``, and its version."""

    name: str = ""
    version: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Sent:
    """A command that waits for its answer. ``script`` is set for EVALSHA, ``hops`` counts redirections."""

    future: "Future[object]"
    args: tuple[Arg, ...]
    script: Script | None = None
    hops: int = 0


class Wire(asyncio.Protocol):
    """A connected socket. ``lost`` is done (with the cause) when it has ended; every pending future has failed then."""

    def __init__(self, loop: asyncio.AbstractEventLoop, bounds: Bounds) -> None:
        self.lost: Future[BusUnavailable] = loop.create_future()
        self.server = Server()
        self.redirect: Callable[[Sent, Redirect], bool] | None = None  # true: it took the command over
        self.on_refused: Callable[[BusUnavailable], None] | None = None
        self.on_end: Callable[[BusUnavailable], None] | None = None  # at once, before the futures fail
        self._loop = loop
        self._bounds = bounds
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(replyError=read_error, errors="replace", notEnoughData=_MISSING)
        self._in_flight: deque[Sent] = deque()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._paused = False
        self._retired = False
        self._listener: Callable[[object], None] | None = None
        self._answered = 0
        self._timer: asyncio.TimerHandle | None = None
        self._mark = (-1, 0.0)  # answers seen, and when
        self._due = 0.0

    @property
    def pending(self) -> int:
        """Commands without an answer, abandoned ones included."""
        return len(self._in_flight)

    # --- commands out

    def send(self, args: tuple[Arg, ...], script: Script | None = None) -> "Future[object]":
        """Enqueues one command; its future gets the answer or a ``BusError``."""
        sent = Sent(self._loop.create_future(), args, script)
        if len(self._in_flight) >= self._bounds.in_flight or self._out_bytes > self._bounds.out_bytes:
            sent.future.set_exception(BusUnavailable(Kind.FULL))
        else:
            self.enqueue(sent)
        return sent.future

    def enqueue(self, sent: Sent, *, asking: bool = False) -> None:
        """Enqueues a command that was taken over from another connection; ``asking`` puts ASKING before it."""
        if self.lost.done():
            _fail(sent, BusUnavailable(Kind.DOWN))
            return
        packed = _pack(sent.args)
        if asking:
            asked = Sent(self._loop.create_future(), ("ASKING",))
            let_go(asked.future)  # what becomes of it shows in the command
            self._in_flight.append(asked)
            self._write(_pack(("ASKING",)))
        self._in_flight.append(sent)
        self._write(packed)

    def post(self, args: tuple[Arg, ...]) -> None:
        """Enqueues a command without an answer of its own (SUBSCRIBE and its kin), after ``listen``."""
        if not self.lost.done():
            self._write(_pack(args))

    def listen(self, listener: Callable[[object], None]) -> None:
        """From here on every reply, error replies included, goes to ``listener``, straight from the parser."""
        self._listener = listener

    def _write(self, packed: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(packed)
        self._out_bytes += len(packed)

    def _flush(self) -> None:
        if self._paused or not self._out or self._transport is None or self.lost.done():
            return
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out = []
        self._out_bytes = 0
        self._transport.write(data)
        if self._timer is None:
            self._arm()

    # --- answers in

    def data_received(self, data: bytes) -> None:
        """Reads all answers that are complete."""
        if self.lost.done():
            return
        reader, in_flight = self._reader, self._in_flight
        gets = cast("Callable[[], object]", reader.gets)
        try:
            reader.feed(data)
            while (reply := gets()) is not _MISSING:
                if self._listener is not None:
                    self._listener(reply)
                    continue
                if not in_flight:
                    # A server that refuses a connection says so before it was asked.
                    said = reply if isinstance(reply, BusUnavailable) else BusUnavailable(Kind.PROTOCOL)
                    self.abort(said.kind)
                    return
                sent = in_flight.popleft()
                self._answered += 1
                if isinstance(reply, BusError):
                    self._refused(sent, reply)
                elif not sent.future.done():
                    sent.future.set_result(reply)
        except hiredis.HiredisError:
            self.abort(Kind.PROTOCOL)
            return
        if self._retired and not in_flight:
            self.abort(Kind.CLOSED)

    def _refused(self, sent: Sent, error: BusError) -> None:
        if isinstance(error, NoScript) and sent.script is not None:
            sent.args = ("EVAL", sent.script.source, *sent.args[2:])
            sent.script = None
            self.enqueue(sent)
            return
        if isinstance(error, Redirect) and self.redirect is not None and self.redirect(sent, error):
            return
        _fail(sent, error)
        if isinstance(error, BusUnavailable) and self.on_refused is not None:
            self.on_refused(error)

    # --- the end

    def retire(self) -> None:
        """Ends the connection when every answer that is due has come (or the watchdog finds that none will)."""
        self._retired = True
        if not self._in_flight:
            self.abort(Kind.CLOSED)

    def abort(self, kind: Kind) -> None:
        """Ends the connection now. Commands that may have been sent fail with ``maybe_applied``."""
        if self.lost.done():
            return
        fault = BusUnavailable(kind)
        self.lost.set_result(fault)
        if self.on_end is not None:
            self.on_end(fault)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        in_flight, unsent = self._in_flight, len(self._out)
        self._in_flight, self._out, self._out_bytes = deque(), [], 0
        sent_before = len(in_flight) - unsent
        for index, sent in enumerate(in_flight):
            _fail(sent, BusUnavailable(kind, maybe_applied=index < sent_before))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket has ended."""
        self.abort(Kind.LOST)

    def pause_writing(self) -> None:
        """The socket takes no more: commands wait here, within ``Bounds.out_bytes``."""
        self._paused = True

    def resume_writing(self) -> None:
        """The socket takes bytes again."""
        self._paused = False
        self._flush()

    # --- the watchdog: one timer, and none while nothing is in flight

    def _arm(self) -> None:
        if self._in_flight:
            self._mark = (self._answered, self._loop.time())
            self._tick_later()

    def _tick_later(self) -> None:
        step = self._bounds.reply_s / 4
        self._due = self._loop.time() + step
        self._timer = self._loop.call_later(step, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._in_flight:
            return
        now = self._loop.time()
        late = now - self._due > self._bounds.reply_s / 4  # we stood still ourselves: the answers may be in the socket
        if self._mark[0] != self._answered or late:
            self._mark = (self._answered, now)
        elif now - self._mark[1] >= self._bounds.reply_s:
            self.abort(Kind.TIMEOUT)
            return
        self._tick_later()


def _fail(sent: Sent, error: BusError) -> None:
    if not sent.future.done():
        sent.future.set_exception(error)


def script_call(script: Script, keys: Sequence[Arg], args: Sequence[Arg]) -> tuple[Arg, ...]:
    """The EVALSHA that runs ``script``."""
    return ("EVALSHA", script.sha, len(keys), *keys, *args)


def as_map(reply: object) -> dict[bytes, Any]:
    """A flat RESP2 list of names and values as a dict; empty for anything else."""
    if not isinstance(reply, list):
        return {}
    items = cast("list[Any]", reply)
    return {name: value for name, value in zip(items[::2], items[1::2], strict=False) if isinstance(name, bytes)}
