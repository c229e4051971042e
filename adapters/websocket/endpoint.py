"""``GET /v1/ws`` as an ASGI app: the handshake, and all sockets of this node. Owns who gets in and the drain.

A credential may come in three ways: in the first ``attach`` (the usual one), in an ``Authorization`` header, or as a
second offered subprotocol ``bearer.<base64url of the token>``, which is never echoed. Never in the address: that is
logged by everybody on the way.
"""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any, Final

import msgspec
from starlette.types import Receive, Scope, Send

from adapters.websocket.operations import Peer
from adapters.websocket.protocol import Close
from adapters.websocket.services import SocketServices
from adapters.websocket.socket import Socket
from adapters.websocket.wire import SUBPROTOCOL
from gateway.model import limits
from gateway.model.errors import Code, Refusal
from gateway.observe import metrics

__all__ = ["SocketServices", "Sockets", "endpoint"]

EXTENSION: Final = "toolrelay.socket"
"""An ASGI extension of our own server: ``set_max_size(bytes)``, so that a frame is refused before it is read;
``send_text(bytes)``, so that a text is neither decoded nor encoded again on its way out; ``send_now(bytes)``, which
takes whole frames and says whether they go without waiting (not there where frames are compressed);
``take_by(take)``, where ``take(bytes)`` says whether it took a message that came."""

_BEARER: Final = "bearer."


class Sockets:
    """All sockets of this node; an instance is the ASGI app of the route."""

    def __init__(self, services: SocketServices) -> None:
        self._services = services
        self.open: Final[set[Socket]] = set()
        self._numbers = count(1)
        self._draining = False
        self._empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self.open)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one socket."""
        await receive()  # websocket.connect
        try:
            peer, subprotocol = self._admit(scope)
        except Refusal as why:
            await _refuse(scope, send, why)
            return
        socket = self._socket(scope, receive, send, peer)
        self.open.add(socket)
        self._empty.clear()
        metrics.SOCKETS.inc()
        try:
            await send({"type": "websocket.accept", "subprotocol": subprotocol})
            await socket.run()
        except OSError:
            return  # the peer went while it was accepted
        finally:
            self.open.discard(socket)
            metrics.SOCKETS.dec()
            if not self.open:
                self._empty.set()

    def _socket(self, scope: Scope, receive: Receive, send: Send, peer: Peer) -> Socket:
        extension: dict[str, Any] = scope.get("extensions", {}).get(EXTENSION, {})
        set_max_size = extension.get("set_max_size", _as_it_is)
        set_max_size(limits.SOCKET_FRAME_BYTES_BEFORE_ATTACH)
        opened = partial(set_max_size, limits.SOCKET_FRAME_BYTES)
        socket = Socket(self._services, receive, send, peer, next(self._numbers), opened=opened)
        socket.send_text = extension.get("send_text")
        socket.outbound.send_now = extension.get("send_now")
        extension.get("take_by", _as_it_is)(socket.take)
        return socket

    def _admit(self, scope: Scope) -> tuple[Peer, str | None]:
        """Raises Refusal."""
        if self._draining:
            raise Refusal(Code.DRAINING)
        if len(self.open) >= self._services.settings.limits.max_sockets:
            metrics.REFUSED.labels("sockets").inc()
            raise Refusal(Code.TOO_MANY_REQUESTS, "this node has as many sockets as it may")
        offered: list[str] = scope.get("subprotocols", [])
        if offered and SUBPROTOCOL not in offered:
            raise Refusal(Code.INVALID_REQUEST, f"the subprotocol is {SUBPROTOCOL}")
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        credential = _header_credential(_values(headers, b"authorization")) or _offered_credential(offered)
        origin = _values(headers, b"origin")
        host = _values(headers, b"host")
        if len(origin) > 1 or len(host) > 1:
            raise Refusal(Code.INVALID_REQUEST)
        peer = Peer(credential, origin[0] if origin else None, host[0] if host else "", _address(scope))
        return peer, SUBPROTOCOL if offered else None

    async def drain(self, timeout_s: float = 5.0) -> None:
        """Closes every socket with 1012 and waits until all are gone, at most ``timeout_s``. New ones get a 503."""
        self._draining = True
        for socket in list(self.open):
            socket.close(Close.GOING_AWAY)
        if self.open:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._empty.wait()
            except TimeoutError:
                return


def endpoint(services: SocketServices) -> Sockets:
    """The app for ``WebSocketRoute("/v1/ws", …)``; ``drain`` is the composition root's to call."""
    return Sockets(services)


def _as_it_is(_: object) -> None:
    """What a server that is not ours does with what it does not know."""


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _values(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]


def _header_credential(values: Sequence[str]) -> str | None:
    if not values:
        return None
    scheme, _, token = values[0].partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise Refusal(Code.UNAUTHORIZED)
    return token.strip()


def _offered_credential(offered: Sequence[str]) -> str | None:
    found = [item.removeprefix(_BEARER) for item in offered if item.startswith(_BEARER)]
    if not found:
        return None
    if len(found) > 1:
        raise Refusal(Code.INVALID_REQUEST, "more than one bearer subprotocol")
    text = found[0].rstrip("=")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return raw.decode("ascii")
    except (binascii.Error, ValueError):
        raise Refusal(Code.UNAUTHORIZED) from None


async def _refuse(scope: Scope, send: Send, why: Refusal) -> None:
    """Refuses before the socket is accepted: an HTTP answer where the server can give one."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": why.envelope_code})
        return
    body = msgspec.json.encode({"error": {"code": why.envelope_code, "message": why.message}})
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    if why.retry_after_s is not None:
        headers.append((b"retry-after", str(why.retry_after_s).encode()))
    await send({"type": "websocket.http.response.start", "status": why.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
