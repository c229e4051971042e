"""An echo behind the server that we ship, for suites that test a WebSocket server and know no protocol above it.

Everything below the app is the gateway's own: uvicorn's settings, our connection class, our bounds but for the size of
a message, which the suite wants larger than any frame of ours.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send

from adapters.websocket.endpoint import EXTENSION
from gateway.config.settings import Server, Settings
from gateway.server import uvicorn_config

MESSAGE_BYTES = 16 * 1024 * 1024


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    assert scope["type"] == "websocket"
    extension: dict[str, Any] = scope["extensions"][EXTENSION]
    extension["set_max_size"](MESSAGE_BYTES)
    await receive()  # websocket.connect
    with contextlib.suppress(OSError):  # the peer went before it had read everything
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            text = message.get("text")
            if text is None:
                await send({"type": "websocket.send", "bytes": message["bytes"]})
            else:
                await extension["send_text"](text.encode())


@contextlib.asynccontextmanager
async def echo() -> AsyncGenerator[int]:
    """Serves on loopback: the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        config = uvicorn_config(Settings(server=Server(), agents=()), _echo)
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener])
        try:
            yield int(listener.getsockname()[1])
        finally:
            async with asyncio.timeout(10):
                await server.shutdown(sockets=[listener])
