"""Forty raw-frame cases: what a peer may put on the wire, byte by byte (RFC 6455), against the server that we ship."""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest

from tests.doubles.socket_world import Node, World

TEXT, BINARY, CONT, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
FIN, RSV1, RSV2, RSV3 = 0x80, 0x40, 0x20, 0x10
PING_OP = b'{"id":1,"op":"ping"}'
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, masked: bool = True, length: int | None = None
) -> bytes:
    """One frame; ``length`` lies about the payload's, or is written longer than it must be."""
    size = len(payload) if length is None else length
    bit = 0x80 if masked else 0
    if size < 126:
        head = bytes([bit | size])
    elif size < 1 << 16:
        head = bytes([bit | 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([bit | 127]) + size.to_bytes(8, "big")
    mask = os.urandom(4) if masked else b""
    body = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload)) if masked else payload
    return bytes([(FIN if fin else 0) | rsv | opcode]) + head + mask + body


def close(code: int, reason: bytes = b"") -> bytes:
    return frame(CLOSE, code.to_bytes(2, "big") + reason)


@dataclass
class Raw:
    """A connection that has shaken hands."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def next(self) -> tuple[int, bytes] | None:
        """The next frame of the server, None at the end of the connection."""
        try:
            async with asyncio.timeout(8):
                first, second = await self.reader.readexactly(2)
                assert not second & 0x80, "a server never masks"
                size = second & 0x7F
                if size >= 126:
                    size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8), "big")
                return first & 0x0F, await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None

    async def closed(self) -> int:
        """The code that the server closes with; whatever comes before is passed over. 0: no close frame."""
        while (got := await self.next()) is not None:
            if got[0] == CLOSE:
                return int.from_bytes(got[1][:2], "big") if got[1] else 1005
        return 0


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@pytest.fixture
async def node(bus_world: World) -> Node:
    return await bus_world.node()


@pytest.fixture
async def raw(node: Node) -> AsyncGenerator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(
        b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + KEY + b"\r\n\r\n"
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
    yield Raw(reader, writer)
    await _end(writer)


async def _answered(raw: Raw) -> None:
    got = await raw.next()
    assert got is not None
    assert got[0] == TEXT
    assert "ok" in json.loads(got[1])


ANSWERED = {
    "one frame": frame(TEXT, PING_OP),
    "two fragments": frame(TEXT, PING_OP[:5], fin=False) + frame(CONT, PING_OP[5:]),
    "a fragment a byte": frame(TEXT, PING_OP[:1], fin=False)
    + b"".join(frame(CONT, PING_OP[n : n + 1], fin=False) for n in range(1, len(PING_OP)))
    + frame(CONT),
    "empty fragments between": frame(TEXT, b"", fin=False) * 1
    + frame(CONT, b"", fin=False) * 500
    + frame(CONT, PING_OP),
    "a character cut by a fragment": frame(TEXT, b'{"id":1,"op":"ping","x":"\xf0\x9f', fin=False)
    + frame(CONT, b'\x98\x80"}'),
    "a length in 16 bits": frame(TEXT, PING_OP + b" " * 200),
    "an unsolicited pong before": frame(PONG, b"hello") + frame(TEXT, PING_OP),
}


@pytest.mark.parametrize("case", ANSWERED)
async def test_what_is_fine_is_answered(raw: Raw, case: str) -> None:
    await raw.send(ANSWERED[case])
    await _answered(raw)


async def test_bytes_one_at_a_time(raw: Raw) -> None:
    for byte in frame(TEXT, PING_OP):
        await raw.send(bytes([byte]))
        await asyncio.sleep(0)
    await _answered(raw)


@pytest.mark.parametrize("payload", [b"", b"x", b"\x00\xff" * 62, b"y" * 125])
async def test_pings_are_answered_with_their_payload(raw: Raw, payload: bytes) -> None:
    await raw.send(frame(PING, payload))
    assert await raw.next() == (PONG, payload)


async def test_a_ping_between_fragments_is_answered_at_once(raw: Raw) -> None:
    await raw.send(frame(TEXT, PING_OP[:7], fin=False) + frame(PING, b"now"))
    assert await raw.next() == (PONG, b"now")
    await raw.send(frame(CONT, PING_OP[7:]))
    await _answered(raw)


REFUSED = {
    "not masked": (frame(TEXT, PING_OP, masked=False), 1002),
    "a first reserved bit": (frame(TEXT, PING_OP, rsv=RSV1), 1002),
    "a second reserved bit": (frame(TEXT, PING_OP, rsv=RSV2), 1002),
    "a third reserved bit": (frame(TEXT, PING_OP, rsv=RSV3), 1002),
    "opcode 3": (frame(3, PING_OP), 1002),
    "opcode 7": (frame(7, PING_OP), 1002),
    "opcode 11": (frame(11), 1002),
    "opcode 15": (frame(15), 1002),
    "a fragmented ping": (frame(PING, b"x", fin=False), 1002),
    "a fragmented close": (frame(CLOSE, b"", fin=False), 1002),
    "a ping of 126 bytes": (frame(PING, b"x" * 126), 1002),
    "a close of 126 bytes": (frame(CLOSE, b"\x03\xe8" + b"x" * 124), 1002),
    "a continuation of nothing": (frame(CONT, PING_OP), 1002),
    "a text inside a text": (frame(TEXT, b"{", fin=False) + frame(TEXT, PING_OP), 1002),
    "a close with half a code": (frame(CLOSE, b"\x03"), 1002),
    "close code 999": (close(999), 1002),
    "close code 1004": (close(1004), 1002),
    "close code 1005": (close(1005), 1002),
    "close code 1006": (close(1006), 1002),
    "close code 5000": (close(5000), 1002),
    "a close reason that is no UTF-8": (close(1000, b"\xff\xfe"), 1007),
    "no UTF-8": (frame(TEXT, b'{"id":1,"op":"\xff"}'), 1007),
    "UTF-8 that ends early": (frame(TEXT, b'{"id":1,"op":"\xf0\x9f'), 1007),
    "an encoded surrogate": (frame(TEXT, b'{"id":1,"op":"\xed\xa0\x80"}'), 1007),
    "an overlong NUL": (frame(TEXT, b'{"id":1,"op":"\xc0\x80"}'), 1007),
    "a binary frame": (frame(BINARY, PING_OP), 4400),
    "a binary frame in fragments": (frame(BINARY, PING_OP[:4], fin=False) + frame(CONT, PING_OP[4:]), 4400),
    "an empty text": (frame(TEXT), 4400),
    "a NUL": (frame(TEXT, b"\0"), 4400),
    "a length beyond the bound": (frame(TEXT, b"", length=8 * 1024 + 1), 4413),
    "a length of 2^40": (frame(TEXT, b"", length=1 << 40), 4413),
    "fragments beyond the bound": (
        frame(TEXT, b"x" * 4096, fin=False) + frame(CONT, b"x" * 4096, fin=False) + frame(CONT, b"x"),
        4413,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_not_fine_closes_with_its_code(node: Node, raw: Raw, case: str) -> None:
    data, code = REFUSED[case]
    await raw.send(data)
    assert await raw.closed() == code
    raw.writer.close()
    async with asyncio.timeout(8):
        while len(node.sockets):
            await asyncio.sleep(0.01)


async def test_what_a_peer_sends_fills_no_log(raw: Raw, caplog: pytest.LogCaptureFixture) -> None:
    await raw.send(frame(TEXT, b"\xff"))
    assert await raw.closed() == 1007
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(("sent", "echoed"), [(1000, 1000), (1001, 1001), (3000, 3000), (4999, 4999), (None, 1005)])
async def test_a_close_is_echoed(node: Node, raw: Raw, sent: int | None, echoed: int) -> None:
    await raw.send(frame(CLOSE) if sent is None else close(sent, "ende ü".encode()))
    assert await raw.closed() == echoed
    assert await raw.next() is None


async def test_nothing_is_served_behind_a_close(raw: Raw) -> None:
    await raw.send(close(1000) + frame(TEXT, PING_OP))
    assert await raw.next() == (CLOSE, b"\x03\xe8")
    assert await raw.next() is None


async def test_an_end_in_the_middle_of_a_frame_leaves_nothing_behind(node: Node, raw: Raw) -> None:
    await raw.send(frame(TEXT, PING_OP)[:-4])
    raw.writer.close()
    async with asyncio.timeout(8):
        while len(node.sockets):
            await asyncio.sleep(0.01)


async def test_a_deflate_offer_is_not_taken(node: Node) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(
        b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"
        b"Sec-WebSocket-Key: " + KEY + b"\r\n\r\n"
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"permessage-deflate" not in head
    await _end(writer)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"Sec-WebSocket-Version: 12\r\nSec-WebSocket-Key: " + KEY, b"400"),
        (b"Sec-WebSocket-Version: 13", b"400"),
        (b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short", b"400"),
    ],
)
async def test_a_handshake_that_is_none(node: Node, line: bytes, status: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(
        b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + line + b"\r\n\r\n"
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.split(b" ")[1] == status
    assert len(node.sockets) == 0
    await _end(writer)


def test_there_are_at_least_forty() -> None:
    assert len(ANSWERED) + len(REFUSED) + 5 + 4 >= 40
