"""Clients that cost next to nothing: RFC 6455, and an event stream, as far as two peers on loopback need them.

Own frames and the handshake of one connection; every text frame, or block of a stream, is handed to a plain function.
Frames are masked with zeroes, so that sending is a header and the bytes. The load is one process with all sockets, so
its own cost must not be what is measured.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import cast

HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: toolrelay.v1\r\n\r\n"
)

STREAM = (
    "GET /v1/sessions/{session_id}/events/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    "Authorization: Bearer {token}\r\n\r\n"
)


class Socket(asyncio.Protocol):
    """One connection; ``on_text`` gets each whole message. ``opened`` is done after the handshake."""

    def __init__(self, path: str, port: int) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_text: Callable[[bytes], None] = lambda _: None
        self._request = HANDSHAKE.format(path=path, port=port).encode()
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, port: int, path: str = "/v1/ws") -> "Socket":
        _, socket = await asyncio.get_running_loop().create_connection(lambda: cls(path, port), "127.0.0.1", port)
        async with asyncio.timeout(20):
            await socket.opened
        return socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectionError("closed in its handshake"))

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        at = 0
        if not self.opened.done():
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._rest = data
                return
            if not data.startswith(b"HTTP/1.1 101"):
                self.opened.set_exception(ConnectionError(data[:200].decode("latin-1")))
                return
            self.opened.set_result(None)
            at = end + 4
        size = len(data)
        while size - at >= 2:
            code, length, begin = data[at] & 15, data[at + 1] & 127, at + 2
            if length == 126:
                if size < begin + 2:
                    break
                length, begin = int.from_bytes(data[begin : begin + 2], "big"), begin + 2
            elif length == 127:
                if size < begin + 8:
                    break
                length, begin = int.from_bytes(data[begin : begin + 8], "big"), begin + 8
            if size < begin + length:
                break
            payload = data[begin : begin + length]
            at = begin + length
            if code == 1:
                self.on_text(payload)
            elif code == 9:
                self._frame(10, payload)
        self._rest = data[at:]

    def send(self, text: bytes) -> None:
        self._frame(1, text)

    def _frame(self, code: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = bytes((0x80 | code, 0x80 | size))
        elif size < 65536:
            head = struct.pack("!BBH", 0x80 | code, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | code, 0x80 | 127, size)
        if self._transport is not None:
            self._transport.write(head + b"\0\0\0\0" + payload)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Stream(asyncio.Protocol):
    """One event stream; ``on_text`` gets each whole block, chunk lines in it or not."""

    def __init__(self, port: int, session_id: str, token: str, on_text: Callable[[bytes], None]) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_text = on_text
        self._request = STREAM.format(session_id=session_id, port=port, token=token).encode()
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, port: int, session_id: str, token: str, on_text: Callable[[bytes], None]) -> "Stream":
        loop = asyncio.get_running_loop()
        _, stream = await loop.create_connection(lambda: cls(port, session_id, token, on_text), "127.0.0.1", port)
        async with asyncio.timeout(20):
            await stream.opened
        return stream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n\n") if self._rest else data.split(b"\n\n")
        for block in whole:
            self._on_text(block)
        if not self.opened.done() and whole:  # the cursor has come, so what follows is live
            self.opened.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
