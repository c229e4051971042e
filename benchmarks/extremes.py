"""What many sockets cost: memory per idle one, and one session that a thousand read."""

import asyncio
import time

from benchmarks.measure import percentile, resident_kib
from benchmarks.sockets import Socket
from benchmarks.systems import Gateway, System, attach, sessions_of


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


async def readers(system: System, count: int, *, seconds: float) -> dict[str, float]:
    """``count`` readers of one session at ten events a second: from the child's write to each reader, ms.

    One process has all the sockets, so its own reading is in the times.
    """
    session = system.sessions[0]
    assert isinstance(session, Gateway)
    delays: list[int] = []
    heard: dict[bytes, int] = {}

    def on_text(frame: bytes) -> None:
        at = frame.find(b'"summary":"t')
        if at >= 0:
            stamp = frame[at + 12 : frame.index(b"t", at + 12)]
            delays.append((time.monotonic_ns() - int(stamp)) // 1000)
            heard[stamp] = heard.get(stamp, 0) + 1

    made: list[Gateway] = []
    for _ in range(count):
        reader = Gateway(await Socket.open(system.port), session.session_id, session.token)
        await attach(reader, register=False)
        reader.socket.on_text = on_text
        made.append(reader)
    events = int(seconds * 10)
    async with asyncio.timeout(60):
        await session.order(f"events {events} 100000")
        while len(delays) < count * events:  # noqa: ASYNC110 - other tasks fill it
            await asyncio.sleep(0.05)
    for reader in made:
        reader.socket.close()
    assert len(heard) == events
    assert set(heard.values()) == {count}, "each reader has each event once"
    delays.sort()
    return {
        "readers": count,
        "readers_p50_ms": percentile(delays, 0.5),
        "readers_p99_ms": percentile(delays, 0.99),
        "readers_max_ms": percentile(delays, 1.0),
    }
