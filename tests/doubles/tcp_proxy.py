"""A TCP proxy that misbehaves on request: it delays, stalls, cuts, and forgets to tell (half-open)."""

import asyncio
import contextlib
import random
from dataclasses import dataclass, field


@dataclass(eq=False)
class Link:
    """One proxied connection."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class TcpProxy:
    """Forwards to ``target`` (a unix socket's path, or host and port). Every knob may be turned while it runs;
    another ``target`` is for the connections to come.

    ``delay_s`` is the bound of a random delay per chunk and direction; ``up`` and ``down`` let bytes to the server and
    to the client pass: cleared, bytes wait (a stall, or one direction of a half-open connection).
    """

    def __init__(self, target: str | tuple[str, int], *, delay_s: float = 0.0, seed: int = 1) -> None:
        self.delay_s = delay_s
        self.up = asyncio.Event()
        self.down = asyncio.Event()
        self.up.set()
        self.down.set()
        self.links: list[Link] = []
        self.accepted = 0
        self.target = target
        self._random = random.Random(seed)
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "TcpProxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for link in self.links:
            for task in link.tasks:
                task.cancel()
            await asyncio.gather(*link.tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def open_links(self) -> int:
        return sum(not link.client.is_closing() for link in self.links)

    def cut(self) -> None:
        """Resets every connection."""
        for link in self.links:
            link.client.transport.abort()
            link.server.transport.abort()

    def half_open(self, index: int = -1) -> None:
        """From here on nothing passes on one connection, in neither direction, and nobody is told."""
        for task in self.links[index].tasks:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if isinstance(self.target, str):
                server_reader, server_writer = await asyncio.open_unix_connection(self.target)
            else:
                server_reader, server_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        link = Link(writer, server_writer)
        self.links.append(link)
        self.accepted += 1
        link.tasks = [
            asyncio.create_task(self._pump(reader, server_writer, self.up)),
            asyncio.create_task(self._pump(server_reader, writer, self.down)),
        ]

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        try:
            while data := await reader.read(4096):
                if self.delay_s:
                    await asyncio.sleep(self._random.random() * self.delay_s)
                await gate.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        with contextlib.suppress(OSError):
            writer.close()
