"""The event stream (HTTP protocol, "The stream"). Owns the frames, the start position and what ends a stream.

The position is fixed before the head is sent, and the first frame is the cursor. An event is framed once for all who
read it. Whatever ends a stream, its place is given back by the code around it, never by a generator's end.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

from starlette.types import Receive, Send

from adapters.http.ask import Ask, position
from adapters.http.events import OLDEST
from gateway.auth.principals import TokenHolder
from gateway.bus.errors import BusUnavailable
from gateway.bus.log import Entry
from gateway.model.errors import Code, Refusal
from gateway.observe import metrics
from gateway.observe.log import get_logger
from gateway.services.feeds import Reader
from gateway.services.pushes import Delta, Signal, Trimmed
from gateway.web.protocol import chunk
from gateway.web.replies import Headers

log = get_logger("http.stream")

RETRY_MS: Final = 1_000
HEARTBEAT: Final = b": \n\n"
_BUS_PAUSE_S: Final = 0.5
_AT_ONCE: Final = 16  # events of a stream that is caught up; more go by its task, which waits for the client
_GONE: Final = Signal("disconnected")
_HEAD: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
)


class _Framer:
    """Frames of what a feed gives its readers, and the chunk that they are on the wire.

    The readers of a session are given the same objects, one reader behind the other, so the last are what the next
    reader asks for.
    """

    def __init__(self) -> None:
        self._last: list[Entry] | Delta | None = None
        self._frames = self._chunk = b""

    def frames(self, what: list[Entry] | Delta) -> bytes:
        if what is not self._last:
            if isinstance(what, Delta):
                self._frames = b"event: delta\ndata: %b\n\n" % one_line(what.body)
            else:
                self._frames = b"".join([b"id: %d\ndata: %b\n\n" % (one.seq, one_line(one.event)) for one in what])
            self._chunk = chunk(self._frames)
            self._last = what
        return self._frames

    def chunk(self, what: list[Entry] | Delta) -> bytes:
        self.frames(what)
        return self._chunk


_framer: Final = _Framer()


def one_line(body: bytes) -> bytes:
    """JSON that cannot end a frame's line: outside its strings a CR or LF is a space like any other, and inside them it
    is written as an escape."""
    if b"\r" in body or b"\n" in body:
        return body.replace(b"\r", b" ").replace(b"\n", b" ")
    return body


def cursor(seq: int) -> bytes:
    """A frame with an id and no data: from here on."""
    return b"id: %d\n\n" % seq


async def stream(ask: Ask) -> "EventStream":
    """``GET …/events/stream``. Raises Refusal (INVALID_REQUEST, NOT_FOUND, TOO_MANY_REQUESTS, DRAINING)."""
    http = ask.http
    after = _start(ask)
    deltas = ask.query("deltas") not in (None, "0", "false")
    if http.draining():
        raise Refusal(Code.DRAINING)
    http.streams.take(ask.session_id)
    try:
        reader = await http.feeds.open(ask.session_id, after, deltas=deltas)
    except BaseException:
        http.streams.give_back(ask.session_id)
        raise
    http.streams.add(reader, ask.session_id)
    try:
        # A revocation before the subscription was up told nobody here, but its token is looked up again.
        await http.authenticator.authenticate(ask.credential())
        trimmed = await _check_start(ask, reader, after)
    except BaseException:
        http.streams.remove(reader)
        raise
    return EventStream(ask, reader, trimmed)


def _start(ask: Ask) -> int | None:
    """Where to start: the header wins, as an EventSource reconnects with its old URL. None: the live head."""
    asked = ask.seq("after_seq")
    last = ask.header(b"last-event-id")
    return asked if last is None else position(last, "last-event-id")


async def _check_start(ask: Ask, reader: Reader, after: int | None) -> int | None:
    """The oldest seq where the start is below it. Raises Refusal(INVALID_REQUEST) for a start above the head."""
    if after is None:
        return None
    if after > reader.head:  # another node may have told the client of an event that is still on its way to this one
        reader.raise_head(await ask.http.log.head(ask.session_id))
        if after > reader.head:
            raise Refusal(Code.INVALID_REQUEST, "the position is above the last event of the session")
    if after == reader.head:
        return None
    oldest = await ask.http.log.oldest(ask.session_id)
    if after + 1 >= oldest:
        return None
    reader.position = oldest - 1
    return oldest


class EventStream:
    """An open stream, to be written once. ``trimmed`` is the oldest seq where the start asked for is gone."""

    @property
    def status(self) -> int:
        """Whatever else there is to say was said before the stream was open."""
        return 200

    def __init__(self, ask: Ask, reader: Reader, trimmed: int | None) -> None:
        self._ask = ask
        self._http = ask.http
        self._reader = reader
        self._trimmed = trimmed
        self._written = 0.0
        self._loop = asyncio.get_running_loop()
        self._send_now: Callable[[bytes], bool] | None = self._extension("toolrelay.send_now")
        self._waits = False  # the task waits, and whatever came has gone out

    async def write(self, send: Send, more: Headers = ()) -> None:
        """Sends until the client goes, the session or the right to read it ends, or this node drains."""
        watch: asyncio.Task[None] | None = None
        try:
            watch = self._http.tasks.spawn("http.stream.watch", self._watch(self._ask.receive))
            await self._begin(send, more)
            self._reader.on_ready = self._ready
            await self._follow(send)
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            # It does not read: what waits for it is bounded, and so is how long it waits.
            metrics.READERS_DROPPED.labels("sse").inc()
            log.info("a stream's client does not read", session_id=self._ask.session_id)
            self._abort()
        finally:
            if watch is not None:
                watch.cancel()
            self._reader.on_ready = None
            self._http.streams.remove(self._reader)

    def _abort(self) -> None:
        """Ends the connection without waiting for its buffers, where the server lets us."""
        abort = self._extension("toolrelay.abort")
        if abort is not None:
            abort()

    def _extension(self, name: str) -> Any:
        return self._ask.scope.get("extensions", {}).get(name)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._reader.push_signal(_GONE)

    async def _begin(self, send: Send, more: Headers) -> None:
        headers = [*_HEAD, *more]
        first = cursor(self._reader.position)
        if self._trimmed is not None:
            headers.append((OLDEST, b"%d" % self._trimmed))
            first += b": trimmed %d\n\n" % self._trimmed
        async with asyncio.timeout(self._http.write_s):
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send(send, first + b"retry: %d\n\n" % RETRY_MS)

    async def _send(self, send: Send, body: bytes) -> None:
        async with asyncio.timeout(self._http.write_s):
            await send({"type": "http.response.body", "body": body, "more_body": True})
        self._written = self._loop.time()

    # --- what goes at once: an event to a client that reads costs no turn of the task

    def _ready(self) -> None:
        """The reader may have something."""
        if not (self._waits and self._sent_at_once()):
            self._waits = False  # what comes next stands behind what the task has to send
            self._reader.resume()

    def _sent_at_once(self) -> bool:
        """Sends the little that the reader is behind; false when the task is needed for it."""
        reader, send_now = self._reader, self._send_now
        if send_now is None or reader.signalled or reader.head - reader.position > _AT_ONCE:
            return False
        place = reader.position
        while (what := reader.poll()) is not None:
            if not isinstance(what, (list, Delta)):
                raise TypeError("a signal was not asked for")
            if not send_now(_framer.chunk(what)):
                reader.position = place  # an event that did not go is the task's to send; a delta is lost
                return False
            place = reader.position
        self._written = self._loop.time()
        return not reader.must_read

    # --- what waits for the client

    async def _follow(self, send: Send) -> None:
        reader = self._reader
        while True:
            try:
                what = await reader.next() if reader.behind else await self._wait()
            except BusUnavailable:
                what = None
                await asyncio.sleep(_BUS_PAUSE_S)
            match what:
                case list() | Delta():
                    await self._send(send, _framer.frames(what))
                case Trimmed():
                    await self._send(send, cursor(what.oldest - 1) + b": trimmed %d\n\n" % what.oldest)
                case Signal():
                    if await self._ends(send, what):
                        return
                case None:
                    if self._expired():
                        return
                    await self._heartbeat(send)

    async def _wait(self) -> "list[Entry] | Delta | Signal | Trimmed | None":
        """What comes next, None when the heartbeat or the token's end is due first."""
        due = self._written + self._http.heartbeat_s - self._loop.time()
        self._waits = True
        try:
            async with asyncio.timeout(max(0.0, min(due, self._left_s()))):
                return await self._reader.next()
        except TimeoutError:
            return None
        finally:
            self._waits = False

    async def _heartbeat(self, send: Send) -> None:
        if self._loop.time() - self._written >= self._http.heartbeat_s:
            await self._send(send, HEARTBEAT)

    # --- the right to read

    def _left_s(self) -> float:
        principal = self._ask.principal
        if not isinstance(principal, TokenHolder):
            return self._http.heartbeat_s
        return max(0.0, (principal.expires_ms - self._http.now_ms()) / 1000)

    def _expired(self) -> bool:
        return isinstance(self._ask.principal, TokenHolder) and self._left_s() <= 0

    async def _ends(self, send: Send, signal: Signal) -> bool:
        principal = self._ask.principal
        match signal.kind:
            case "disconnected" | "deleted":
                return True
            case "drain":
                # All streams of a node end at once: they come back spread over two seconds.
                await self._send(send, b"retry: %d\n\n" % random.randint(RETRY_MS // 5, 2 * RETRY_MS))  # noqa: S311
                return True
            case "token":
                return isinstance(principal, TokenHolder) and signal.detail == principal.token_id
            case "gap":
                return await self._lost_right(principal)
            case _:
                return False

    async def _lost_right(self, principal: object) -> bool:
        """Signals may have been missed: the token is looked at again."""
        if not isinstance(principal, TokenHolder):
            return False
        try:
            await self._http.authenticator.authenticate(self._ask.credential())
        except Refusal:
            return True
        except BusUnavailable:
            self._reader.push_signal(Signal("gap"))
            await asyncio.sleep(_BUS_PAUSE_S)
        return False
