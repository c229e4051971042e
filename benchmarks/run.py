"""What one call costs: the floors and the gateway, side by side in one run.

    python -m benchmarks.run            # under two minutes: `make bench-quick`
    python -m benchmarks.run --report   # longer, and docs/performance.md is written: `make bench`

Rounds are interleaved (each round measures every system), and medians are printed: on a machine that is shared the
ratios within one run count, the times do not.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import time
from collections import defaultdict
from pathlib import Path

import uvloop

from adapters.stdio.lineage import REQUESTS_OF_A_GENERATION
from benchmarks import extremes, report
from benchmarks.measure import counters, cpu_s, latencies, percentile, waited_s
from benchmarks.systems import System, floor, gateway
from gateway.model.limits import CHILD_REQUEST_IDS
from tests.doubles.valkey_servers import Server

SESSIONS = 16
MOST = CHILD_REQUEST_IDS - REQUESTS_OF_A_GENERATION
"""Calls of one order: a child serves so many in any run, since a nearly spent one is replaced only between two."""
Figures = dict[str, float]


async def ordered(system: System, sessions: int, order: str, limit_s: float) -> tuple[list[int], float]:
    """Gives an order to so many sessions: the latencies, and the seconds that it took."""
    latencies(system.out)
    began = time.perf_counter()
    async with asyncio.timeout(limit_s):
        await asyncio.gather(*(session.order(order) for session in system.sessions[:sessions]))
    return latencies(system.out), time.perf_counter() - began


async def one_round(system: System, seconds: float, rate: float) -> Figures:
    """One caller, then all at once, then all at half of that. ``rate``: calls/s of the last round, for the counts."""
    figures: Figures = {}
    alone, _ = await ordered(system, 1, f"calls {max(60, min(MOST, int(250 * seconds)))} 200 0", 60)
    figures["p50_ms"], figures["p99_ms"] = percentile(alone, 0.5), percentile(alone, 0.99)
    each = min(MOST, max(20, int(rate * seconds / SESSIONS)))
    before, cpu, redis = await counters(system.redis), cpu_s(system.pids), cpu_s([system.redis_pid])
    waited = waited_s(system.pids)
    taken, elapsed = await ordered(system, SESSIONS, f"calls {each} 200 0", 90)
    figures["waited"] = (waited_s(system.pids) - waited) / elapsed / len(system.pids) * 100
    calls = len(taken)
    figures["node_cpu_s"] = (cpu_s(system.pids) - cpu) / calls * 1000
    figures["redis_cpu_s"] = (cpu_s([system.redis_pid]) - redis) / calls * 1000
    figures["per_processor"] = 1000 / (figures["node_cpu_s"] + figures["redis_cpu_s"])
    used = (await counters(system.redis)).less(before)
    figures["calls_per_s"] = calls / elapsed
    figures["scripts"], figures["commands"] = used.scripts / calls, used.commands / calls
    figures["bytes_in"], figures["bytes_out"] = used.bytes_in / calls, used.bytes_out / calls
    period = int(SESSIONS / (figures["calls_per_s"] / 2) * 1e6)
    half, _ = await ordered(
        system, SESSIONS, f"calls {max(10, min(MOST, int(seconds * 1e6 / period)))} 200 {period}", 90
    )
    figures["half_p50_ms"], figures["half_p99_ms"] = percentile(half, 0.5), percentile(half, 0.99)
    return figures


async def sizes(system: System, calls: int) -> Figures:
    """A large result against a small one, with one caller; interleaved."""
    found: dict[int, list[float]] = defaultdict(list)
    for _ in range(5):
        for size in (200, 30_000):
            taken, _ = await ordered(system, 1, f"calls {calls} {size} 0", 60)
            found[size].append(percentile(taken, 0.5))
    return {"small_p50_ms": statistics.median(found[200]), "large_p50_ms": statistics.median(found[30_000])}


async def measure(rounds: int, seconds: float, *, full: bool) -> dict[str, Figures]:
    found: dict[str, list[Figures]] = defaultdict(list)
    results: dict[str, Figures] = {}
    # What is logged stays in memory: the disk is not what is measured.
    async with Server("--maxclients", "10000") as server, contextlib.AsyncExitStack() as stack:
        systems = [
            await stack.enter_async_context(floor("floor", server.port, SESSIONS, record=False)),
            await stack.enter_async_context(floor("recording floor", server.port, SESSIONS, record=True)),
            await stack.enter_async_context(gateway("one node", server.port, SESSIONS, nodes=1)),
            await stack.enter_async_context(gateway("two nodes", server.port, SESSIONS, nodes=2)),
        ]
        rates: dict[str, float] = {}
        for system in systems:
            system.redis_pid = server.pid
            await ordered(system, SESSIONS, "calls 5 200 0", 90)  # children, connections and caches are there
            taken, elapsed = await ordered(system, SESSIONS, "calls 20 200 0", 90)
            rates[system.name] = len(taken) / elapsed
        for number in range(rounds):
            for system in systems:
                figures = await one_round(system, seconds, rates[system.name])
                found[system.name].append(figures)
                rates[system.name] = figures["calls_per_s"]
            print(f"round {number + 1} of {rounds}", flush=True)
        for name, rows in found.items():
            results[name] = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        results["two nodes"] |= await sizes(systems[3], 60 if full else 25)
        edge = systems[3]
        readers, seconds_of_readers = (1_000, 5.0) if full else (300, 3.0)
        streams = await extremes.readers(edge, readers, seconds=seconds_of_readers, streams=True)
        results["extremes"] = {
            "socket_kib": await extremes.idle_socket_kib(edge, *((200, 2_000) if full else (100, 500))),
            **await extremes.readers(edge, readers, seconds=seconds_of_readers),
            "streams_max_ms": streams["readers_max_ms"],
        }
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", action="store_true", help="the long run; writes docs/performance.md")
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    rounds = arguments.rounds or (7 if arguments.report else 3)
    began = time.perf_counter()
    busy = os.getloadavg()[0]
    results = uvloop.run(measure(rounds, 3.0 if arguments.report else 1.0, full=arguments.report))
    text = report.tables(results, rounds=rounds, busy=max(busy, os.getloadavg()[0]))
    print(text)
    print(f"took {time.perf_counter() - began:.0f} s")
    if arguments.report:
        report.write(Path("docs/performance.md"), text)


if __name__ == "__main__":
    main()
