"""The slim queue and gate of a connection, and what a connection forgets once its handshake is over."""

import asyncio
import base64
import gc
from contextlib import suppress

from adapters.websocket.idle import Gate, Messages
from adapters.websocket.server_protocol import SocketProtocol
from tests.doubles.socket_world import World

PATIENCE_S = 10.0


async def test_messages_come_in_their_order_and_wake_who_waits() -> None:
    messages = Messages()
    assert messages.empty()
    waiting = asyncio.create_task(messages.get())
    await asyncio.sleep(0)
    for number in range(3):
        messages.put_nowait(number)
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting == 0
        assert not messages.empty()
        assert [await messages.get(), await messages.get()] == [1, 2]
    assert messages.empty()


async def test_a_cancelled_receiver_loses_no_message() -> None:
    messages = Messages()
    for after_wake in (False, True):
        waiting = asyncio.create_task(messages.get())
        await asyncio.sleep(0)
        if after_wake:
            messages.put_nowait("kept")
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(PATIENCE_S):
        assert await messages.get() == "kept"


async def test_a_gate_lets_all_go_on_and_a_cancelled_one_hurts_nobody() -> None:
    gate = Gate()
    assert gate.is_set()
    await gate.wait()
    gate.clear()
    waiting = [asyncio.create_task(gate.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [False, True, False]
    gate.set()
    gate.clear()  # who waited when it was opened goes on all the same
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(waiting[0], waiting[2])
    assert not gate.is_set()


async def test_an_open_connection_keeps_nothing_of_its_handshake(bus_world: World) -> None:
    """5 KiB a socket, and a credential among it."""
    node = await bus_world.node()
    session_id, token = await node.session()
    bearer = "bearer." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    client = await bus_world.client(
        node, subprotocols=["toolrelay.v1", bearer], additional_headers={"X-Long": "x" * 1_000}
    )
    await client.ok("attach", session_id=session_id)
    (connection,) = (
        one for one in gc.get_objects() if type(one) is SocketProtocol and one.server == ("127.0.0.1", node.port)
    )
    assert connection.scope["headers"] == []
    assert connection.scope["subprotocols"] == []
    assert len(connection.request.headers) == len(connection.response.headers) == 0
    await client.ok("ping")
