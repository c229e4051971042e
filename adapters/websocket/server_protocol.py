"""Our form of uvicorn's WebSocket connection: the close codes and bounds that ASGI has no word for.

Give the class to uvicorn as ``ws=``. It differs in ten things. A request for a socket that cannot be read is answered
and its connection closed. A frame beyond the bound closes with 4413 before it is read whole, and the bound is the
endpoint's to set (8 KiB before the first attach). A pong that does not come closes with 4408. A peer that pings and
does not read gets no more pongs, which would pile up. A connection that is closing is aborted after a while, however
little its peer reads. A message in very many fragments costs what one in one piece costs. Text that is no UTF-8 closes
with 1007 and is no line of the log, which a peer could fill. Binary frames are as the protocol has them. What is sent
in one turn of the loop is one write. A text frame goes straight to an endpoint that takes it, past ASGI's queue and the
pause of reading that each message costs there. Must never look into a message.
"""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final
from weakref import WeakKeyDictionary

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from adapters.websocket.endpoint import EXTENSION
from adapters.websocket.framing import framed
from adapters.websocket.idle import Gate, Messages
from adapters.websocket.protocol import Close

LINGER_S: Final = 10.0
WRITE_BYTES: Final = 64 * 1024
"""So much waits for the turn's end at most; then it is written, so that the transport can say that it has enough."""

_WRITERS: Final = 64
"""So many connections wait for the turn's end at most: of an event's readers the first have it before the last are
looked at."""


class _Turn:
    """The connections with something to write in this turn of a loop: one callback for all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._writers: list[SocketProtocol] = []

    def add(self, writer: "SocketProtocol") -> None:
        """It writes at the turn's end, or a little earlier."""
        if not self._writers:
            self._loop.call_soon(self._write)
        self._writers.append(writer)
        if len(self._writers) >= _WRITERS:
            self._write()

    def _write(self) -> None:
        writers, self._writers = self._writers, []
        for writer in writers:
            try:
                writer.write()
            except Exception as error:  # whatever is wrong with one connection, the others have what is theirs
                self._loop.call_exception_handler({"message": "a socket could not be written", "exception": error})


_turns: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Turn]] = WeakKeyDictionary()


class _Conn(ServerProtocol):
    def __init__(self, *args: Any, writable: Gate, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._writable = writable

    def send_frame(self, frame: Frame) -> None:
        """A frame of ours. Pongs are the only ones that a peer can order, and it may read none of them."""
        if frame.opcode is not Opcode.PONG or self._writable.is_set():
            super().send_frame(frame)

    def fail(self, code: int, reason: str = "") -> None:
        """A violation of RFC 6455; of these only the size has a code of ours."""
        if code == CloseCode.MESSAGE_TOO_BIG:
            code, reason = Close.TOO_LARGE.value
        super().fail(code, reason)


class SocketProtocol(WebSocketsSansIOProtocol):
    """One connection. The settings are uvicorn's: ``ws_max_size``, ``ws_ping_interval``, ``ws_ping_timeout``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queue = Messages()  # pyright: ignore[reportIncompatibleVariableOverride, reportAttributeAccessIssue]
        self.writable = Gate()  # pyright: ignore[reportIncompatibleVariableOverride, reportAttributeAccessIssue]
        self._unwritten = 0  # bytes of text frames that wait for the end of this turn of the loop
        self._turn = _turns.get(self.loop) or _turns.setdefault(self.loop, _Turn(self.loop))
        self._take: Callable[[bytes], bool] | None = None
        self.conn = _Conn(
            extensions=self.conn.available_extensions,
            max_size=self.config.ws_max_size,
            logger=logging.getLogger("uvicorn.error"),
            writable=self.writable,
        )

    def data_received(self, data: bytes) -> None:
        """Bytes of the peer. The first of them are a whole head, and the library has no event for one that it refuses:
        the peer would wait for ever."""
        super().data_received(data)
        if not self.handshake_initiated:
            self._refuse_head()

    def _refuse_head(self) -> None:
        answer = b"".join(self.conn.data_to_send())
        if not answer:  # it had a body
            answer = self.conn.reject(HTTPStatus.BAD_REQUEST, "this request cannot become a socket\n").serialize()
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        self.transport.write(answer)
        self.transport.close()

    def handle_connect(self, event: Request) -> None:
        """The handshake; the app finds ``set_max_size`` among the extensions."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            extension: dict[str, Any] = {
                "set_max_size": self._set_max_size,
                "send_text": self.send_text,
                "take_by": self._take_by,
            }
            if not self.conn.extensions:
                extension["send_now"] = self.send_now
            self.scope["extensions"][EXTENSION] = extension  # pyright: ignore

    def start_keepalive(self) -> None:
        """The handshake is over, and whoever asked has what it said: 5 KiB of headers are kept by nobody."""
        super().start_keepalive()
        self.request.headers.clear()
        self.response.headers.clear()
        self.scope["headers"], self.scope["subprotocols"] = [], []
        self.scope["extensions"].pop(EXTENSION, None)  # pyright: ignore

    def _set_max_size(self, size: int) -> None:
        self.conn.max_message_size = size

    def _take_by(self, take: Callable[[bytes], bool]) -> None:
        self._take = take

    def send_receive_event_to_app(self) -> None:
        """A whole message: to who takes it, else by ASGI's queue, behind whatever waits there. None after our close."""
        message, self.frames = b"".join(self.frames), []
        if self.close_sent:
            return
        if self.curr_msg_data_type == "bytes":
            self.queue.put_nowait({"type": "websocket.receive", "bytes": message})
        elif not _is_utf8(message):
            self.conn.fail(CloseCode.INVALID_DATA)
            self.handle_parser_exception()
            return
        elif self._take is not None and self.queue.empty() and self._take(message):
            return
        else:
            self.queue.put_nowait({"type": "websocket.receive", "text": message.decode()})
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    async def send(self, message: Any) -> None:
        """ASGI's. A refusal is a handshake that has ended, which uvicorn does not see and logs as a fault of ours."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True

    async def send_text(self, data: bytes) -> None:
        """A text frame of UTF-8. Raises ClientDisconnected, as ``send`` does."""
        if not self.writable.is_set():
            await self.writable.wait()
        if self.disconnected or self.close_sent or self.conn.state is not State.OPEN:
            raise ClientDisconnected
        if self.conn.extensions:
            self.conn.send_text(data)
            self._put(self.conn.writes.pop())
        else:
            self._put(framed(data))

    def send_now(self, frames: bytes) -> bool:
        """Whole frames without waiting; false, and nothing is sent, where ``send_text`` would wait or raise."""
        if self.disconnected or self.close_sent or not self.writable.is_set() or self.conn.state is not State.OPEN:
            return False
        self._put(frames)
        return True

    def _put(self, frames: bytes) -> None:
        self.conn.writes.append(frames)
        first = not self._unwritten
        self._unwritten += len(frames)
        if self._unwritten > WRITE_BYTES:
            self.write()
        elif first:
            self._turn.add(self)

    def write(self) -> None:
        """Writes what waits. Whoever else writes takes it along, in its order; then there is nothing left here."""
        self._unwritten = 0
        data = b"".join(self.conn.data_to_send())
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def handle_cont(self, event: Frame) -> None:
        """A fragment. Each would be an object of its own, and a message may come in millions of them."""
        head = self.frames[0]
        if not isinstance(head, bytearray):
            head = bytearray(head)
            self.frames = [head]  # pyright: ignore[reportAttributeAccessIssue]
        head += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        """No pong in time: the peer is gone, or reads nothing."""
        self.pong_timer = None
        self.pending_ping_payload = None
        if self.close_sent or self.transport.is_closing():
            return
        code, reason = Close.NO_PONG.value
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.conn.fail(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.close()
        self._abort_later()

    def on_task_complete(self, task: "asyncio.Task[None]") -> None:
        """The app has ended: what is still to be said has so long."""
        super().on_task_complete(task)
        self._abort_later()

    def _abort_later(self) -> None:
        if not self.disconnected:
            self.loop.call_later(LINGER_S, self._abort)

    def _abort(self) -> None:
        if not self.disconnected:
            self.transport.abort()


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
