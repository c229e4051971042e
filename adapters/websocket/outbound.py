"""The one writer of a socket: answers first, then the events of all attached sessions in turn.

Owns the order of frames and what waits. Events do not wait here: each attachment's reader has a place in its session's
log, and only what is being sent is taken from there (the session's shared ring, or at most two pages of the log at a
time). So a peer that reads slowly costs its answers and its place. It loses deltas first; an attachment whose events
came faster than they could be sent, by more than 2 MiB, is moved on with ``reset`` (websocket protocol, "Pressure").
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from adapters.websocket import protocol
from adapters.websocket.framing import Framer, framed
from gateway.auth.principals import Principal
from gateway.bus.errors import BusUnavailable
from gateway.bus.log import Entry
from gateway.model import limits
from gateway.model.errors import Refusal
from gateway.observe import metrics
from gateway.observe.log import get_logger
from gateway.services.feeds import Reader
from gateway.services.pushes import Delta, Signal, Trimmed
from gateway.services.tasks import Tasks

log = get_logger("websocket")

_AT_ONCE: Final = 16  # events of a reader that is caught up; more go by the writer, which waits for the peer
_PAGES: Final = 2  # pages of logs that wait for this socket at a time
_AGAIN_S: Final = 0.25

_framer: Final = Framer()


class Attachment:
    """A session that a socket reads. ``sent`` is its place: the seq of the last event that went out."""

    __slots__ = (
        "closed",
        "credential",
        "head",
        "page",
        "principal",
        "reader",
        "sent",
        "session_id",
        "started",
    )

    def __init__(self, session_id: str, principal: Principal, credential: str) -> None:
        self.session_id: Final = session_id
        self.head: Final = protocol.push_head(session_id)
        self.principal = principal
        self.credential = credential  # asked about again when a revocation may have been missed
        self.reader: Reader | None = None
        self.sent = 0
        self.page: list[Entry] | Trimmed | None = None
        self.started = False  # nothing goes out before the attach is answered
        self.closed = False


class Outbound:
    """``send`` takes one frame; ``on_signal`` is told at once, whatever the writer is at.

    ``send_now``, where the server has it, takes whole frames without waiting, or says that it does not. While nothing
    waits here frames go that way, so an answer or an event to a peer that reads costs no turn of the writer's task.
    """

    __slots__ = (
        "_fetching",
        "_on_signal",
        "_outbox",
        "_send",
        "_tasks",
        "_turns",
        "_waiting",
        "_wanted",
        "bytes_waiting",
        "finished",
        "on_room",
        "send_now",
    )

    def __init__(
        self, send: Callable[[bytes], Awaitable[None]], on_signal: Callable[[Attachment, Signal], None], tasks: Tasks
    ) -> None:
        self.finished = False
        self.bytes_waiting = 0  # of answers
        self.on_room: Callable[[], None] | None = None
        self.send_now: Callable[[bytes], bool] | None = None
        self._send = send
        self._on_signal = on_signal
        self._tasks = tasks
        # Most sockets are idle, and an empty deque takes ten times what an empty list does, a set three times a dict.
        self._outbox: list[bytes] = []
        self._turns: dict[Attachment, None] = {}
        self._waiting: asyncio.Future[None] | None = None
        self._fetching: dict[Attachment, None] = {}
        self._wanted: dict[Attachment, None] = {}

    # --- what is to be sent

    def answer(self, frame: bytes) -> None:
        """An answer, or a push that is no event. It goes before events."""
        if self.finished or (self._idle and self.send_now is not None and self.send_now(framed(frame))):
            return
        self._outbox.append(frame)
        self.bytes_waiting += len(frame)
        self._wake()

    def start(self, attachment: Attachment) -> None:
        """The attach has been answered: its events may follow."""
        attachment.started = True
        self.ready(attachment)

    def ready(self, attachment: Attachment) -> None:
        """An attachment's reader may have something."""
        reader = attachment.reader
        if not attachment.started or attachment.closed or reader is None:
            return
        while (signal := reader.take_signal()) is not None:
            self._on_signal(attachment, signal)
            if attachment.closed:
                return
        if attachment not in self._turns and not (self._idle and self._sent_at_once(attachment, reader)):
            self._turns[attachment] = None
            self._wake()

    @property
    def _idle(self) -> bool:
        """Whether everything has gone out, and the writer waits."""
        return (
            not (self._outbox or self._turns or self._fetching or self.finished)
            and self._waiting is not None
            and not self._waiting.done()
        )

    def _sent_at_once(self, attachment: Attachment, reader: Reader) -> bool:
        """Sends the little that a reader is behind; false when the writer is needed for it."""
        send_now = self.send_now
        if send_now is None or reader.head - reader.position > _AT_ONCE:
            return False
        while (what := reader.poll()) is not None:
            if isinstance(what, list):
                for last, frames in _framer.pieces(attachment.head, what):
                    if not send_now(frames):
                        reader.position = attachment.sent  # what did not go is the writer's to send
                        return False
                    attachment.sent = last
            elif isinstance(what, Delta):
                if not send_now(_framer.delta(attachment.head, what)):
                    return False
            else:
                self._on_signal(attachment, what)
        return not reader.must_read

    def forget(self, attachment: Attachment) -> None:
        """An attachment has ended: nothing more of it goes out."""
        attachment.closed = True
        attachment.page = None
        self._wanted.pop(attachment, None)
        self._release(attachment)

    def finish(self) -> None:
        """``run`` returns once the answers that wait are sent."""
        self.finished = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # --- the writer

    async def run(self) -> None:
        """Writes until ``finish``. Raises what ``send`` raises when the peer is gone."""
        loop = asyncio.get_running_loop()
        while True:
            if self._outbox:
                await self._flush()
            elif self.finished:
                return
            elif self._turns:
                attachment = next(iter(self._turns))
                del self._turns[attachment]
                await self._turn(attachment)
            else:
                self._waiting = loop.create_future()
                await self._waiting
                self._waiting = None

    async def _flush(self) -> None:
        while self._outbox:
            frames, self._outbox = self._outbox, []
            for frame in frames:
                await self._send(frame)
                self.bytes_waiting -= len(frame)
            if self.on_room is not None:
                self.on_room()

    async def _turn(self, attachment: Attachment) -> None:
        """Sends what comes next of one session, at most what its ring or one page holds."""
        reader = attachment.reader
        if attachment.closed or reader is None:
            return
        if attachment in self._fetching:
            if (page := attachment.page) is None:
                return  # its arrival makes another turn
            attachment.page = None
            await self._push(attachment, page)
            self._release(attachment)
        elif reader.must_read and reader.lag_bytes > limits.SOCKET_QUEUE_BYTES:
            metrics.READERS_DROPPED.labels("websocket").inc()
            attachment.sent = reader.skip()
            await self._send(protocol.reset(attachment.head, attachment.sent))
        elif (what := reader.poll()) is not None:
            await self._push(attachment, what)
        elif reader.must_read:
            self._wanted[attachment] = None
            self._fetch_more()
            return
        if not attachment.closed and reader.behind:
            self.ready(attachment)

    async def _push(self, attachment: Attachment, what: list[Entry] | Delta | Signal | Trimmed) -> None:
        match what:
            case list():
                for entry in what:
                    if self._outbox:
                        await self._flush()
                    if attachment.closed:
                        return
                    await self._send(protocol.event(attachment.head, entry.event))
                    attachment.sent = entry.seq
            case Delta(body=body):
                await self._send(protocol.delta(attachment.head, body))
            case Trimmed(oldest):
                attachment.sent = oldest - 1
                await self._send(protocol.reset(attachment.head, attachment.sent))
            case Signal():
                self._on_signal(attachment, what)

    # --- pages of logs: few at a time, so that a slow peer with many sessions costs little

    def _fetch_more(self) -> None:
        while self._wanted and len(self._fetching) < _PAGES:
            attachment = next(iter(self._wanted))
            del self._wanted[attachment]
            self._fetching[attachment] = None
            self._tasks.spawn("websocket.page", self._fetch(attachment))

    async def _fetch(self, attachment: Attachment) -> None:
        reader = attachment.reader
        try:
            if reader is not None and not attachment.closed:
                page = await reader.read()
                if not attachment.closed:
                    attachment.page = page
        except (BusUnavailable, Refusal) as error:
            log.warning("a page of a log could not be read", session_id=attachment.session_id, error=error)
            await asyncio.sleep(_AGAIN_S)
        finally:
            if attachment.page is None:
                self._release(attachment)
            self.ready(attachment)

    def _release(self, attachment: Attachment) -> None:
        self._fetching.pop(attachment, None)
        if not self.finished:
            self._fetch_more()
