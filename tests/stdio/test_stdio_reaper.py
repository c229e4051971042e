"""Nothing outlives its node (bridge 9; faults 1; known failures F10, F11)."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapters.stdio.reaper import Reaper
from adapters.stdio.reaper_process import kill_session, session_members, start_time

ROOT = Path(__file__).parents[2]

NODE = """
import asyncio, os, signal, sys
from pathlib import Path
from adapters.stdio.child import spawn
from adapters.stdio.launch import LaunchSpec
from adapters.stdio.reaper import Reaper

async def main():
    reaper, up = Reaper(), asyncio.Event()
    child = await spawn(LaunchSpec((sys.executable, "-S", sys.argv[1]), Path("/")), lambda _: up.set(), reaper=reaper)
    await up.wait()
    print(os.getpid(), child.pid, reaper.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""

CHILD = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
jobs = [subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **kind)
        for kind in ({}, {"process_group": 0})]
for job in jobs:
    job.stdout.readline()
print("up", flush=True)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(condition: Callable[[], object], within: float = 5.0) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.02)


@pytest.fixture
def sleeper() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Processes, each leader of its own session."""
    processes: list[subprocess.Popen[bytes]] = []

    def begin() -> subprocess.Popen[bytes]:
        processes.append(subprocess.Popen(["sleep", "600"], start_new_session=True))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("reaper_dies_first", [False, True])
def test_a_node_killed_by_sigkill_leaves_nothing(tmp_path: Path, reaper_dies_first: bool):
    (tmp_path / "child.py").write_text(CHILD)
    node = subprocess.Popen(
        [sys.executable, "-c", NODE, str(tmp_path / "child.py")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    child = 0
    try:
        assert node.stdout is not None
        _, child, reaper = map(int, node.stdout.readline().split())
        assert len(session_members(child)) == 3
        assert os.getsid(reaper) == reaper, "a terminal's signals do not end it"
        if reaper_dies_first:
            os.kill(reaper, signal.SIGKILL)
        node.kill()
        node.wait()
        if reaper_dies_first:
            until(lambda: not alive(child))  # what the kernel does by itself
        else:
            until(lambda: not session_members(child) and not alive(reaper))
    finally:
        node.kill()
        node.wait()
        if child:
            kill_session(child)
        assert node.stdout is not None
        node.stdout.close()


def test_what_is_registered_is_killed_at_the_end_and_what_is_not_is_let_be(
    sleeper: Callable[[], subprocess.Popen[bytes]],
):
    reaper = Reaper()
    registered, unregistered, stranger = sleeper(), sleeper(), sleeper()
    reaper.register(registered.pid)
    reaper.register(unregistered.pid)
    reaper.unregister(unregistered.pid)
    reaper.close()
    assert registered.wait(5) == -signal.SIGKILL
    assert unregistered.poll() is None
    assert stranger.poll() is None


def test_a_reaper_that_was_killed_is_replaced_and_told_everything(sleeper: Callable[[], subprocess.Popen[bytes]]):
    reaper = Reaper()
    first, second = sleeper(), sleeper()
    reaper.register(first.pid)
    old = reaper.pid
    assert old is not None
    os.kill(old, signal.SIGKILL)
    until(lambda: not alive(old))
    assert first.poll() is None
    reaper.register(second.pid)
    assert reaper.restarts == 1
    assert reaper.pid != old
    reaper.close()
    assert first.wait(5) == second.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_reaper_is_not_ended_by_what_ends_a_node(
    sleeper: Callable[[], subprocess.Popen[bytes]], number: signal.Signals
):
    reaper = Reaper()
    process = sleeper()
    reaper.register(process.pid)
    assert reaper.pid is not None
    status = Path(f"/proc/{reaper.pid}/status")
    until(lambda: int(status.read_text().split("SigIgn:\t")[1].split()[0], 16) >> (number - 1) & 1)
    os.kill(reaper.pid, number)
    reaper.close()
    assert process.wait(5) == -signal.SIGKILL


def test_the_reaper_holds_nothing_of_its_node(sleeper: Callable[[], subprocess.Popen[bytes]]):
    reaper = Reaper()
    with contextlib.closing(reaper):
        reaper.register(sleeper().pid)
        folder = Path(f"/proc/{reaper.pid}")
        until(lambda: "reaper_process.py" in (folder / "cmdline").read_text())
        until(lambda: sorted(os.listdir(folder / "fd")) == ["0", "1", "2"])  # once its own program is read
        assert os.readlink(folder / "fd/1") == os.readlink(folder / "fd/2") == "/dev/null"
        assert (folder / "environ").read_text() == ""
        resident = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        assert resident < 16 * 1024 * 1024


def test_a_number_that_another_process_has_got_is_let_be(sleeper: Callable[[], subprocess.Popen[bytes]]):
    process = sleeper()
    start = start_time(process.pid)
    assert start > 0
    assert kill_session(process.pid, start + 1) == 0
    assert process.poll() is None
    assert kill_session(process.pid, start) == 0
    assert process.wait(5) == -signal.SIGKILL
    assert start_time(2**22 + 1) == 0


@pytest.mark.parametrize("sid", [-1, 0, 1])
def test_a_sweep_never_goes_beyond_a_session_of_ours(sid: int):
    assert kill_session(sid) == 0
