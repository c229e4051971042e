"""One socket from its acceptance to its end: reading, the order of ops, answering, closing.

Owns what may run beside what. Ops of different sessions never wait for each other. Of one session, those that change
who it is to us (attach, register, resume …) hold up what comes behind them; lists, acks and answers are on their way to
Redis, in their order, before the next frame is read; input, cancel and approve have an order of their own, so that a
cancel that waits for its run's end holds up no answer. No task, timer or lock is made for an ack or an answer.
"""

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from adapters.websocket import protocol, wire
from adapters.websocket.attachments import Attachments
from adapters.websocket.operations import DIRECT, TALK, Operations, Peer
from adapters.websocket.outbound import Outbound
from adapters.websocket.protocol import BadAnswer, Close, Closing, Command, Machine, Rate
from adapters.websocket.services import SocketServices
from gateway.bus.errors import BusUnavailable
from gateway.bus.store import outcome, rfc3339
from gateway.model import limits
from gateway.model.errors import Code, Refusal
from gateway.observe.log import get_logger

log = get_logger("websocket")

Message = Any
Work = Command | BadAnswer

OPS: Final = 512
"""Ops of one socket that may be without an answer; the next frame is read when there is room."""
OP_BYTES: Final = 2 * limits.SOCKET_FRAME_BYTES
ANSWER_BYTES: Final = 256 * 1024
"""Answers that the peer has not taken; the next frame is read when it has."""
CLOSE_S: Final = 5.0


class Socket:
    """``receive`` and ``send`` are ASGI's, of a socket that was accepted. ``opened`` is called at the first success."""

    __slots__ = (
        "_close",
        "_gone",
        "_keepalive",
        "_lanes",
        "_listens",
        "_machine",
        "_op_bytes",
        "_opened",
        "_operations",
        "_ops",
        "_patience",
        "_receive",
        "_send",
        "_services",
        "_talks",
        "_waiting",
        "attachments",
        "outbound",
        "send_text",
    )

    def __init__(
        self,
        services: SocketServices,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
        peer: Peer,
        number: int,
        *,
        opened: Callable[[], None],
    ) -> None:
        self._services = services
        self._receive = receive
        self._send = send
        self.send_text: Callable[[bytes], Awaitable[None]] | None = None  # a server's own way, where it has one
        self._opened = opened
        self.outbound: Final = Outbound(self._send_frame, self._on_signal, services.tasks)
        self.outbound.on_room = self._room
        self.attachments: Final = Attachments(services, self.outbound, number)
        self._operations = Operations(services, self.attachments, peer)
        rate = Rate(services.frames_per_second, services.frame_burst)
        self._machine = Machine(self.attachments.by_session, self.attachments.held, rate)
        self._lanes: dict[str, deque[Work]] = {}  # sessions with an op under way that holds up the others
        self._talks: dict[str, deque[Work]] = {}
        self._ops = 0
        self._op_bytes = 0
        self._waiting: Future[None] | None = None
        self._keepalive: asyncio.TimerHandle | None = None
        self._patience: asyncio.Timeout | None = None
        self._close: Close | None = None
        self._listens = False  # the reading side waits for a frame, and for nothing else
        self._gone = False

    # --- life

    async def run(self) -> None:
        """Serves the socket until it is closed by whichever side."""
        writer = self._services.tasks.spawn("websocket.writer", self._write())
        try:
            async with asyncio.timeout(limits.SOCKET_ATTACH_S) as self._patience:
                await self._read()
        except TimeoutError:
            self._close = self._close or Close.NO_TOKEN
        except Closing as closing:
            self._close = self._close or closing.close
        finally:
            self._patience = None
            if self._keepalive is not None:
                self._keepalive.cancel()
            self.attachments.close()
            self.outbound.finish()
            if self._gone:
                writer.cancel()
            await asyncio.wait({writer}, timeout=CLOSE_S)
            writer.cancel()
        if self._close is not None and not self._gone:
            await self._say_close(self._close)

    def close(self, close: Close) -> None:
        """Closes the socket soon."""
        self._close = self._close or close
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def _say_close(self, close: Close) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._send({"type": "websocket.close", "code": close.code, "reason": close.reason})
        except (OSError, TimeoutError):
            return  # the peer went first, or reads nothing any more

    async def _write(self) -> None:
        try:
            await self.outbound.run()
        except OSError:  # the peer is gone; the reading side hears of it too
            self.outbound.finished = True
            self._room()

    async def _send_frame(self, frame: bytes) -> None:
        if self.send_text is not None:
            await self.send_text(frame)
        else:
            await self._send({"type": "websocket.send", "text": frame.decode()})

    def _keep_alive(self) -> None:
        self._keepalive = asyncio.get_running_loop().call_later(limits.KEEPALIVE_S, self._keep_alive)
        if self.outbound.bytes_waiting == 0:  # a peer that does not read needs no more of them
            self.outbound.answer(protocol.keepalive(rfc3339(self._services.now_ms())))

    def _on_signal(self, attachment: Any, signal: Any) -> None:
        self.attachments.on_signal(attachment, signal)

    # --- reading

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        while self._close is None:
            self._listens = True
            try:
                message = await self._receive()
            finally:
                self._listens = False
            if message["type"] == "websocket.disconnect":
                self._gone = True
                return
            text = message.get("text")
            if text is None:
                raise Closing(Close.MALFORMED)
            what = self._machine.receive(text.encode(), loop.time())
            if isinstance(what, bytes) or self._machine.open:
                self._received(what)
            else:
                await self._before_attach(what)
            while self._full():
                self._waiting = loop.create_future()
                await self._waiting
            del message, text, what  # the next one may be long in coming, or never come this way

    def take(self, frame: bytes) -> bool:
        """A text frame, past ``receive``: false while it has to come that way, since something else is in hand, or
        there is no room."""
        if not self._listens or not self._machine.open or self._full():
            return False
        if self._close is None:
            try:
                self._received(self._machine.receive(frame, asyncio.get_running_loop().time()))
            except Closing as closing:
                self.close(closing.close)
        return True

    def _received(self, what: Work | bytes) -> None:
        if isinstance(what, bytes):
            self.outbound.answer(what)
            return
        self._ops += 1
        self._op_bytes += what.size
        self._submit(what)

    def _full(self) -> bool:
        if self.outbound.finished:
            return False
        return self._ops >= OPS or self._op_bytes > OP_BYTES or self.outbound.bytes_waiting > ANSWER_BYTES

    def _room(self) -> None:
        if self._waiting is not None and not self._waiting.done() and not self._full():
            self._waiting.set_result(None)

    async def _before_attach(self, what: Work) -> None:
        """One after the other: the first attach decides whether the socket stays. Raises Closing."""
        if not (isinstance(what, Command) and isinstance(what.op, wire.Attach)):
            self._answer(what, await self._done(what))
            return
        try:
            body, session_id = await self._operations.attach(what.op, what.session_id)
        except Refusal as why:
            if why.code is Code.ORIGIN_FORBIDDEN:
                raise Closing(Close.ORIGIN) from None
            if why.code is Code.NOT_FOUND:
                raise Closing(Close.REFUSED) from None
            if why.code is Code.TOO_MANY_REQUESTS:
                raise Closing(Close.FAILURES) from None
            self.outbound.answer(protocol.error(what.op.id, why))
            return
        except BusUnavailable as error:
            log.warning("the bus is away", error=error)
            self.outbound.answer(protocol.error(what.op.id, Refusal(Code.BUS_UNAVAILABLE)))
            if self._patience is not None:  # not the client's fault: it may try once more
                self._patience.reschedule(asyncio.get_running_loop().time() + limits.SOCKET_ATTACH_S)
            return
        self._machine.open = True
        if self._patience is not None and self._close is None:
            self._patience.reschedule(None)
        self._opened()
        self._keepalive = asyncio.get_running_loop().call_later(limits.KEEPALIVE_S, self._keep_alive)
        self.outbound.answer(protocol.ok(what.op.id, body))
        self.outbound.start(self.attachments.by_session[session_id])

    # --- the order of ops

    def _submit(self, what: Work) -> None:
        lane = self._lanes.get(what.session_id)
        if lane is not None:
            lane.append(what)
            return
        op = what.op if isinstance(what, Command) else None
        if isinstance(op, DIRECT) and isinstance(what, Command):
            self._begin(what)
        elif isinstance(op, TALK):
            self._talk(what)
        elif isinstance(op, wire.Ping):
            self._finish(what, protocol.ok(op.id, wire.Time(rfc3339(self._services.now_ms()))))
        else:
            self._hold_others_up(what)

    def _hold_others_up(self, what: Work) -> None:
        """In its turn, and whatever comes for its session waits for it."""
        lane = self._lanes.get(what.session_id)
        if lane is not None:
            lane.append(what)
            return
        self._lanes[what.session_id] = deque()
        self._services.tasks.spawn("websocket.op", self._hold_up(what))

    def _begin(self, command: Command) -> None:
        try:
            sent = self._operations.begin(command)
        except Refusal as why:
            self._finish(command, protocol.error(command.op.id, why))
        except Exception as error:
            self._finish(command, self._unforeseen(command, error))
        else:
            sent.add_done_callback(partial(self._settled, command))

    def _settled(self, command: Command, sent: "Future[object]") -> None:
        try:
            answer = protocol.ok(command.op.id, self._operations.settled(command, outcome(sent)))
        except Refusal as why:
            answer = protocol.error(command.op.id, why)
        except (BusUnavailable, asyncio.CancelledError):
            self._hold_others_up(command)  # the bus is away: this one waits for it, and those behind it wait too
            return
        except Exception as error:
            answer = self._unforeseen(command, error)
        self._finish(command, answer)

    async def _hold_up(self, what: Work) -> None:
        try:
            self._answer(what, await self._done(what))
        finally:
            waiting = self._lanes.pop(what.session_id)
            while waiting:
                self._submit(waiting.popleft())  # the first that holds up again gets the rest behind it

    def _talk(self, what: Work) -> None:
        lane = self._talks.get(what.session_id)
        if lane is not None:
            lane.append(what)
            return
        self._talks[what.session_id] = deque()
        self._services.tasks.spawn("websocket.talk", self._talk_on(what))

    async def _talk_on(self, what: Work) -> None:
        lane = self._talks[what.session_id]
        try:
            self._answer(what, await self._done(what))
            while lane:
                following = lane.popleft()
                self._answer(following, await self._done(following))
        finally:
            del self._talks[what.session_id]

    # --- answers

    async def _done(self, what: Work) -> bytes:
        """Does an op and makes the frame that answers it. Raises nothing but a cancel."""
        number = what.op.id if isinstance(what, Command) else what.id
        try:
            if isinstance(what, Command) and isinstance(what.op, wire.Attach):
                body, session_id = await self._operations.attach(what.op, what.session_id)
                self.outbound.answer(protocol.ok(number, body))
                if (attachment := self.attachments.by_session.get(session_id)) is not None:
                    self.outbound.start(attachment)
                return b""
            return protocol.ok(number, await self._operations.perform(what))
        except Refusal as why:
            return protocol.error(number, why)
        except BusUnavailable as error:
            log.warning("the bus is away", error=error)
            return protocol.error(number, Refusal(Code.BUS_UNAVAILABLE))
        except Exception as error:
            return self._unforeseen(what, error)

    def _unforeseen(self, what: Work, error: Exception) -> bytes:
        log.error("an op failed in an unforeseen way", error=error)
        return protocol.error(what.op.id if isinstance(what, Command) else what.id, Refusal(Code.INTERNAL))

    def _answer(self, what: Work, frame: bytes) -> None:
        if self._machine.open:
            self._finish(what, frame)
        else:
            self.outbound.answer(frame)

    def _finish(self, what: Work, frame: bytes) -> None:
        self._ops -= 1
        self._op_bytes -= what.size
        if frame:
            self.outbound.answer(frame)
        self._room()
