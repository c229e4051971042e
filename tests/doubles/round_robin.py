"""A proxy that gives each connection to the next backend, so that each request of a client lands elsewhere."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import cycle


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.write_eof()


@asynccontextmanager
async def round_robin(ports: Sequence[int]) -> AsyncGenerator[int]:
    """The proxy's port. Clients must not keep connections alive."""
    turns = cycle(ports)
    open_now: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", next(turns))
            try:
                async with asyncio.TaskGroup() as group:
                    forward = group.create_task(_pump(reader, back))
                    await _pump(there, writer)
                    forward.cancel()
            finally:
                back.close()
        except asyncio.CancelledError:
            pass  # the proxy is closing
        finally:
            open_now.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(open_now):
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)
        await server.wait_closed()
