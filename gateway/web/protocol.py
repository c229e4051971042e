"""uvicorn's HTTP protocol, hardened. Owns what happens to a connection below its requests.

Peers that vanished are noticed, a head has a bound in bytes and in time, a body one in time, trailers are not kept,
what is no HTTP is answered in the envelope and is no line of the log, which a peer could fill. A handler can cut its
connection: a peer that does not read would hold its buffers for as long as it answers window probes, since
``transport.close`` waits for them.
"""

import asyncio
import contextlib
import logging
import socket
from http import HTTPStatus
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.model.errors import Code, Refusal
from gateway.observe import metrics
from gateway.web import bodies
from gateway.web.replies import envelope

HEAD_BYTES: Final = 64 * 1024
"""A request's line and headers; and what may come of a body that brings the body no further, as trailers do."""

HEAD_S: Final = 20.0
"""How long a head may take, from its first byte (or from the connection) to its last."""

BODY_S: Final = 2 * bodies.BODY_S
"""How long a body may take, whether or not anybody reads it: a route that takes none answers without it, and a refusal
(408 among them) goes out before the rest has come. Whoever reads it has given up by then."""

USER_TIMEOUT_MS: Final = 30_000
"""What was sent and not acknowledged for so long means that the peer is gone (Linux)."""

_KEEPALIVE: Final = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))

_logger: Final = logging.getLogger("uvicorn.error.http")
"""uvicorn's, without its warnings: each is about bytes that anybody may send as often as they like."""
_logger.setLevel(logging.ERROR)


def chunk(body: bytes) -> bytes:
    """A piece of an answer without a length, as it stands on the wire (RFC 9112, 7.1). An empty one would end it."""
    return b"%x\r\n%b\r\n" % (len(body), body)


class HttpProtocol(HttpToolsProtocol):
    """``scope["extensions"]["toolrelay.abort"]()`` ends the connection at once, whatever waits in its buffers.

    ``…["toolrelay.send_now"](chunks)`` writes whole chunks (``chunk``) of an answer that has begun, without waiting;
    false, and nothing is written, where ``send`` would wait.
    """

    _in_head = True
    _steps = 0  # heads that were whole, and pieces of bodies
    _stalled_bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _logger

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Sets the options that make the kernel notice a peer that vanished, and starts the head's time."""
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):  # a connection that is gone already has none
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in (*_KEEPALIVE, ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS)):
                    option = getattr(socket, name, None)
                    if option is not None:
                        sock.setsockopt(socket.IPPROTO_TCP, option, value)
        super().connection_made(transport)
        self._await(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._stop_timer()
        super().connection_lost(exc)

    def _await(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self.transport.abort()

    def _send_now(self, chunks: bytes) -> bool:
        cycle = self.cycle
        if cycle.disconnected or cycle.response_complete or self.flow.write_paused:
            return False
        if not (cycle.response_started and cycle.chunked_encoding):  # another request's, which waits behind ours
            return False
        self.transport.write(chunks)
        return True

    # --- what comes

    def data_received(self, data: bytes) -> None:
        """Parses, and counts what makes no head whole and no body longer."""
        steps, in_head = self._steps, self._in_head
        super().data_received(data)
        if steps != self._steps:
            self._stalled_bytes = 0
            return
        self._stalled_bytes += len(data)
        if self._stalled_bytes > HEAD_BYTES and not self.transport.is_closing():
            what = "headers" if in_head else "trailers"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the {what} have more than {HEAD_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the head. A trailer is nobody's business, and there is no end to how many may come."""
        if self._in_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """The body goes on."""
        self._steps += 1
        super().on_body(body)

    def handle_websocket_upgrade(self) -> None:
        """The connection is the socket's from here. It cannot be while a request before it still writes to it."""
        cycle = self._latest()
        if cycle is not None and not cycle.response_complete:
            self._refuse(HTTPStatus.BAD_REQUEST, "a socket cannot be opened behind a request that is not answered yet")
        else:
            super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        """Adds the extension to the request's scope; the head has its time from here."""
        super().on_message_begin()
        extensions: dict[str, Any] = {"toolrelay.abort": self.transport.abort, "toolrelay.send_now": self._send_now}
        self.scope["extensions"] = extensions  # pyright: ignore[reportGeneralTypeIssues]
        self._await(HEAD_S)

    def on_headers_complete(self) -> None:
        """The head is whole; its body has its time from here."""
        self._in_head = False
        self._steps += 1
        self._await(BODY_S)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """What comes next is another head."""
        self._in_head = True
        self._stop_timer()
        super().on_message_complete()

    # --- what is no request

    def send_400_response(self, msg: str) -> None:
        """What came is not HTTP. ``msg`` is uvicorn's own text; it is not shown."""
        metrics.REFUSED.labels("http").inc()
        self._refuse(HTTPStatus.BAD_REQUEST, "this is not a valid HTTP request")

    def _latest(self) -> RequestResponseCycle | None:
        """The last request whose head was whole."""
        return cast("RequestResponseCycle | None", self.cycle)

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        cycle = self._latest()
        if cycle is not None and cycle.response_started and not (self._in_head and cycle.response_complete):
            self.transport.abort()  # what is said now would stand in the middle of an answer, or be a second one
            return
        body = envelope(Refusal(Code.INVALID_REQUEST, message))
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
