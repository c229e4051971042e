"""Everything that goes through a gateway, overheard: what its child reads, what its clients get, what Redis is told."""

import asyncio
import json
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

MOUTH = Path(__file__).with_name("overheard_child.py")
PIECE = 8  # characters of a token


class Mouth:
    """A child whose stdin is kept, and whose words are given to it: tokens in its frames become texts.

    The child itself never reads those texts, so nothing on the way to it can have taken them out.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._texts: list[str] = []

    def command(self, command: Sequence[str], *, dies: bool = False) -> tuple[str, ...]:
        """The command with us around it. ``dies``: it says the texts on stderr and ends with 3."""
        return (sys.executable, str(MOUTH), str(self.folder), "dies" if dies else "lives", *command)

    def says(self, text: str) -> str:
        """A token for the whole of ``text``."""
        return self._token(text, "w")

    def halves(self, text: str) -> str:
        """Two tokens for the halves of ``text``."""
        return self._token(text, "a") + self._token(text, "b")

    def _token(self, text: str, part: str) -> str:
        if text not in self._texts:
            self._texts.append(text)
            (self.folder / "texts.json").write_text(json.dumps(self._texts))
        return f"<{self._texts.index(text):05}{part}>"

    def shouts(self, text: str) -> None:
        """What it writes to stderr when it starts."""
        (self.folder / "stderr.txt").write_text(text)

    def heard(self) -> bytes:
        """All that any of the children read."""
        return b"\n".join(path.read_bytes() for path in sorted(self.folder.glob("stdin.*")))


class Ear:
    """A proxy that keeps every byte that the server sends."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self.heard = bytearray()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, both ways until both are over."""
        back, forth = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.gather(_pump(reader, forth, None), _pump(back, writer, self.heard))
        finally:
            for end in (writer, forth):
                end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray | None) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            if kept is not None:
                kept += data
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def ear(url: str) -> AsyncGenerator[Ear]:
    """A proxy before the server at ``url``."""
    made = Ear(int(url.rpartition(":")[2]))
    links: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        links.add(asyncio.ensure_future(made.accept(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    made.port = int(server.sockets[0].getsockname()[1])
    try:
        yield made
    finally:
        server.close()
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)


# --- Redis


class Link:
    """One plain connection to the server at a ``unix://`` URL."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        self._socket.connect(parts.path)
        self._file = self._socket.makefile("rb")
        if parts.password:
            assert self.ask("AUTH", unquote(parts.password)) == b"OK"

    def ask(self, *words: str | bytes) -> Any:
        """One command's answer."""
        raw = [word.encode() if isinstance(word, str) else word for word in words]
        self._socket.sendall(b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in raw))
        return self._answer()

    def _answer(self) -> Any:
        line = self._file.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return None if rest == b"-1" else self._file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self._answer() for _ in range(max(0, int(rest)))]
        assert kind != b"-", line
        return rest

    def lines(self) -> Generator[bytes]:
        """What comes from now on, until ``close``."""
        self._socket.settimeout(None)
        with suppress(OSError, ValueError):
            yield from self._file

    def close(self) -> None:
        """Ends whoever reads, too."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextmanager
def monitored(url: str) -> Generator[list[bytes]]:
    """Every command that the server is given while the block runs, those of scripts too."""
    link, heard = Link(url), list[bytes]()
    link.ask("MONITOR")
    thread = threading.Thread(target=lambda: heard.extend(link.lines()), daemon=True)
    thread.start()
    try:
        yield heard
    finally:
        link.close()
        thread.join(30)


def dumped(url: str) -> dict[bytes, bytes]:
    """Every key with all that stands in it."""
    link, found, cursor = Link(url), dict[bytes, bytes](), b"0"
    reads: dict[bytes, tuple[str, ...]] = {
        b"string": ("GET",), b"hash": ("HGETALL",), b"set": ("SMEMBERS",), b"list": ("LRANGE", "0", "-1"),
        b"zset": ("ZRANGE", "0", "-1"), b"stream": ("XRANGE", "-", "+"),
    }  # fmt: skip
    while True:
        cursor, keys = link.ask("SCAN", cursor, "COUNT", "1000")
        for key in keys:
            kind = link.ask("TYPE", key)
            if kind != b"none":
                name, *rest = reads[kind]
                found[key] = b"\n".join(_flat(link.ask(name, key, *rest)))
        if cursor == b"0":
            link.close()
            return found


def _flat(value: Any) -> Generator[bytes]:
    if isinstance(value, list):
        for one in value:
            yield from _flat(one)
    elif value is not None:
        yield value
