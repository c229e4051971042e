"""The floor: what the way of a call costs when nobody does anything on it.

    python -m benchmarks.floor owner|edge REDIS_PORT SESSIONS [record]

Two processes with uvloop, websockets and the bus' own connection. The owner's children ask by a line; it is published,
the other process sends it to the session's WebSocket client; the client's answer is published, and the owner writes it
to the child. No record, no check, no deadline, no redaction. ``record``: each of the two hops is a script that also
appends to a stream, which is the least that a gateway can do whose log is the truth.

The owner runs ``sys.argv`` behind ``--`` as its children. Each prints a line when it is ready: the edge its port.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from functools import partial

import uvloop
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from gateway.bus.connect import Endpoint
from gateway.bus.connection import Connection
from gateway.bus.subscriber import Subscriber
from gateway.bus.wire import Script

RECORD = Script(
    "redis.call('XADD', KEYS[1], 'MAXLEN', '~', 10000, '*', 'e', ARGV[2])"
    " return redis.call('PUBLISH', ARGV[1], ARGV[2])"
)


class Bus:
    """One command connection, one subscription connection."""

    def __init__(self, port: int, *, record: bool) -> None:
        self.commands = Connection(Endpoint("127.0.0.1", port))
        self.commands.register([RECORD])
        self.subscriber = Subscriber(Endpoint("127.0.0.1", port), commands=self.commands)
        self._record = record
        self._prefix = "rec" if record else "floor"

    def channel(self, name: str) -> bytes:
        return f"{self._prefix}:{name}".encode()

    def publish(self, name: str, log: int, payload: bytes) -> None:
        channel = self.channel(name)
        if self._record:
            self.commands.run(RECORD, [f"{self._prefix}:log:{log}"], [channel, payload])
        else:
            self.commands.call("PUBLISH", channel, payload)


async def owner(bus: Bus, sessions: int, command: list[str]) -> None:
    loop = asyncio.get_running_loop()
    pipes: list[int] = []
    rests: dict[int, bytes] = {}

    def read(number: int, descriptor: int) -> None:
        *whole, rests[number] = (rests.get(number, b"") + os.read(descriptor, 65536)).split(b"\n")
        for line in whole:
            bus.publish(f"s{number}", number, line)

    def answered(message: bytes) -> None:
        number, _, answer = message.partition(b" ")
        os.write(pipes[int(number)], answer + b"\n")

    for number in range(sessions):
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: ASYNC220 - once
        assert child.stdin is not None
        assert child.stdout is not None
        pipes.append(child.stdin.fileno())
        loop.add_reader(child.stdout.fileno(), partial(read, number, child.stdout.fileno()))
    await bus.subscriber.subscribe(bus.channel("owner"), answered)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


async def edge(bus: Bus) -> None:
    async def serve_one(socket: ServerConnection) -> None:
        assert socket.request is not None
        number = int(socket.request.path.rpartition("/")[2])
        waiting: asyncio.Queue[bytes] = asyncio.Queue()
        await bus.subscriber.subscribe(bus.channel(f"s{number}"), waiting.put_nowait)

        async def write() -> None:
            while True:
                await socket.send(await waiting.get(), text=True)

        async with asyncio.TaskGroup() as group:
            writer = group.create_task(write())
            prefix = b"%d " % number
            with contextlib.suppress(ConnectionClosed):
                async for message in socket:
                    assert isinstance(message, str)
                    bus.publish("owner", number, prefix + message.encode())
            writer.cancel()

    async with serve(serve_one, "127.0.0.1", 0, compression=None, ping_interval=20) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def main(role: str, port: int, sessions: int, *, record: bool, command: list[str]) -> None:
    bus = Bus(port, record=record)
    await bus.commands.start()
    await bus.subscriber.start()
    await (owner(bus, sessions, command) if role == "owner" else edge(bus))
    os._exit(0)


if __name__ == "__main__":
    mine, _, rest = " ".join(sys.argv[1:]).partition(" -- ")
    kind, redis_port, count, *more = mine.split()
    uvloop.run(main(kind, int(redis_port), int(count), record="record" in more, command=rest.split()))
