"""The guard: what one call costs is asserted, in counts that no other load of the machine changes (``bounds``)."""

import asyncio
import os
import re
import resource
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

from adapters.websocket import protocol
from benchmarks.systems import Gateway, System, gateway
from gateway.bus.connect import Endpoint, Login, open_wire
from gateway.bus.errors import Kind
from gateway.bus.scripts import Bounds as ScriptBounds
from gateway.bus.scripts import Scripts
from gateway.bus.wire import Bounds, Script
from gateway.services.feeds import Feed, Reader
from tests.doubles.valkey_servers import Server
from tests.guard import bounds

SCRIPTS = {value.sha: name for name, value in vars(Scripts(ScriptBounds())).items() if isinstance(value, Script)}
ROOT = Path(__file__).parents[2]
LINE = re.compile(rb"\+?[\d.]+ \[(\d+) (\S+)\] (.*)")
WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
ESCAPE = re.compile(rb"\\(?:x..|.)")


class Monitor:
    """What a server is asked, by MONITOR: commands that name one session, those inside scripts left out."""

    def __init__(self, session_id: str) -> None:
        self._session = session_id.encode()
        self.commands: list[tuple[str, int]] = []  # the script's or the command's name, the bytes of its arguments
        self.ended = asyncio.Event()

    def heard(self, reply: object) -> None:
        found = LINE.match(cast(bytes, reply))
        if found is None or found[2] == b"lua":
            return
        words = cast("list[bytes]", WORD.findall(found[3]))
        if words[0].upper() == b"ECHO":
            self.ended.set()
        elif any(self._session in word for word in words):
            name = SCRIPTS.get(words[1], words[1].decode()) if words[0].upper() == b"EVALSHA" else words[0].decode()
            self.commands.append((name, sum(len(ESCAPE.sub(b".", word)) for word in words)))


async def _asked(system: System, session: Gateway, port: int, calls: int) -> list[tuple[str, int]]:
    """What a run of so many calls asks of Redis for its session."""
    monitor = Monitor(session.session_id)
    watching = await open_wire(Endpoint("127.0.0.1", port), Login(), Bounds(), timeout=5)
    asking = await open_wire(Endpoint("127.0.0.1", port), Login(), Bounds(), timeout=5)
    try:
        async with asyncio.timeout(60):
            await watching.send(("MONITOR",))
            watching.listen(monitor.heard)
            await session.order(f"calls {calls} 200 0")
            await asking.send(("ECHO", "end"))
            await monitor.ended.wait()
    finally:
        watching.abort(Kind.CLOSED)
        asking.abort(Kind.CLOSED)
    return monitor.commands


@pytest.mark.parametrize("acks", [False, True])
async def test_scripts_and_bytes_of_a_call_through_two_nodes(acks: bool) -> None:
    scripts = bounds.SCRIPTS_ACKED if acks else bounds.SCRIPTS_ANSWERED_AT_ONCE
    few, more = 5, 25
    async with Server() as server, gateway("guard", server.port, 1, nodes=2, acks=acks) as system:
        session = cast(Gateway, system.sessions[0])
        await session.order("calls 2 200 0")  # the child is there, and its list
        short = await _asked(system, session, server.port, few)
        long = await _asked(system, session, server.port, more)
    # What a run costs whatever its calls is in both.
    grown = Counter(name for name, _ in long)
    grown.subtract(name for name, _ in short)
    assert +grown == dict.fromkeys(scripts, more - few), "nothing but these scripts, once a call"
    size = (sum(size for _, size in long) - sum(size for _, size in short)) / (more - few)
    print(f"{size:,.0f} bytes a call")
    assert size <= bounds.BYTES_TO_REDIS + bounds.BYTES_OF_AN_ACK * acks


def test_an_event_is_encoded_once_whatever_the_number_of_readers() -> None:
    feed = Feed("s")
    readers = [Reader(cast(Any, None), feed, 0, deltas=False) for _ in range(1_000)]
    feed.readers.update(readers)
    feed.receive(b'E{"seq":1,"type":"tool_call"}\n{"seq":2,"type":"tool_result"}')
    with patch.object(protocol, "_encode", side_effect=AssertionError("an event was encoded for a reader")):
        seen: dict[int, set[int]] = {}
        frames: set[bytes] = set()
        for reader in readers:
            entries = reader.poll()
            assert isinstance(entries, list)
            for entry in entries:
                seen.setdefault(entry.seq, set()).add(id(entry.event))
                frames.add(protocol.event(protocol.push_head("s"), entry.event))
    assert {seq: len(made) for seq, made in seen.items()} == dict.fromkeys((1, 2), bounds.ENCODINGS_PER_EVENT)
    assert len(frames) == 2


@pytest.mark.skipif(shutil.which("callgrind_control") is None, reason="this machine lacks valgrind (instructions)")
def test_instructions_of_a_call_in_process(tmp_path: Path) -> None:
    calls = 30
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={tmp_path / 'out'}"]
    command += [sys.executable, "-m", "tests.guard.one_call", str(calls), "gate"]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    pipe = subprocess.PIPE
    # Only what lies between the gates is counted; the start would be a hundred times as much.
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        killer = threading.Timer(300, process.kill)
        killer.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            for line, wanted in ((b"warm\n", "on"), (b"done\n", "off")):
                said = process.stdout.readline()
                assert said == line, process.communicate()[1][-2_000:]
                told = ["callgrind_control", "-i", wanted, str(process.pid)]
                control = subprocess.run(told, capture_output=True, check=False, timeout=60)
                if control.returncode != 0:
                    pytest.skip("this machine lacks a valgrind that can be told when to count (instructions)")
                process.stdin.write(b"\n")
                process.stdin.flush()
            _, errors = process.communicate()
        finally:
            killer.cancel()
            process.kill()
    found = re.search(rb"Collected : (\d+)", errors)
    assert found is not None, errors[-2_000:]
    each = int(found[1]) / calls
    print(f"{each:,.0f} instructions a call")
    assert 0 < each <= bounds.INSTRUCTIONS, f"{each:,.0f} instructions a call"


def _cpu_s(*command: str) -> float:
    """The least processor time of a few starts: what it needs, whatever else runs."""
    least = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


def test_help_is_quick() -> None:
    toolrelay = str(Path(sys.executable).with_name("toolrelay"))
    ratio = _cpu_s(toolrelay, "--help") / _cpu_s(sys.executable, "-c", "pass")
    print(f"{ratio:.1f} starts of Python")
    assert ratio <= bounds.HELP_STARTS
