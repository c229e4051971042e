"""Everything that a well-behaved child never does, for the tests of whoever owns one.

A script's step may carry any key of ``STEPS``; the environment variable ``DEMO_AGENT_FAULTS`` holds a JSON object with
keys of ``Settings`` for what must go wrong outside of a run. Nothing here happens unasked.
"""

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from frames import PROTOCOL, VERSION, compact
from output import Output

if TYPE_CHECKING:
    from runs import Run

VARIABLE: Final = "DEMO_AGENT_FAULTS"
LIMITS: Final = ("NOFILE", "CORE", "AS", "FSIZE", "CPU")

_HELD: list[bytearray] = []


@dataclass(frozen=True)
class Settings:
    """Faults of the whole life of a child."""

    die_after_frames: int | None = None  # as soon as so many frames are in the pipe (0: before the first)
    exit_code: int = 70
    signal: str | None = None  # die by this signal instead, SIGSEGV say
    byte_at_a_time: bool = False
    banner: str | None = None  # a line on stdout before any frame
    stderr_bytes: int = 0  # written at the start, whether or not anybody reads them
    output_s: float | None = None  # the bound for output, in place of 2 s: for what must not depend on the machine
    start_error: str | None = None  # ``initialize`` fails with this code
    most_tools: int | None = None  # a registry of more is refused (``invalid_params``)
    start_s: float = 0.0  # ``initialize`` takes so long
    ignore_end: bool = False  # neither the end of input nor ``shutdown`` nor SIGTERM ends it
    deaf_after_requests: int | None = None  # stop reading stdin then

    @classmethod
    def read(cls, environment: str | None) -> "Settings":
        """From the variable's value. ValueError for an unknown key, so that a test cannot misspell its fault."""
        given: Any = json.loads(environment) if environment else {}
        unknown = set(given) - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(f"{VARIABLE}: unknown {sorted(unknown)}")
        return cls(**given)

    def begin(self, output: Output) -> None:
        """What goes wrong at the start."""
        if self.ignore_end:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.byte_at_a_time:
            output.piece = 1
        if self.output_s is not None:
            output.deadline_s = self.output_s
        write_stderr(self.stderr_bytes)
        if self.die_after_frames is not None:
            output.on_written = self.after_write
            self.after_write(0)
        if self.banner is not None:
            output.queue_bytes(self.banner.encode() + b"\n")

    def after_write(self, frames_written: int) -> None:
        """Die when it is time."""
        if self.die_after_frames is not None and frames_written >= self.die_after_frames:
            die({"exit": self.exit_code} if self.signal is None else {"signal": self.signal})


def write_stderr(count: int) -> None:
    """So many bytes in lines of 64; it blocks while nobody reads them."""
    line = b"e" * 63 + b"\n"
    while count > 0:
        count -= os.write(2, (line * 1024)[: min(count, 65_536)])


def die(how: dict[str, Any]) -> None:
    """End at once: ``{"exit": code}`` or ``{"signal": name}``."""
    if "signal" in how:
        os.kill(os.getpid(), signal.Signals[how["signal"]])
        time.sleep(1)  # until it arrives
    os._exit(int(how.get("exit", 70)))


def _drained(run: "Run") -> None:
    """Until everything queued is in the pipe (or its deadline ends the child)."""
    with run.output.room:
        run.output.room.wait_for(lambda: run.output.deadline() is None, 2.0)


def _die(run: "Run", how: dict[str, Any]) -> None:
    if how.get("flush", True):
        _drained(run)
    die(how)


def _noise(run: "Run", text: str) -> None:
    run.output.queue_bytes(text.encode() + b"\n")


def _raw(run: "Run", text: str) -> None:
    run.output.queue_bytes(text.encode())


def _raw_hex(run: "Run", digits: str) -> None:
    run.output.queue_bytes(bytes.fromhex(digits))


def _event(run: "Run", event: dict[str, Any]) -> None:
    run.emit(event["event"], event.get("data", {}))


def _frame(run: "Run", changes: dict[str, Any]) -> None:
    """A frame of its own making: a well-formed one with these fields put in; null takes a field out."""
    with run.output.room:
        run.output.seq += 1
        frame = {
            "protocol": PROTOCOL,
            "version": VERSION,
            "type": "event",
            "instance_id": run.output.instance_id,
            "seq": run.output.seq,
            "event": "diagnostic",
            "data": {"session_id": run.session.id, "run_id": run.id, "code": "fault", "summary": "made by a fault"},
        }
        frame = {name: value for name, value in (frame | changes).items() if value is not None}
        run.output.queue_bytes(compact(frame) + b"\n")


def _oversize(run: "Run", size: int) -> None:
    _frame(run, {"data": {"session_id": run.session.id, "run_id": run.id, "code": "x", "summary": "x" * size}})


def _flood(run: "Run", flood: dict[str, Any]) -> None:
    """So many deltas of one message, none of them dropped."""
    text = flood.get("text", "x")
    for part in range(flood["deltas"]):
        run.check()
        run.emit("message.delta", {"message_id": f"flood-{run.id}", "part": part, "text": text})


def _stall(run: "Run", stall: dict[str, float]) -> None:
    """Seconds for which the child does not read (``input``), does not write (``output``), or neither (``all``)."""
    both = stall.get("all", 0.0)
    run.host.stall(input_s=stall.get("input", both), output_s=stall.get("output", both))


def _stderr(_run: "Run", count: int) -> None:
    write_stderr(count)


def _grandchild(_run: "Run", how: dict[str, Any]) -> list[str]:
    """A sleeping process that outlives the child unless somebody ends its group; its pid becomes a result."""
    keep = [(os.POSIX_SPAWN_DUP2, 1, 1)] if how.get("holds_stdout", True) else [(os.POSIX_SPAWN_CLOSE, 1)]
    code = f"import time; time.sleep({float(how.get('seconds', 60))})"
    environment = dict(os.environ)
    command = [sys.executable, "-S", "-c", code]
    detached = bool(how.get("setsid", False))
    actions = [*keep, (os.POSIX_SPAWN_CLOSE, 0)]
    if detached:
        return [str(os.posix_spawn(command[0], command, environment, file_actions=actions, setsid=True))]
    return [str(os.posix_spawn(command[0], command, environment, file_actions=actions))]


def _memory(_run: "Run", megabytes: int) -> None:
    block = bytearray(megabytes * 1024 * 1024)
    block[::4096] = b"\x01" * len(block[::4096])
    _HELD.append(block)


def _report(_run: "Run", names: list[str]) -> list[str]:
    """What this process has: ``env``, ``fds`` (with what they are), ``limits``, ``cwd``, ``pid``, ``pgid``; one JSON
    result."""
    report: dict[str, Any] = {"pid": os.getpid(), "pgid": os.getpgrp(), "cwd": os.getcwd(), "env": dict(os.environ)}
    report["fds"] = {name: _target(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
    report["limits"] = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in LIMITS}
    return [json.dumps({name: report[name] for name in names})]


def _target(link: str) -> str | None:
    try:
        return os.readlink(link)
    except OSError:  # the folder's own descriptor, closed by now
        return None


STEPS: Final[dict[str, Callable[..., list[str] | None]]] = {
    "report": _report,
    "grandchild": _grandchild,
    "memory_mb": _memory,
    "stderr_bytes": _stderr,
    "noise": _noise,
    "raw": _raw,
    "raw_hex": _raw_hex,
    "raw_event": _event,
    "raw_frame": _frame,
    "oversize": _oversize,
    "flood": _flood,
    "stall": _stall,
    "die": _die,
}
"""Key of a step to what it does with the key's value. Those of one step happen in this order."""


def play(run: "Run", step: dict[str, Any]) -> list[str]:
    """The faults of a step; what they add to ``{{results}}``."""
    results: list[str] = []
    for name, fault in STEPS.items():
        if name in step:
            results += fault(run, step[name]) or []
    return results
