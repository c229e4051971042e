"""One socket of ``toolrelay.v1``: frames out, answers by id, pushes in their order. Owns nothing of what they mean."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from toolrelay_client.errors import ToolrelayError

FRAME_BYTES: Final = 4 * 1024 * 1024
Done = Callable[[Any], None]


class Link:
    """``push`` is called with every push, in the order in which they came. Whether the peer lives, the library asks."""

    def __init__(self, connection: ClientConnection, session_id: str, push: Callable[[dict[str, Any]], None]) -> None:
        self._connection = connection
        self._session_id = session_id
        self._push = push
        self._asked: dict[int, tuple[asyncio.Future[Any], Done | None]] = {}
        self._next_id = 1
        self._out: asyncio.Queue[str] = asyncio.Queue()
        self._over = False

    def ask(self, op: str, done: Done | None = None, /, **fields: Any) -> "asyncio.Future[Any]":
        """Asks; frames go out in the order of these calls. ``done`` is called before any later frame is looked at.

        The future raises ToolrelayError.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_seen)
        if self._over:
            answer.set_exception(ToolrelayError("connection_lost", "the socket is closed"))
            return answer
        number = self._next_id
        self._next_id += 1
        frame = msgspec.json.encode({"id": number, "op": op, "session_id": self._session_id, **fields})
        if len(frame) > FRAME_BYTES:
            answer.set_exception(ToolrelayError("too_large", f"a frame has at most {FRAME_BYTES} bytes"))
            return answer
        self._asked[number] = answer, done
        self._out.put_nowait(frame.decode())
        return answer

    async def write(self) -> None:
        """Sends what is asked until the socket is closed. Bounded by the open calls and inputs."""
        try:
            while True:
                await self._connection.send(await self._out.get())
        except ConnectionClosed:
            return

    async def read(self) -> int:
        """Reads until the socket is closed: the close code."""
        try:
            while True:
                self._receive(msgspec.json.decode(await self._connection.recv()))
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else 1006
        finally:
            self.end()

    def end(self) -> None:
        """What was asked is lost. Idempotent."""
        self._over = True
        asked, self._asked = self._asked, {}
        for answer, _ in asked.values():
            if not answer.done():
                answer.set_exception(ToolrelayError("connection_lost", "the socket was closed"))

    async def close(self) -> None:
        """Ends it and closes the socket."""
        self.end()
        await self._connection.close()

    def _receive(self, frame: dict[str, Any]) -> None:
        if "id" not in frame:
            self._push(frame)
            return
        answer, done = self._asked.pop(frame["id"], (None, None))
        if answer is None or answer.done():
            return
        if error := frame.get("error"):
            answer.set_exception(ToolrelayError(error["code"], error["message"]))
            return
        if done is not None:
            done(frame["ok"])
        answer.set_result(frame["ok"])


def _seen(answer: "asyncio.Future[Any]") -> None:
    if not answer.cancelled():
        answer.exception()  # whoever asked and does not wait need not hear of it
