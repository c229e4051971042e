"""Our form of uvicorn's WebSocket connection: the close codes and bounds that ASGI has no word for.

Give the class to uvicorn as ``ws=``. It differs in five things. A frame beyond the bound closes with 4413 before it is
read whole, and the bound is the endpoint's to set (8 KiB before the first attach). A pong that does not come closes
with 4408. A connection that is closing is aborted after a while, however little its peer reads. A message
in very many fragments costs what one in one piece costs. Binary frames and bad
UTF-8 are as the protocol has them. Must never look into a message.
"""

import asyncio
import logging
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request
from websockets.server import ServerProtocol

from adapters.websocket.endpoint import EXTENSION
from adapters.websocket.protocol import Close

LINGER_S: Final = 10.0


class _Conn(ServerProtocol):
    def fail(self, code: int, reason: str = "") -> None:
        """A violation of RFC 6455; of these only the size has a code of ours."""
        if code == CloseCode.MESSAGE_TOO_BIG:
            code, reason = Close.TOO_LARGE.value
        super().fail(code, reason)


class SocketProtocol(WebSocketsSansIOProtocol):
    """One connection. The settings are uvicorn's: ``ws_max_size``, ``ws_ping_interval``, ``ws_ping_timeout``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _Conn(
            extensions=self.conn.available_extensions,
            max_size=self.config.ws_max_size,
            logger=logging.getLogger("uvicorn.error"),
        )

    def handle_connect(self, event: Request) -> None:
        """The handshake; the app finds ``set_max_size`` among the extensions."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][EXTENSION] = {"set_max_size": self._set_max_size}  # pyright: ignore

    def _set_max_size(self, size: int) -> None:
        self.conn.max_message_size = size

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
