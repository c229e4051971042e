"""The event stream (HTTP protocol, "The stream"). Owns the frames, the start position and what ends a stream.

The position is fixed before the head is sent, and the first frame is the cursor. An event is framed once for all who
read it. Whatever ends a stream, its place is given back by the code around it, never by a generator's end.
"""

import asyncio
import random
from typing import Final

from starlette.types import Receive, Send

from adapters.http.ask import Ask, position
from adapters.http.events import OLDEST
from gateway.auth.principals import TokenHolder
from gateway.bus.errors import BusUnavailable
from gateway.bus.log import Entry
from gateway.model.errors import Code, Refusal
from gateway.observe import metrics
from gateway.observe.log import get_logger
from gateway.services.feeds import Delta, Reader, Signal, Trimmed
from gateway.web.replies import Headers

log = get_logger("http.stream")

RETRY_MS: Final = 1_000
HEARTBEAT: Final = b": \n\n"
_BUS_PAUSE_S: Final = 0.5
_GONE: Final = Signal("disconnected")
_HEAD: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
)


class _Framer:
    """Frames of events. The readers of a feed are woken one behind the other, so the last one is what the next asks."""

    def __init__(self) -> None:
        self._last: tuple[Entry, bytes] | None = None

    def frame(self, entry: Entry) -> bytes:
        if self._last is not None and self._last[0] is entry:
            return self._last[1]
        framed = b"id: %d\ndata: %b\n\n" % (entry.seq, one_line(entry.event))
        self._last = (entry, framed)
        return framed


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

    async def write(self, send: Send, more: Headers = ()) -> None:
        """Sends until the client goes, the session or the right to read it ends, or this node drains."""
        watch: asyncio.Task[None] | None = None
        try:
            watch = self._http.tasks.spawn("http.stream.watch", self._watch(self._ask.receive))
            await self._begin(send, more)
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
            self._http.streams.remove(self._reader)

    def _abort(self) -> None:
        """Ends the connection without waiting for its buffers, where the server lets us."""
        abort = self._ask.scope.get("extensions", {}).get("toolrelay.abort")
        if abort is not None:
            abort()

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
        self._written = asyncio.get_running_loop().time()

    async def _follow(self, send: Send) -> None:
        reader = self._reader
        while True:
            try:
                what = await reader.next() if reader.behind else await self._wait()
            except BusUnavailable:
                what = None
                await asyncio.sleep(_BUS_PAUSE_S)
            match what:
                case list():
                    frames = [_framer.frame(entry) for entry in what]
                    await self._send(send, frames[0] if len(frames) == 1 else b"".join(frames))
                case Delta():
                    await self._send(send, b"event: delta\ndata: %b\n\n" % one_line(what.body))
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
        due = self._written + self._http.heartbeat_s - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(0.0, min(due, self._left_s()))):
                return await self._reader.next()
        except TimeoutError:
            return None

    async def _heartbeat(self, send: Send) -> None:
        if asyncio.get_running_loop().time() - self._written >= self._http.heartbeat_s:
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
