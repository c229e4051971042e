"""The tables of a run, and the page that keeps them: the measured part of ``docs/performance.md``, between marks."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path

BEGIN = "<!-- measured: written by `make bench` -->"
END = "<!-- end of what was measured -->"
Results = Mapping[str, Mapping[str, float]]

ROWS = (
    ("calls/s at saturation", "calls_per_s", "{:,.0f}"),
    ("p50, one call in flight, ms", "p50_ms", "{:.2f}"),
    ("p99, one call in flight, ms", "p99_ms", "{:.2f}"),
    ("p50 at half load, ms", "half_p50_ms", "{:.2f}"),
    ("p99 at half load, ms", "half_p99_ms", "{:.2f}"),
    ("server CPU s per 1,000 calls", "node_cpu_s", "{:.3f}"),
    ("Redis CPU s per 1,000 calls", "redis_cpu_s", "{:.3f}"),
    ("calls per second of processor time, servers and Redis", "per_processor", "{:,.0f}"),
    ("of the time, a server waited for a processor, %", "waited", "{:.0f}"),
    ("scripts per call, sweeps included", "scripts", "{:.2f}"),
    ("commands per call, inside scripts too", "commands", "{:.1f}"),
    ("bytes to Redis per call", "bytes_in", "{:,.0f}"),
    ("bytes from Redis per call", "bytes_out", "{:,.0f}"),
)


def tables(results: Results, *, rounds: int, busy: float) -> str:
    names = [name for name in results if name != "extremes"]
    lines = ["| | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    lines += [
        f"| {title} | " + " | ".join(form.format(results[name][key]) for name in names) + " |"
        for title, key, form in ROWS
    ]
    two, rec, bare, many = results["two nodes"], results["recording floor"], results["floor"], results["extremes"]
    targets = (
        ("calls/s, of the recording floor's", two["calls_per_s"] / rec["calls_per_s"], "at least", 0.8, ""),
        ("calls/s, of the bare floor's", two["calls_per_s"] / bare["calls_per_s"], "at least", 0.5, ""),
        (
            "calls per processor second, of the recording floor's",
            two["per_processor"] / rec["per_processor"],
            "at least",
            0.8,
            "",
        ),
        ("p50 alone, of the recording floor's", two["p50_ms"] / rec["p50_ms"], "at most", 1.5, ""),
        ("p99 at half load, of the p50 there", two["half_p99_ms"] / two["half_p50_ms"], "at most", 4.0, ""),
        ("a 30 KB result, of a 200 B one (p50)", two["large_p50_ms"] / two["small_p50_ms"], "at most", 3.0, ""),
        ("an idle socket", many["socket_kib"], "at most", 30.0, " KiB"),
        (f"{many['readers']:.0f} readers, 10 events/s: p50", many["readers_p50_ms"], "at most", 100.0, " ms"),
        (f"{many['readers']:.0f} readers, 10 events/s: p99", many["readers_p99_ms"], "at most", 100.0, " ms"),
        (f"{many['readers']:.0f} readers, 10 events/s: the last", many["readers_max_ms"], "at most", 100.0, " ms"),
        (f"{many['readers']:.0f} event streams: the last", many["streams_max_ms"], "at most", 100.0, " ms"),
    )
    lines += ["", "| two nodes | measured | target | |", "| --- | --- | --- | --- |"]
    for title, value, sense, bound, unit in targets:
        reached = value >= bound if sense == "at least" else value <= bound
        lines.append(f"| {title} | {value:.2f}{unit} | {sense} {bound:g}{unit} | {'yes' if reached else '**no**'} |")
    lines += [
        "",
        f"{os.cpu_count()} processors, load {busy:.0f} while it ran, Python {platform.python_version()}, "
        f"medians of {rounds} interleaved rounds, 16 sessions.",
    ]
    return "\n".join(lines)


def write(page: Path, text: str) -> None:
    """Puts the tables between the marks of the page."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", "utf-8")
