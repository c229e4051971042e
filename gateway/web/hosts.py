"""The ``Host`` check, in front of everything: a page whose name was rebound to this machine reaches nothing.

Owns which host names are served. Pure ASGI. Must never trust another header (``X-Forwarded-Host``) for it.
"""

from collections.abc import Collection, Iterable
from ipaddress import IPv6Address
from urllib.parse import urlsplit

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config.settings import LOOPBACK_HOSTS, Server
from gateway.model.errors import Code
from gateway.observe import metrics

PROBES = ("/healthz", "/readyz")
"""Served under any name: orchestrators ask for them by address, and they say nothing worth a rebinding."""


def served_hosts(server: Server) -> frozenset[str]:
    """``allowed_hosts``, or the host of ``public_url``, or the loopback names; as ``host_name`` writes them."""
    if server.allowed_hosts:
        return frozenset(name for value in server.allowed_hosts if (name := host_name(value)))
    if server.public_url:
        name = host_name(urlsplit(server.public_url).netloc)
        return frozenset((name,)) if name else frozenset()
    return frozenset(LOOPBACK_HOSTS)


def host_name(value: str) -> str | None:
    """The name in a ``Host`` header, lower case and without its port; ``None`` when it is not valid.

    IPv6 literals keep their brackets and are written in their shortest form; a name keeps a trailing dot, which makes
    it another name.
    """
    text = value.lower()
    if text.startswith("["):
        literal, bracket, rest = text[1:].partition("]")
        try:
            name = f"[{IPv6Address(literal)}]"
        except ValueError:
            return None
        colon, port = rest[:1], rest[1:]
        if not bracket or (rest and colon != ":"):
            return None
    else:
        name, _, port = text.partition(":")
    if not name or (port and not (port.isascii() and port.isdigit() and len(port) <= 5)):
        return None
    if any(character <= " " or character in "/?#@\\,%" or character > "~" for character in name):
        return None
    return name


class HostCheck:
    """Passes on requests and handshakes whose one ``Host`` header names a served host; refuses others with 421.

    A WebSocket is refused before it is accepted.
    """

    def __init__(self, app: ASGIApp, *, served: Collection[str], probes: Collection[str] = PROBES) -> None:
        self._app = app
        self._served = frozenset(served)
        self._probes = frozenset(probes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if (
            kind not in ("http", "websocket")
            or self._is_served(scope["headers"])
            or (kind == "http" and scope["path"] in self._probes)
        ):
            await self._app(scope, receive, send)
            return
        metrics.REFUSED.labels("host").inc()
        row = Code.HOST_FORBIDDEN.value
        body = msgspec.json.encode({"error": {"code": row.code, "message": row.message}})
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
        ]
        prefix = ""
        if kind == "websocket":
            if "websocket.http.response" not in scope.get("extensions", {}):
                await send({"type": "websocket.close", "code": 1008, "reason": row.code})
                return
            prefix = "websocket."
        await send({"type": f"{prefix}http.response.start", "status": row.status, "headers": headers})
        await send({"type": f"{prefix}http.response.body", "body": body})

    def _is_served(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        values = [value for name, value in headers if name == b"host"]
        return len(values) == 1 and host_name(values[0].decode("latin-1")) in self._served
