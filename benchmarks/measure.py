"""What a machine says of a run: processor time from /proc, commands and bytes from Redis, the children's latencies."""

import os
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.doubles.valkey_servers import ask

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: Iterable[int]) -> float:
    """Seconds that these processes have run, from the scheduler's own count in ns."""
    total = 0.0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0]) / 1e9
    return total


def resident_kib(pid: int) -> int:
    """Memory that is the process' own (anonymous, resident)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise RuntimeError("no RssAnon")


def waited_s(pids: Iterable[int]) -> float:
    """Seconds that these processes were ready to run and had no processor: other load of the machine."""
    total = 0.0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[1]) / 1e9
    return total


@dataclass(frozen=True)
class Counters:
    """Of one Redis: runs of scripts, commands outside them, bytes both ways."""

    scripts: int
    commands: int
    bytes_in: int
    bytes_out: int

    def less(self, other: "Counters") -> "Counters":
        return Counters(
            self.scripts - other.scripts,
            self.commands - other.commands,
            self.bytes_in - other.bytes_in,
            self.bytes_out - other.bytes_out,
        )


async def counters(port: int) -> Counters:
    def number(text: str, name: str) -> int:
        return int(text.split(f"{name}:")[1].split(maxsplit=1)[0])

    commands = await ask(port, "INFO", "commandstats")
    stats = await ask(port, "INFO", "stats")
    assert isinstance(commands, bytes)
    assert isinstance(stats, bytes)
    calls: dict[str, int] = {}
    for line in commands.decode().splitlines():
        if line.startswith("cmdstat_"):
            name, _, rest = line[8:].partition(":")
            calls[name] = int(rest.split("=")[1].split(",")[0])
    scripts = calls.get("evalsha", 0) + calls.get("eval", 0)
    return Counters(
        scripts,
        sum(calls.values()) - scripts,
        number(stats.decode(), "total_net_input_bytes"),
        number(stats.decode(), "total_net_output_bytes"),
    )


def latencies(out: Path) -> list[int]:
    """What the children have written since the last time, sorted, in microseconds."""
    taken = array("I")
    for file in out.iterdir():
        if file.is_file() and file.suffix[1:].isdigit():
            taken.frombytes(file.read_bytes())
            file.unlink()
    return sorted(taken)


def percentile(values: list[int], part: float) -> float:
    """In milliseconds."""
    return values[min(len(values) - 1, int(len(values) * part))] / 1000
