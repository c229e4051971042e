"""A child process, good and bad (bridge 9; faults 14, 15, 18; known failures F)."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest

from adapters.stdio.child import (
    ChildGoneError,
    ChildRefusedError,
    ChildTimeoutError,
    Exited,
    spawn,
)
from adapters.stdio.events import EndOfOutput, LostRequest, Noise, Response, Violation
from adapters.stdio.frames import MessageDelta, RunFinished
from adapters.stdio.launch import LaunchError, LaunchSpec, ProcessLimits, child_environment
from adapters.stdio.reaper import Reaper
from gateway.model.clean import DiagnosticText, ModelText
from tests.doubles.python_child import QUICK, Start, descriptors, state_of, status, until

# A good life.


async def test_a_request_is_answered_and_the_child_ends_when_asked(start: Start):
    child, heard = await start("def turn(): pass", serve=True)
    assert (await status(child)).readiness == "ready"
    exited = await child.stop()
    assert exited == Exited(code=0, signal=None, cause="stopped", left=0)
    assert [type(event) for event in heard.events] == [Response, Response, EndOfOutput, Exited]
    assert state_of(child.pid) == ""
    with pytest.raises(ChildGoneError):
        child.send(child.protocol.status())


async def test_a_life_leaves_no_task_descriptor_or_registration(start: Start, reaper: Reaper):
    child, _ = await start("def turn(): pass", serve=True)
    await child.stop()  # the reaper's own pipe is open from here on
    tasks, before = asyncio.all_tasks(), descriptors()
    for _ in range(5):
        child, _ = await start("def turn(): pass", serve=True)
        await status(child)
        await child.stop()
    await until(lambda: asyncio.all_tasks() == tasks)
    assert descriptors() == before
    assert reaper.sessions == frozenset()


async def test_the_child_sees_the_allow_list_and_three_pipes(start: Start, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REDIS_URL", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    os.set_inheritable(leak := os.open("/dev/null", os.O_RDONLY), True)
    child, _ = await start(
        """
import resource
seen = {
    "env": dict(entry.split("=", 1) for entry in open("/proc/self/environ").read().split("\\0") if entry),
    "fds": sorted(os.listdir("/proc/self/fd"))[:-1],
    "leader": os.getsid(0) == os.getpid() == os.getpgrp(),
    "core": resource.getrlimit(resource.RLIMIT_CORE), "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "pipe": [signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN,
             [line for line in open("/proc/self/status") if line.startswith("SigIgn")][0].split()[1]],
    "kinds": [os.readlink(f"/proc/self/fd/{n}").split(":")[0] for n in range(3)],
}
sys.stderr.write(json.dumps(seen))
""",
        env={"MC_HOME": "/srv/home"},
        limits=ProcessLimits(open_files=64),
    )
    await child.wait()
    os.close(leak)
    seen = json.loads(child.stderr_tail(DiagnosticText))
    expected = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ", "TMPDIR") if name in os.environ}
    assert seen["env"] == {**expected, "MC_HOME": "/srv/home"}
    assert seen["fds"] == ["0", "1", "2"]
    assert seen["kinds"] == ["pipe", "pipe", "pipe"]
    assert seen["leader"]
    assert seen["core"] == [0, 0]
    assert seen["files"] == [64, 64]
    # CPython ignores SIGPIPE (13) and SIGXFSZ (25) for itself; nothing else is ignored by inheritance, but for what no
    # program can set: the C library keeps the signals 32 and 33 to itself.
    assert int(seen["pipe"][1], 16) & ~(1 << 12 | 1 << 24 | 1 << 31 | 1 << 32) == 0


def test_the_environment_is_an_allow_list_with_the_agents_own_over_it():
    node = {"PATH": "/bin", "HOME": "/root", "SSH_AUTH_SOCK": "x", "TOOLRELAY_API_KEY": "x", "LC_ALL": "C"}
    assert child_environment({"HOME": "/srv", "A": "1"}, node) == {"PATH": "/bin", "HOME": "/srv", "A": "1"}


# Starting.


@pytest.mark.parametrize(
    ("command", "cwd", "fault"),
    [
        (("no-such-agent-anywhere",), ".", "command_missing"),
        (("/no/such/agent",), ".", "command_missing"),
        (("./plain",), ".", "not_executable"),
        (("true",), "no-such-folder", "cwd_missing"),
        ((), ".", "command_missing"),
        (("true", "a\0b"), ".", "failed"),
    ],
)
async def test_what_cannot_be_started_says_why_and_leaves_nothing(
    tmp_path: Path, reaper: Reaper, command: tuple[str, ...], cwd: str, fault: str
):
    (tmp_path / "plain").write_text("")
    before = descriptors()
    with pytest.raises(LaunchError) as info:
        await spawn(LaunchSpec(command, tmp_path / cwd), lambda _: None, reaper=reaper)
    assert info.value.fault == fault
    assert descriptors() == before
    assert reaper.sessions == frozenset()


async def test_no_fork_is_a_refusal_and_leaves_nothing(tmp_path: Path, reaper: Reaper, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("adapters.stdio.launch.subprocess.Popen", refuse)
    before = descriptors()
    with pytest.raises(LaunchError) as info:
        await spawn(LaunchSpec(("true",), tmp_path), lambda _: None, reaper=reaper)
    assert info.value.fault == "no_resources"
    assert descriptors() == before


async def test_a_child_that_dies_at_once_is_known_at_once(start: Start):
    child, heard = await start("time.sleep(0.1); sys.stderr.write('no key: abc'); sys.exit(3)")
    with pytest.raises(ChildGoneError):
        await status(child, timeout=30)
    exited = await heard.first(Exited, within=5)
    assert (exited.code, exited.cause) == (3, "exited")
    assert child.stderr_tail(lambda text: DiagnosticText(text.replace("abc", "***"))) == "no key: ***"


# Output.


async def test_a_child_that_writes_a_byte_at_a_time_is_understood(start: Start):
    child, _ = await start(
        """
def put(data):
    for byte in data:
        os.write(1, bytes([byte]))
def turn(): pass
""",
        serve=True,
    )
    assert await status(child)


async def test_a_flood_is_read_whole_and_others_are_served_meanwhile(start: Start):
    child, heard = await start(
        """
def turn():
    for n in range(100_000):
        event("message.delta", message_id="m", part=n, text="x" * 20)
    event("run.finished", outcome="completed", persistence="durable", revision=None, error_code=None)
""",
        serve=True,
    )
    other, _ = await start("def turn(): pass", serve=True)
    child.send(child.protocol.turn_start("s1", ModelText("go")))
    slowest = 0.0
    while not heard.of(RunFinished):
        began = time.monotonic()
        await status(other)
        slowest = max(slowest, time.monotonic() - began)
    assert [event.part for event in heard.of(MessageDelta)] == list(range(100_000))
    assert slowest < 5.0


async def test_ten_megabytes_of_stderr_without_a_line_are_drained_and_the_tail_kept(start: Start):
    child, _ = await start(
        "for _ in range(160): os.write(2, b'e' * 65536)\nos.write(2, b'the end')\ndef turn(): pass", serve=True
    )
    assert await status(child)
    tail = child.stderr_tail(DiagnosticText)
    assert len(tail) == 4096
    assert tail.endswith("eethe end")


async def test_a_secret_cut_in_two_at_the_front_of_the_tail_is_not_shown(start: Start):
    secret = "s3cr3t" * 10
    program = f"sys.stderr.write('x' * 9000 + {secret!r} + 'y' * (12 * 1024 - 30)); sys.exit(0)"
    child, _ = await start(program)
    await child.wait()
    assert "s3cr3t" not in child.stderr_tail(lambda text: DiagnosticText(text.replace(secret, "[redacted]")))


async def test_noise_is_told_and_a_violation_ends_the_child(start: Start):
    child, heard = await start(
        "print('hello', flush=True)\nput(frame(type='push'))\nput(b'after\\n')\ntime.sleep(60)", bounds=QUICK
    )
    exited = await heard.first(Exited)
    assert exited == Exited(None, signal.SIGTERM, "violation", 0)
    assert [type(event) for event in heard.events] == [Noise, Violation, EndOfOutput, Exited]
    assert child.exit == exited


async def test_a_half_line_is_no_frame(start: Start):
    _, heard = await start("put(frame(type='response', id=None, error={'code': 'busy'})[:-1])")
    await heard.first(Exited)
    assert [type(event) for event in heard.events] == [EndOfOutput, Exited]
    assert heard.events[0].torn > 100  # pyright: ignore[reportAttributeAccessIssue]


async def test_an_event_that_its_owner_chokes_on_does_not_stop_the_reader(start: Start):
    faults: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["message"]))
    child, heard = await start("def turn(): pass", serve=True)

    def choke(event: object) -> None:
        heard(event)  # pyright: ignore[reportArgumentType]
        raise ValueError("mine")

    child._on_event = choke
    await status(child)
    await status(child)
    assert faults == ["a child's event was not handled: Response"] * 2


# Requests.


async def test_giving_up_on_a_request_disturbs_no_other(start: Start):
    child, heard = await start(
        """
late = None
for request in requests():
    if late is None:
        late = request["id"]
    else:
        respond(request["id"], STATUS)
        respond(late, {**STATUS, "model": "late"})
"""
    )
    first = child.protocol.status()
    with pytest.raises(ChildTimeoutError):
        await child.request(first, 0.1)
    assert (await status(child)).model is None
    await until(lambda: len(heard.of(Response)) == 2)
    assert heard.of(Response)[1].request.id == first.id
    assert child.protocol.violation is None
    assert child.protocol.in_flight == ()


async def test_a_cancelled_request_disturbs_no_other(start: Start):
    child, _ = await start("time.sleep(0.3)\ndef turn(): pass", serve=True)
    waiting = asyncio.create_task(status(child))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await status(child)
    assert child.protocol.in_flight == ()


async def test_an_error_comes_back_with_its_code_also_without_an_id(start: Start):
    child, heard = await start(
        """
for number, request in enumerate(requests()):
    put(frame(type="response", id=[request["id"], None][number], error={"code": ["busy", "invalid_frame"][number]}))
"""
    )
    with pytest.raises(ChildRefusedError) as info:
        await status(child)
    assert info.value.code == "busy"
    with pytest.raises(ChildRefusedError) as info:
        await status(child)
    assert info.value.code == "invalid_frame"
    assert len(heard.of(LostRequest)[0].suspects) == 1
