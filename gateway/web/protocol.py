"""uvicorn's HTTP protocol with two things more: peers that vanished are noticed, and a handler can cut a connection.

Owns socket options of accepted connections. A peer that does not read would hold its buffers for as long as it answers
window probes: ``transport.close`` waits for them, so streams need an abort of their own.
"""

import asyncio
import contextlib
import socket
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

USER_TIMEOUT_MS: Final = 30_000
"""What was sent and not acknowledged for so long means that the peer is gone (Linux)."""
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


class HttpProtocol(HttpToolsProtocol):
    """``scope["extensions"]["toolrelay.abort"]()`` ends the connection at once, whatever waits in its buffers."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Sets the options that make the kernel notice a peer that vanished."""
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):  # a connection that is gone already has none
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in (*_KEEPALIVE, ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS)):
                    option = getattr(socket, name, None)
                    if option is not None:
                        sock.setsockopt(socket.IPPROTO_TCP, option, value)
        super().connection_made(transport)

    def on_message_begin(self) -> None:
        """Adds the extension to the request's scope."""
        super().on_message_begin()
        extensions: dict[str, Any] = {"toolrelay.abort": self.transport.abort}
        self.scope["extensions"] = extensions  # pyright: ignore[reportGeneralTypeIssues]
