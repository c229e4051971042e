"""uvicorn's HTTP protocol, hardened. Owns what happens to a connection below its requests.

Peers that vanished are noticed, a head has a bound in bytes and in time, a body one in time, what is no HTTP is
answered in the envelope, and a handler can cut its connection: a peer that does not read would hold its buffers for as
long as it answers window probes, since ``transport.close`` waits for them.
"""

import asyncio
import contextlib
import socket
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.model.errors import Code, Refusal
from gateway.web import bodies
from gateway.web.replies import envelope

HEAD_BYTES: Final = 64 * 1024
"""A request's line and headers."""

HEAD_S: Final = 20.0
"""How long a head may take, from its first byte (or from the connection) to its last."""

BODY_S: Final = 2 * bodies.BODY_S
"""How long a body may take, whether or not anybody reads it: a route that takes none answers without it, and a refusal
(408 among them) goes out before the rest has come. Whoever reads it has given up by then."""

USER_TIMEOUT_MS: Final = 30_000
"""What was sent and not acknowledged for so long means that the peer is gone (Linux)."""

_KEEPALIVE: Final = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


class HttpProtocol(HttpToolsProtocol):
    """``scope["extensions"]["toolrelay.abort"]()`` ends the connection at once, whatever waits in its buffers."""

    _in_head = True
    _heads = 0
    _head_bytes = 0
    _timer: asyncio.TimerHandle | None = None

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

    # --- what comes

    def data_received(self, data: bytes) -> None:
        """Parses, and counts what belongs to a head that is not whole yet."""
        in_head, heads = self._in_head, self._heads
        super().data_received(data)
        if not in_head or heads != self._heads or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the headers have more than {HEAD_BYTES} bytes")

    def on_message_begin(self) -> None:
        """Adds the extension to the request's scope; the head has its time from here."""
        super().on_message_begin()
        extensions: dict[str, Any] = {"toolrelay.abort": self.transport.abort}
        self.scope["extensions"] = extensions  # pyright: ignore[reportGeneralTypeIssues]
        self._await(HEAD_S)

    def on_headers_complete(self) -> None:
        """The head is whole; its body has its time from here."""
        self._in_head = False
        self._heads += 1
        self._head_bytes = 0
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
        self._refuse(HTTPStatus.BAD_REQUEST, "this is not a valid HTTP request")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        body = envelope(Refusal(Code.INVALID_REQUEST, message))
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
