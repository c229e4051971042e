"""A strict reader of server-sent events: lines and fields as the WHATWG says, over one raw connection."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

WAIT_S = 10.0


@dataclass
class Frame:
    """One block: ``id`` and ``event`` where there were any, ``data`` joined, comments, ``retry``."""

    id: str | None = None
    event: str | None = None
    data: str | None = None
    retry: int | None = None
    comments: list[str] = field(default_factory=list)

    @property
    def json(self) -> Any:
        assert self.data is not None
        return json.loads(self.data)


class SseReader:
    """Frames of one answer, with a bound on every wait."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self._buffer = b""
        self._over = False

    async def head(self) -> None:
        """Reads the status line and the headers."""
        async with asyncio.timeout(WAIT_S):
            raw = await self._reader.readuntil(b"\r\n\r\n")
        first, *rest = raw.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in rest if line)}

    async def _chunk(self) -> bytes:
        size = int((await self._reader.readuntil(b"\r\n")).strip(), 16)
        body = await self._reader.readexactly(size + 2)
        return body[:-2]

    async def body(self) -> bytes:
        """A whole body with a length."""
        async with asyncio.timeout(WAIT_S):
            return await self._reader.readexactly(int(self.headers["content-length"]))

    async def frame(self, wait_s: float = WAIT_S) -> Frame | None:
        """The next block, None at the end of the answer. Raises TimeoutError."""
        async with asyncio.timeout(wait_s):
            while b"\n\n" not in self._buffer:
                if self._over:
                    return None
                try:
                    chunk = await self._chunk()
                except asyncio.IncompleteReadError:
                    chunk = b""
                if not chunk:
                    self._over = True
                self._buffer += chunk
        block, _, self._buffer = self._buffer.partition(b"\n\n")
        found = Frame()
        for line in block.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if line.startswith(":"):
                found.comments.append(value)
            elif name == "data":
                found.data = value if found.data is None else f"{found.data}\n{value}"
            elif name == "id":
                found.id = value
            elif name == "event":
                found.event = value
            elif name == "retry":
                found.retry = int(value)
            elif line:
                raise AssertionError(f"an unknown field: {name}")
        return found

    async def event(self, wait_s: float = WAIT_S) -> dict[str, Any]:
        """The next event; other blocks are passed over."""
        while True:
            frame = await self.frame(wait_s)
            assert frame is not None, "the stream has ended"
            if frame.data is not None and frame.event is None:
                assert frame.id == str(frame.json["seq"])
                return frame.json

    async def until(self, kind: str, wait_s: float = WAIT_S) -> dict[str, Any]:
        """The next event of a type."""
        while (event := await self.event(wait_s))["type"] != kind:
            pass
        return event

    async def ended(self, wait_s: float = WAIT_S) -> list[Frame]:
        """Everything up to the end of the answer."""
        frames: list[Frame] = []
        while (frame := await self.frame(wait_s)) is not None:
            frames.append(frame)
        return frames


@asynccontextmanager
async def open_stream(port: int, path: str, credential: str, **headers: str) -> AsyncGenerator[SseReader]:
    """A GET whose head has been read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {credential}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        stream = SseReader(reader, writer)
        await stream.head()
        yield stream
    finally:
        writer.transport.abort()
