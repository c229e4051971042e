"""nginx with the sample of ``deploy/nginx`` in front of nodes, where it is installed; else a TCP proxy of our own.

Both give each connection to the next node in turn, and to another where one refuses it.
"""

import asyncio
import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.doubles.valkey_servers import free_port, until

ROOT = Path(__file__).parent.parent.parent
SAMPLE = ROOT / "deploy/nginx/toolrelay.conf"
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def nginx() -> str | None:
    """The program, None where this machine lacks it."""
    return shutil.which("nginx", path=PATH)


def config_for(folder: Path, port: int, addresses: Sequence[str]) -> str:
    """The sample with the addresses of a test, inside of what a distribution's own file has around it."""
    sample = SAMPLE.read_text("utf-8")
    for number, address in enumerate(addresses, 1):
        assert f"gateway-{number}:8080" in sample
        sample = sample.replace(f"gateway-{number}:8080", address)
    assert "listen 80;" in sample
    sample = sample.replace("listen 80;", f"listen 127.0.0.1:{port};")
    (folder / "sample.conf").write_text(sample)
    temporary = "\n".join(
        f"  {kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"daemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log {folder}/error.log warn;\n"
        f"{'user root;' if os.getuid() == 0 else ''}\n"
        f"events {{ worker_connections 1024; }}\nhttp {{\n  access_log off;\n{temporary}\n"
        f"  include {folder}/sample.conf;\n}}\n"
    )


@asynccontextmanager
async def nginx_before(addresses: Sequence[str]) -> AsyncGenerator[str]:
    """The address of an nginx in front of ``host:port`` addresses."""
    program = nginx()
    assert program is not None
    folder = Path(tempfile.mkdtemp(prefix="ng"))
    port = free_port()
    (folder / "nginx.conf").write_text(config_for(folder, port, addresses))
    process = await asyncio.create_subprocess_exec(
        program, "-p", str(folder), "-c", str(folder / "nginx.conf"), stderr=subprocess.DEVNULL
    )
    try:

        async def listens() -> bool:
            assert process.returncode is None, (folder / "error.log").read_text()
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return True

        await until(listens, what="nginx")
        yield f"127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def turns_before(addresses: Sequence[str]) -> AsyncGenerator[str]:
    """The address of a proxy that knows TCP alone."""
    order = itertools.cycle(addresses)
    pipes: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in addresses:
            host, _, port = next(order).partition(":")
            with contextlib.suppress(OSError):
                there = await asyncio.open_connection(host, int(port))
                for source, sink in ((reader, there[1]), (there[0], writer)):
                    task = asyncio.create_task(_pipe(source, sink))
                    pipes.add(task)
                    task.add_done_callback(pipes.discard)
                return
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(pipes):
            task.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


def before(addresses: Sequence[str]) -> contextlib.AbstractAsyncContextManager[str]:
    """Whichever of both this machine can run."""
    return nginx_before(addresses) if nginx() else turns_before(addresses)
