"""What many sockets cost: memory per idle one, and one session that a thousand read.

python -m benchmarks.extremes readers          # a thousand readers of one session, three times
python -m benchmarks.extremes sockets          # memory per idle socket, the slope between 200 and 2,000
"""

import argparse
import asyncio
import contextlib
import gc
import os
import time
from collections import Counter
from typing import Final

import uvloop

from benchmarks.measure import cpu_s, percentile, resident_kib
from benchmarks.sockets import Socket, Stream
from benchmarks.systems import Gateway, System, attach, between, gateway, sessions_of
from tests.doubles.valkey_servers import Server

STAMP: Final = b'"summary":"t'
"""What the clock's reading stands behind in the events of the load's child."""


async def idle_socket_kib(system: System, few: int, many: int) -> float:
    """KiB of the edge per socket that is attached to a session of its own: the slope between ``few`` and ``many``."""
    edge = system.pids[-1]
    made = await sessions_of(system.port, few, register=False)
    before = resident_kib(edge)
    made += await sessions_of(system.port, many - few, register=False)
    after = resident_kib(edge)
    for session in made:
        session.socket.close()
    return (after - before) / (many - few)


async def readers(system: System, count: int, *, seconds: float, streams: bool = False) -> dict[str, float]:
    """``count`` readers of one session at ten events a second: from the child's write to each reader, ms. They have a
    WebSocket each, or an event stream.

    One process has all the sockets, on the same processors, so its own reading is in the times. Hence it notes the
    clock and keeps the frame, which it looks into afterwards, and collects no garbage meanwhile. The first event comes
    with those of the run's start, which all readers are given too: some sixty a second, so it counts by itself.
    """
    session = system.sessions[0]
    assert isinstance(session, Gateway)
    times: list[int] = []
    frames: list[bytes] = []

    def on_text(frame: bytes) -> None:
        if STAMP in frame:
            times.append(time.monotonic_ns())
            frames.append(frame)

    made: list[Socket | Stream] = []
    for _ in range(count):
        if streams:
            made.append(await Stream.open(system.port, session.session_id, session.token, on_text))
            continue
        reader = Gateway(await Socket.open(system.port), session.session_id, session.token)
        await attach(reader, register=False)
        reader.socket.on_text = on_text
        made.append(reader.socket)
    events = int(seconds * 10)
    edge = system.pids[-1]
    gc.disable()
    before = cpu_s([edge])
    try:
        async with asyncio.timeout(60):
            await session.order(f"events {events} 100000")
            while len(frames) < count * events:  # noqa: ASYNC110 - other tasks fill it
                await asyncio.sleep(0.05)
    finally:
        gc.enable()
    cpu = cpu_s([edge]) - before
    for reader in made:
        reader.close()
    stamps = [between(frame, STAMP, b"t") for frame in frames]
    heard = Counter(stamps)
    assert len(heard) == events
    assert set(heard.values()) == {count}, "each reader has each event once"
    began = min(map(int, heard))
    both: tuple[list[int], list[int]] = [], []
    for at, stamp in zip(times, stamps, strict=True):
        both[int(stamp) == began].append((at - int(stamp)) // 1000)
    delays, first = map(sorted, both)
    return {
        "readers": count,
        "readers_p50_ms": percentile(delays, 0.5),
        "readers_p99_ms": percentile(delays, 0.99),
        "readers_max_ms": percentile(delays, 1.0),
        "readers_first_ms": percentile(first, 1.0),
        "readers_cpu_us": cpu / len(times) * 1e6,
    }


async def measure(what: str, count: int, rounds: int) -> None:
    """Two nodes of their own; prints each round."""
    async with Server("--maxclients", "10000") as server, contextlib.AsyncExitStack() as stack:
        edge = await stack.enter_async_context(gateway("two nodes", server.port, 1, nodes=2))
        await edge.sessions[0].order("calls 5 200 0")  # the child is there
        for _ in range(rounds):
            if what == "sockets":
                print(f"{await idle_socket_kib(edge, count // 10, count):.2f} KiB a socket")
                continue
            found = await readers(edge, count, seconds=5.0, streams=what == "streams")
            print(
                "{readers:.0f} readers: p50 {readers_p50_ms:.1f} ms, p99 {readers_p99_ms:.1f} ms, the last "
                "{readers_max_ms:.1f} ms, the run's first event {readers_first_ms:.1f} ms; {readers_cpu_us:.1f} µs of "
                "the edge's processor for each reader and event (load {load:.1f})".format(
                    **found, load=os.getloadavg()[0]
                ),
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["readers", "streams", "sockets"])
    parser.add_argument("--count", type=int)
    parser.add_argument("--rounds", type=int)
    wanted = parser.parse_args()
    many, rounds = (2_000, 1) if wanted.what == "sockets" else (1_000, 3)
    uvloop.run(measure(wanted.what, wanted.count or many, wanted.rounds or rounds))


if __name__ == "__main__":
    main()
