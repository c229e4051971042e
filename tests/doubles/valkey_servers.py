"""Real servers for tests: one on a port, a primary with replica and Sentinels, a Cluster. Nothing outlives the test."""

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gateway.bus.connect import Endpoint
from gateway.bus.connection import Connection
from gateway.bus.embedded import find_server, spawn
from gateway.bus.errors import BusError, BusUnavailable, Kind
from gateway.bus.wire import Bounds, Wire
from tests.doubles.lifetimes import assert_lifetimes


def free_port() -> int:
    """A port that is free, and so is the one that a Cluster's bus takes 10,000 above it."""
    while True:
        with socket.socket() as sock, socket.socket() as bus:
            sock.bind(("127.0.0.1", 0))
            port = int(sock.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                bus.bind(("127.0.0.1", port + 10_000))
                return port


async def ask(port: int, *args: bytes | str | int) -> object:
    """One command to any kind of server, without a login."""
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_connection(lambda: Wire(loop, Bounds()), "127.0.0.1", port)
    try:
        async with asyncio.timeout(5):
            return await wire.send(args)
    finally:
        wire.abort(Kind.CLOSED)


async def until(condition, bound: float = 10.0, what: str = "the condition"):
    """Waits until ``condition`` (plain or async) is true; errors of a server that is not there yet count as false."""
    async with asyncio.timeout(bound):
        while True:
            with contextlib.suppress(OSError, BusError):
                value = condition()
                if asyncio.iscoroutine(value):
                    value = await value
                if value:
                    return value
            await asyncio.sleep(0.005)


class Server:
    """A server process on a port of 127.0.0.1."""

    def __init__(
        self, *arguments: str, port: int | None = None, config: str | None = None, through: Sequence[str] = ()
    ) -> None:
        """``through``: a program with its arguments that is to run the server."""
        self.port = port or free_port()
        self.dir = Path(tempfile.mkdtemp(prefix="tr"))
        self._arguments = arguments
        self._config = config
        self._through = through
        self.process: asyncio.subprocess.Process | None = None

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.port)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def start(self) -> "Server":
        # TEST_SERVER_BINARY runs the same tests against another server: the oldest that is supported, the newest.
        binary = Path(os.environ.get("TEST_SERVER_BINARY") or find_server()[0])
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.dir), "--save", ""]
        if self._config is not None:
            (self.dir / "conf").write_text(self._config)
            arguments = [str(self.dir / "conf"), *arguments[:-2]]
        program, *rest = [*self._through, str(binary), *arguments, *self._arguments]
        self.process = await spawn(Path(program), rest)

        async def answers() -> bool:
            with contextlib.suppress(BusUnavailable):
                await ask(self.port, "PING")
            return True

        await until(answers, what="the server")
        return self

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    async def __aenter__(self) -> "Server":
        try:
            return await self.start()
        except BaseException:
            await self.__aexit__(BaseException)
            raise

    async def __aexit__(self, kind: object = None, *_: object) -> None:
        try:
            if kind is None and self.process is not None and self.process.returncode is None:
                await asyncio.to_thread(assert_lifetimes, self.url)
        finally:
            await self.stop()
            shutil.rmtree(self.dir, ignore_errors=True)


class SentinelSet:
    """A primary, a replica and three Sentinels that fail over after 0.5 s."""

    async def __aenter__(self) -> "SentinelSet":
        self.stack = contextlib.AsyncExitStack()
        user = ("--user", "replica", "on", ">replica", "+psync", "+replconf", "+ping")
        self.primary = await self.stack.enter_async_context(Server("--repl-diskless-sync-delay", "0", *user))
        self.replica = await self.stack.enter_async_context(
            Server(
                *("--replicaof", f"127.0.0.1 {self.primary.port}", "--repl-diskless-sync-delay", "0"),
                *("--masteruser", "replica", "--masterauth", "replica"),
            )
        )

        async def synced() -> bool:
            return b"master_link_status:up" in await ask(self.replica.port, "INFO", "replication")  # type: ignore[operator]

        await until(synced, what="the replica")
        self.sentinels: list[Server] = []
        for _ in range(3):
            config = (
                f"sentinel monitor tr 127.0.0.1 {self.primary.port} 2\n"
                "sentinel down-after-milliseconds tr 500\nsentinel failover-timeout tr 3000\n"
            )
            self.sentinels.append(await self.stack.enter_async_context(Server("--sentinel", config=config)))

        async def agreed() -> bool:
            for sentinel in self.sentinels:
                reply = await ask(sentinel.port, "SENTINEL", "MASTER", "tr")
                fields = dict(zip(reply[::2], reply[1::2], strict=True))  # type: ignore[index]
                if fields[b"num-other-sentinels"] != b"2" or fields[b"num-slaves"] != b"1":
                    return False
            return True

        await until(agreed, 15, what="the Sentinels")
        return self

    async def cut_off(self) -> None:
        """What stands on the primary now is on the replica; what is written from now on never reaches it."""
        assert await ask(self.primary.port, "WAIT", 1, 4_000) == 1
        await ask(self.primary.port, "ACL", "SETUSER", "replica", "off")
        assert await ask(self.primary.port, "CLIENT", "KILL", "USER", "replica") == 1

    async def __aexit__(self, *_: object) -> None:
        await self.stack.aclose()

    @property
    def url(self) -> str:
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{s.port}" for s in self.sentinels) + "/tr"


class ClusterSet:
    """Primaries that share the slots; ``replicas`` of the first one; ``empty`` nodes without slots."""

    def __init__(self, primaries: int = 3, *, replicas: int = 0, empty: int = 0) -> None:
        self.count = primaries
        self.replicas = replicas
        self.empty = empty

    async def __aenter__(self) -> "ClusterSet":
        self.stack = contextlib.AsyncExitStack()
        self.nodes: list[Server] = []
        for _ in range(self.count + self.replicas + self.empty):
            node = Server(
                *("--cluster-enabled", "yes", "--cluster-node-timeout", "1000"),
                *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"),
            )
            self.nodes.append(await self.stack.enter_async_context(node))
        for index in range(self.count):
            first, last = 16384 * index // self.count, 16384 * (index + 1) // self.count - 1
            await ask(self.nodes[index].port, "CLUSTER", "ADDSLOTS", *range(first, last + 1))
            await ask(self.nodes[index].port, "CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        for node in self.nodes[1:]:
            await ask(self.nodes[0].port, "CLUSTER", "MEET", "127.0.0.1", node.port)

        async def whole() -> bool:
            for node in self.nodes:
                info = await ask(node.port, "CLUSTER", "INFO")
                assert isinstance(info, bytes)
                if b"cluster_state:ok" not in info or b"cluster_known_nodes:%d\r" % len(self.nodes) not in info:
                    return False
            return True

        await until(whole, 15, what="the Cluster")
        first = await ask(self.nodes[0].port, "CLUSTER", "MYID")
        assert isinstance(first, bytes)
        for node in self.nodes[self.count : self.count + self.replicas]:
            await ask(node.port, "CLUSTER", "REPLICATE", first)

            async def synced(port: int = node.port) -> bool:
                return b"master_link_status:up" in await ask(port, "INFO", "replication")  # type: ignore[operator]

            await until(synced, 15, what="the replica")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stack.aclose()

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{n.port}" for n in self.nodes[:2])


async def connected(server: Server) -> Connection:
    connection = Connection(server.endpoint)
    await connection.start()
    return connection
