"""Below the app: frames as the protocol has them, and when the connections of this node write."""

import asyncio
from typing import Any, cast

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode
from websockets.protocol import State

from adapters.websocket.framing import framed
from adapters.websocket.server_protocol import SocketProtocol


class _Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.broken = False

    def write(self, data: bytes) -> None:
        if self.broken:
            raise RuntimeError("this transport is broken")
        self.written.append(data)

    def is_closing(self) -> bool:
        return False


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("nothing comes")


def _connections(count: int) -> list[tuple[SocketProtocol, _Transport]]:
    """Connections after their handshake."""
    config = uvicorn.Config(_app, lifespan="off", log_config=None, ws_per_message_deflate=False)
    config.load()
    made: list[tuple[SocketProtocol, _Transport]] = []
    for _ in range(count):
        connection, transport = SocketProtocol(config, ServerState(), {}), _Transport()
        connection.transport = cast(asyncio.Transport, transport)
        connection.conn.state = State.OPEN
        made.append((connection, transport))
    return made


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_a_frame_is_as_the_protocol_has_it(size: int) -> None:
    text = b"x" * size
    assert framed(text) == Frame(Opcode.TEXT, text).serialize(mask=False)


async def test_what_a_connection_sends_in_a_turn_is_one_write() -> None:
    ((connection, transport),) = _connections(1)
    for part in (b"a", b"b", b"c"):
        assert connection.send_now(framed(part))
    assert transport.written == []
    await asyncio.sleep(0)
    assert transport.written == [framed(b"a") + framed(b"b") + framed(b"c")]
    assert connection.send_now(framed(b"d"))
    await asyncio.sleep(0)
    assert len(transport.written) == 2


async def test_much_does_not_wait_for_the_end_of_the_turn() -> None:
    ((connection, transport),) = _connections(1)
    large = framed(b"x" * 70_000)
    assert connection.send_now(large)
    assert transport.written == [large], "the transport has to know how much it holds"
    assert connection.send_now(framed(b"a"))
    await asyncio.sleep(0)
    assert transport.written[1:] == [framed(b"a")], "and what follows is written too"


async def test_the_first_of_many_readers_do_not_wait_for_the_last() -> None:
    made = _connections(200)
    for connection, _ in made:
        assert connection.send_now(framed(b"event"))
    written = [len(transport.written) for _, transport in made]
    assert written[0] == 1
    assert written[-1] == 0
    await asyncio.sleep(0)
    assert [transport.written for _, transport in made] == [[framed(b"event")]] * 200


async def test_a_connection_that_cannot_be_written_hurts_no_other() -> None:
    made = _connections(3)
    made[1][1].broken = True
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    for connection, _ in made:
        assert connection.send_now(framed(b"event"))
    await asyncio.sleep(0)
    assert [len(transport.written) for _, transport in made] == [1, 0, 1]
    assert [str(context["exception"]) for context in told] == ["this transport is broken"]
