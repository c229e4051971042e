"""Below the frames: requests for a socket that cannot be read, and what a peer that reads nothing may order."""

import asyncio
import logging
import os
import socket

import pytest
from websockets.frames import Frame, Opcode

from adapters.websocket.server_protocol import SocketProtocol
from tests.doubles.socket_world import World

REQUEST = (
    "GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)


async def ask(port: int, request: str) -> bytes:
    """Everything that the other end says until it closes, which must come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request.encode())
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ("".join(f"X-{number}: y\r\n" for number in range(200)), 431),
        (f"Cookie: {'c' * 20_000}\r\n", 431),
        ("Content-Length: 5\r\n\r\nhello", 400),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 400),
        ("Sec-WebSocket-Version: 12\r\n", 400),
    ],
)
async def test_a_request_that_cannot_become_a_socket_is_answered_and_closed(
    bus_world: World, more: str, status: int
) -> None:
    node = await bus_world.node()
    end = "" if "\r\n\r\n" in more else "\r\n"
    answer = await ask(node.port, f"{REQUEST}{more}{end}")
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert not node._server.server_state.connections


async def test_a_refused_socket_is_no_fault_in_the_log(bus_world: World, caplog: pytest.LogCaptureFixture) -> None:
    node = await bus_world.node()
    with caplog.at_level(logging.WARNING):
        answer = await ask(node.port, f"{REQUEST}Sec-WebSocket-Protocol: another\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert (await ask(node.port, "no HTTP\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    assert not caplog.records


async def test_pongs_that_nobody_reads_do_not_pile_up(bus_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = 0
    handle = SocketProtocol.handle_ping

    def counted(connection: SocketProtocol) -> None:
        nonlocal heard
        heard += 1
        handle(connection)

    monkeypatch.setattr(SocketProtocol, "handle_ping", counted)
    node = await bus_world.node(sndbuf=8192)
    loop = asyncio.get_running_loop()
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        peer.setblocking(False)
        async with asyncio.timeout(30):
            await loop.sock_connect(peer, ("127.0.0.1", node.port))
            await loop.sock_sendall(peer, f"{REQUEST}\r\n".encode())
            assert (await loop.sock_recv(peer, 1_000)).startswith(b"HTTP/1.1 101 ")
            pings = b"".join(Frame(Opcode.PING, os.urandom(125)).serialize(mask=True) for _ in range(500))
            for _ in range(32):  # two megabytes
                await loop.sock_sendall(peer, pings)
            while heard < 32 * 500:
                await asyncio.sleep(0.01)
            (connection,) = node._server.server_state.connections
            assert connection.transport.get_write_buffer_size() < 200_000
            while True:  # who begins to read is answered again
                await loop.sock_sendall(peer, Frame(Opcode.PING, b"the last one").serialize(mask=True))
                if b"the last one" in await loop.sock_recv(peer, 65_536):
                    return
