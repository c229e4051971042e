"""The ends of a child process, asked for or not (bridge 9; faults 14, 15, 18; known failures F)."""

import asyncio
import signal
import sys
import time
from pathlib import Path

import pytest

from adapters.stdio.child import (
    ChildBounds,
    ChildGoneError,
    ChildStalledError,
    Exited,
    Stalled,
    spawn,
)
from adapters.stdio.events import EndOfOutput, LostRequest, Noise
from adapters.stdio.frames import Diagnostic
from adapters.stdio.launch import LaunchSpec
from adapters.stdio.reaper import Reaper
from adapters.stdio.reaper_process import session_members
from gateway.model.clean import ModelText
from tests.doubles.python_child import QUICK, Start, state_of, status, until

# A child that does not read.


async def test_a_child_that_does_not_read_is_stalled_and_killed_with_its_own(start: Start):
    program = "subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\ntime.sleep(600)"
    child, heard = await start(program, bounds=QUICK)
    other, _ = await start("def turn(): pass", serve=True)
    await until(lambda: len(session_members(child.pid)) == 2)
    began = time.monotonic()
    for _ in range(5):
        child.send(child.protocol.turn_start("s1", ModelText("x" * 16_000)))
    assert await status(other)
    await heard.first(Stalled)
    assert 0.45 < time.monotonic() - began < 20
    with pytest.raises(ChildStalledError):
        child.send(child.protocol.status())
    exited = await heard.first(Exited)
    assert (exited.signal, exited.cause, exited.left) == (signal.SIGKILL, "stalled", 0)
    assert session_members(child.pid) == []
    assert await status(other)


async def test_what_waits_for_a_child_has_a_bound(start: Start):
    child, _ = await start("time.sleep(600)", bounds=ChildBounds(stdin_bytes=100_000))

    def fill() -> None:
        for _ in range(100):
            child.send(child.protocol.turn_start("s1", ModelText("x" * 16_000)))

    with pytest.raises(ChildStalledError):
        fill()
    assert child._stdin.waiting <= 100_000


async def test_a_slow_reader_gets_everything_and_is_not_stalled(start: Start):
    child, heard = await start(
        """
rest, total = b"", 0
while total < 250_000:
    total += len(os.read(0, 20_000))
    time.sleep(0.02)
put(frame(type="response", id=None, error={"code": "busy"}))
time.sleep(60)
""",
        bounds=QUICK,
    )
    for _ in range(16):
        child.send(child.protocol.turn_start("s1", ModelText("x" * 16_000)))
    await heard.first(LostRequest)
    assert heard.of(Stalled) == []


# Ends.


async def test_the_ladder_ends_a_child_that_ignores_all_but_sigkill(start: Start):
    child, heard = await start(
        """
signal.signal(signal.SIGTERM, lambda *_: put(frame(type="response", id=None, error={"code": "busy"})))
put(b"deaf\\n")
while True:
    time.sleep(1)
""",
        bounds=QUICK,
    )
    await heard.first(Noise)
    began = time.monotonic()
    exited = await child.stop()
    assert exited == Exited(None, signal.SIGKILL, "stopped", 0)
    assert 0.9 < time.monotonic() - began < 20
    assert heard.of(LostRequest), "SIGTERM came before SIGKILL"


async def test_a_child_that_ends_with_its_input_is_not_signalled(start: Start):
    child, heard = await start("put(b'up\\n')\nsys.stdin.buffer.read()\nsys.exit(7)")
    await heard.first(Noise)
    assert await child.stop() == Exited(7, None, "stopped", 0)


async def test_stopping_what_has_ended_by_itself_says_so(start: Start):
    child, heard = await start("sys.exit(4)")
    await heard.first(EndOfOutput)
    assert await child.stop() == Exited(4, None, "exited", 0)


async def test_stopping_twice_and_being_cancelled_meanwhile_is_one_end(start: Start):
    child, heard = await start(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nput(b'up\\n')\nwhile True: time.sleep(1)", bounds=QUICK
    )
    await heard.first(Noise)
    first, second = asyncio.create_task(child.stop()), asyncio.create_task(child.stop())
    await asyncio.sleep(0.1)
    first.cancel()
    assert (await second).signal == signal.SIGKILL
    assert await child.stop() == child.exit
    assert len(heard.of(Exited)) == 1


JOBS = """
def job(**kind):
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, **kind)
    process.stdout.readline()
    return process.pid
print(job(), job(process_group=0), flush=True)
"""


@pytest.mark.parametrize("last", ["sys.exit(0)", "os.abort()", "time.sleep(600)"])
async def test_jobs_in_groups_of_their_own_end_with_their_child(start: Start, last: str):
    child, heard = await start(JOBS + last, bounds=QUICK)
    await heard.first(Noise)
    exited = await child.stop()
    assert exited.left == 0
    assert session_members(child.pid) == []


async def test_a_job_that_keeps_stdout_open_delays_nobody(start: Start):
    child, heard = await start(
        "subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\nsys.exit(0)"
    )
    began = time.monotonic()
    exited = await heard.first(Exited)
    assert exited.code == 0
    assert time.monotonic() - began < 20
    assert session_members(child.pid) == []


@pytest.mark.parametrize("cut", [0, 1, 60, 119])
async def test_a_child_may_die_anywhere_in_a_frame(start: Start, cut: int):
    child, heard = await start(
        f"""
def put(data):
    os.write(1, data[:{cut}])
    os.kill(os.getpid(), signal.SIGSEGV)
def turn(): pass
""",
        serve=True,
    )
    with pytest.raises(ChildGoneError):
        await status(child)
    exited = await heard.first(Exited)
    assert (exited.signal, exited.cause) == (signal.SIGSEGV, "exited")
    assert heard.of(EndOfOutput)[0].torn == cut
    assert state_of(child.pid) == ""


async def test_a_child_that_closes_its_output_is_ended(start: Start):
    child, heard = await start("os.close(1)\ntime.sleep(600)", bounds=QUICK)
    exited = await heard.first(Exited)
    assert exited.signal == signal.SIGTERM
    assert child.protocol.violation is None


async def test_a_child_that_closes_its_input_is_ended(start: Start):
    child, heard = await start("os.close(0)\nput(b'up\\n')\ntime.sleep(600)", bounds=QUICK)
    await heard.first(Noise)
    with pytest.raises(ChildGoneError):
        await status(child)
    assert (await heard.first(Exited)).signal == signal.SIGTERM


async def test_diagnostics_before_the_end_are_all_told(start: Start):
    _, heard = await start(
        """
def turn():
    for n in range(500):
        event("diagnostic", code="x", summary=str(n))
    os._exit(0)
for request in requests():
    respond(request["id"], {"run_id": "run1", "accepted": True})
    turn()
"""
    )
    _.send(_.protocol.turn_start("s1", ModelText("go")))
    await heard.first(Exited)
    assert [event.summary for event in heard.of(Diagnostic)] == [str(n) for n in range(500)]


def test_the_same_on_uvloop(tmp_path: Path):
    uvloop = pytest.importorskip("uvloop")
    script = tmp_path / "child.py"
    script.write_text(
        "import sys, json\nfor line in sys.stdin.buffer: print(line.decode(), file=sys.stderr, flush=True)"
    )

    async def life() -> Exited:
        reaper = Reaper()
        try:
            child = await spawn(LaunchSpec((sys.executable, str(script)), tmp_path), lambda _: None, reaper=reaper)
            for _ in range(60):
                child.send(child.protocol.turn_start("s1", ModelText("x" * 16_000)))
            return await child.stop()
        finally:
            reaper.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(life()) == Exited(0, None, "stopped", 0)
