"""Which client carries the bus? The same work by four clients, against one server, each in a process of its own.

    python -m benchmarks.connection_spike [--rounds 3]

Measured per command, a script of one PUBLISH of 300 bytes: p50 and p99 with one caller, rate and this process' CPU with
64 callers, bytes to the server. Then what happens to a caller's neighbours when it is cancelled, how long after the
server's kill the client serves again, and whether a command whose answer was lost is sent twice. The rounds of the
clients are interleaved; medians are printed.
"""

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import uvloop

from tests.doubles.tcp_proxy import TcpProxy
from tests.doubles.valkey_servers import Server, ask, until

SOURCE = "return redis.call('PUBLISH', KEYS[1], ARGV[1])"
PAYLOAD = b"x" * 300
COMMANDS = 20_000
CALLERS = 64

COLUMNS = ("p50_us", "p99_us", "per_s", "cpu_us", "bytes", "wrong", "connections", "executions", "back_ms")

Run = Callable[[], Awaitable[object]]
Raw = Callable[..., Awaitable[object]]
Client = AsyncGenerator[tuple[Run, Raw]]


@contextlib.asynccontextmanager
async def own(port: int) -> Client:
    from gateway.bus.connect import Endpoint
    from gateway.bus.connection import Connection
    from gateway.bus.wire import Script

    script = Script(SOURCE)
    connection = Connection(Endpoint("127.0.0.1", port))
    connection.register([script])
    await connection.start()

    async def raw(*args: Any) -> object:
        return await connection.call(*args)

    async def run() -> object:
        return await connection.run(script, ["c"], [PAYLOAD])

    yield run, raw
    await connection.close()


@contextlib.asynccontextmanager
async def pool(port: int) -> Client:
    import redis.asyncio as redis

    client = redis.Redis(port=port, max_connections=CALLERS + 1)
    script = client.register_script(SOURCE)

    async def run() -> object:
        return await script(keys=["c"], args=[PAYLOAD])

    yield run, client.execute_command
    await client.aclose()


@contextlib.asynccontextmanager
async def pump(port: int) -> Client:
    """redis-py on one connection: what a turn of the loop asked goes out as one pipeline."""
    import redis.asyncio as redis

    client = redis.Redis(port=port, single_connection_client=True)
    await client.initialize()
    sha = await client.script_load(SOURCE)
    loop = asyncio.get_running_loop()
    waiting: list[tuple[asyncio.Future[object], tuple[object, ...]]] = []
    wake = asyncio.Event()

    async def work() -> None:
        while True:
            await wake.wait()
            wake.clear()
            batch, waiting[:] = list(waiting), []
            if not batch:
                continue
            pipeline = client.pipeline(transaction=False)
            for _, args in batch:
                pipeline.execute_command(*args)
            try:
                answers: list[Any] = await pipeline.execute(raise_on_error=False)
            except Exception as error:
                answers = [error] * len(batch)
            for (future, _), reply in zip(batch, answers, strict=True):
                if not future.done():
                    if isinstance(reply, Exception):
                        future.set_exception(reply)
                    else:
                        future.set_result(reply)

    task = loop.create_task(work())

    def raw(*args: Any) -> Awaitable[object]:
        future: asyncio.Future[object] = loop.create_future()
        waiting.append((future, args))
        wake.set()
        return future

    yield lambda: raw("EVALSHA", sha, 1, "c", PAYLOAD), raw
    task.cancel()
    await client.aclose()


@contextlib.asynccontextmanager
async def glide(port: int) -> Client:
    api: Any = importlib.import_module("glide")  # pip install valkey-glide: no dependency of ours
    settings = api.GlideClientConfiguration(
        [api.NodeAddress("127.0.0.1", port)],
        request_timeout=5_000,
        advanced_config=api.AdvancedGlideClientConfiguration(connection_timeout=5_000),
    )
    client = await api.GlideClient.create(settings)
    script = api.Script(SOURCE)

    async def raw(*args: Any) -> object:
        return await client.custom_command([a if isinstance(a, bytes) else str(a) for a in args])

    async def run() -> object:
        return await client.invoke_script(script, keys=["c"], args=[PAYLOAD])

    yield run, raw
    await client.close()


CLIENTS = {"redis-py pool": pool, "redis-py pump": pump, "valkey-glide": glide, "own protocol": own}


async def bytes_in(port: int) -> int:
    info = await ask(port, "INFO", "stats")
    assert isinstance(info, bytes)
    return int(info.split(b"total_net_input_bytes:")[1].split()[0])


async def speed(run: Run, port: int) -> dict[str, float]:
    for _ in range(500):
        await run()
    took: list[float] = []
    for _ in range(3_000):
        began = time.perf_counter()
        await run()
        took.append(time.perf_counter() - began)
    took.sort()

    async def caller(count: int) -> None:
        for _ in range(count):
            await run()

    before = await bytes_in(port)
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller(COMMANDS // CALLERS) for _ in range(CALLERS)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - began
    done = COMMANDS // CALLERS * CALLERS
    return {
        "p50_us": took[len(took) // 2] * 1e6,
        "p99_us": took[len(took) * 99 // 100] * 1e6,
        "per_s": done / wall,
        "cpu_us": cpu / done * 1e6,
        "bytes": (await bytes_in(port) - before) / done,
    }


async def cancellation(name: str, port: int) -> dict[str, float]:
    """A third of 2,000 ECHOs is cancelled behind a delaying proxy: wrong answers, and connections that it took."""
    async with TcpProxy(("127.0.0.1", port), delay_s=0.002) as proxy:
        async with CLIENTS[name](proxy.port) as (_, raw):
            wrong = 0

            async def caller(who: int) -> None:
                nonlocal wrong
                for n in range(40):
                    task = asyncio.ensure_future(raw("ECHO", f"{who}:{n}"))
                    if (who + n) % 3 == 0:
                        await asyncio.sleep((who * 7 + n) % 10 / 2000)
                        task.cancel()
                    try:
                        wrong += await task != f"{who}:{n}".encode()
                    except asyncio.CancelledError:
                        pass
                    except Exception:
                        wrong += 1

            await asyncio.gather(*(caller(who) for who in range(50)))
            return {"wrong": wrong, "connections": proxy.accepted}


async def lost_answer(name: str) -> dict[str, float]:
    """One INCR whose answer is lost after its execution: how often did it run? Then the server's kill and return."""
    async with Server() as server, TcpProxy(("127.0.0.1", server.port)) as proxy:
        async with CLIENTS[name](proxy.port) as (_, raw):
            await raw("SET", "n", 0)
            proxy.down.clear()
            task = asyncio.ensure_future(raw("INCR", "n"))

            async def ran() -> bool:
                return await ask(server.port, "GET", "n") != b"0"

            await until(ran)
            proxy.cut()
            proxy.down.set()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(task, 15)
            await asyncio.sleep(1)
            count = await ask(server.port, "GET", "n")
    async with Server() as server, CLIENTS[name](server.port) as (_, raw):
        await raw("PING")
        await server.stop()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(raw("PING"), 1)
        await server.start()
        began = time.perf_counter()
        while time.perf_counter() - began < 20:
            try:
                await asyncio.wait_for(raw("PING"), 1)
                break
            except Exception:
                await asyncio.sleep(0.005)
        back = time.perf_counter() - began
    assert isinstance(count, bytes)
    return {"executions": int(count), "back_ms": back * 1000}


async def one(name: str, port: int, *, faults: bool) -> None:
    async with CLIENTS[name](port) as (run, _):
        result = await speed(run, port)
    if faults:
        for fault in (cancellation(name, port), lost_answer(name)):
            try:
                result |= await fault
            except Exception as error:  # a client that cannot do it must not hide its speed
                print(f"{name}: {error!r}", file=sys.stderr)
    print(json.dumps(result))


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--client", choices=CLIENTS)
    parser.add_argument("--port", type=int)
    parser.add_argument("--faults", action="store_true")
    options = parser.parse_args()
    if options.client:
        await one(options.client, options.port, faults=options.faults)
        return
    results: dict[str, list[dict[str, float]]] = {name: [] for name in CLIENTS}
    async with Server() as server:
        for number in range(options.rounds):
            for name, rows in results.items():
                args = [
                    sys.executable,
                    "-m",
                    "benchmarks.connection_spike",
                    "--client",
                    name,
                    "--port",
                    str(server.port),
                ]
                process = await asyncio.create_subprocess_exec(
                    *args, *(["--faults"] if number == 0 else []), stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
                out, err = await asyncio.wait_for(process.communicate(), 120)
                if number == 0:
                    sys.stderr.write(err.decode())
                if process.returncode:
                    print(f"{name}: not measured: {err.decode().strip().splitlines()[-1]}", file=sys.stderr)
                    continue
                rows.append(json.loads(out.splitlines()[-1]))
    print(f"python {sys.version.split()[0]}, uvloop, {os.cpu_count()} cores, medians of {options.rounds} rounds\n")
    print("| client | p50 µs | p99 µs | commands/s | CPU µs | bytes | wrong | connections | executions | back ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, rows in results.items():
        if not rows:
            continue
        cells = [
            f"{statistics.median(got):.0f}" if (got := [r[key] for r in rows if key in r]) else "?" for key in COLUMNS
        ]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    uvloop.run(main())
