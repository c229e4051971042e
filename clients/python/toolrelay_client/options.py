"""How a gateway is found and a token is had; what takes a registration up again."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

Token = str | Callable[[], str | Awaitable[str]]
TOKEN_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Registration:
    """What takes a registration up again, in another process too. ``resume_key`` is a secret."""

    client_id: str
    resume_key: str


def socket_url(url: str) -> str:
    """The address of the socket. Raises ValueError."""
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    if scheme not in ("ws", "wss") or not parts.netloc:
        raise ValueError("the gateway's address is not http(s) or ws(s)")
    path = parts.path if parts.path.endswith("/v1/ws") else f"{parts.path.rstrip('/')}/v1/ws"
    return urlunsplit((scheme, parts.netloc, path, "", ""))


async def fetch(token: Token) -> str:
    """The token. Raises TimeoutError after 15 seconds, and whatever the function raises."""
    if isinstance(token, str):
        return token
    async with asyncio.timeout(TOKEN_S):
        made = token()
        return await made if inspect.isawaitable(made) else made
