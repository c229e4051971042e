"""How an agent's process is started. Owns its environment, bounds and pipes until it runs; must never speak to it.

Sources: bridge 9; stdio protocol, Launch (pipes: a TTY, a file or a socketpair is refused, and asyncio and uvloop give
a child's stdin a socketpair, so the pipes are made here). The command is an argument list and no shell sees it; the
environment is an allow-list; nothing but the three pipes is inherited.
"""

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from adapters.stdio.reaper_process import kill_session

INHERITED: Final = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")
"""What a child gets of the node's environment; everything else is the agent's own."""

SPAWN_S: Final = 10.0
"""From fork to exec. Beyond it the machine is so loaded that one more process helps nobody."""

_SHIM: Final = Path(__file__).with_name("exec_shim.py")

LaunchFault: TypeAlias = Literal[
    "command_missing", "cwd_missing", "not_executable", "no_resources", "timeout", "failed"
]


class LaunchError(Exception):
    """The process could not be started; no process, descriptor or task is left. ``fault`` says why in a word."""

    def __init__(self, fault: LaunchFault, message: str) -> None:
        super().__init__(message)
        self.fault: LaunchFault = fault


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """``setrlimit`` of a child and all that it starts; None leaves the node's own. Never above the node's own."""

    open_files: int | None = 4_096
    core_bytes: int | None = 0  # a core dump holds secrets
    memory_bytes: int | None = None  # address space
    file_bytes: int | None = None  # of one file
    cpu_s: int | None = None

    def as_orders(self) -> str:
        """As the program between fork and exec reads them."""
        named = {
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_CORE": self.core_bytes,
            "RLIMIT_AS": self.memory_bytes,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_CPU": self.cpu_s,
        }
        return ",".join(f"{name}={value}" for name, value in named.items() if value is not None)


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One agent's process: ``command`` (argument list, first found on the child's PATH), ``cwd`` (a folder that is
    there), ``env`` (the agent's own variables, secrets resolved)."""

    command: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    limits: ProcessLimits = ProcessLimits()


@dataclass(frozen=True, slots=True)
class Launched:
    """A running process, leader of its own session, and this side of its pipes (non-blocking)."""

    process: subprocess.Popen[bytes]
    stdin: int
    stdout: int
    stderr: int


def child_environment(agent: Mapping[str, str], node: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a child sees: the allow-list of the node's environment, and over it the agent's own."""
    source = os.environ if node is None else node
    return {**{name: source[name] for name in INHERITED if name in source}, **agent}


def close_all(descriptors: Iterable[int]) -> None:
    """Close each, whatever the others do. Each must be open and ours."""
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)


async def launch(spec: LaunchSpec, *, timeout: float = SPAWN_S) -> Launched:
    """Start the process and wait until the command itself runs. Raises LaunchError.

    Call it on the thread that lives as long as the node, the event loop's: the kernel ends a child with the *thread*
    that forked it.
    """
    env = child_environment(spec.env)
    _check(spec, env)
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for reads in (False, True, True, True):  # stdin, stdout, stderr, the report of the start
            read_end, write_end = os.pipe()
            ours.append(read_end if reads else write_end)
            theirs.append(write_end if reads else read_end)
        # The interpreter may set LC_CTYPE for itself.
        orders = (str(os.getpid()), str(theirs[3]), spec.limits.as_orders(), "" if "LC_CTYPE" in env else "LC_CTYPE")
        shim = (sys.executable, "-I", "-S", str(_SHIM))
        process = subprocess.Popen(  # noqa: ASYNC220, S603 -- returns at the shim's exec, 1 ms; a list, no shell
            [*shim, *orders, *spec.command],
            stdin=theirs[0],
            stdout=theirs[1],
            stderr=theirs[2],
            pass_fds=(theirs[3],),
            cwd=spec.cwd,
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        close_all(ours)
        raise LaunchError(_fault(error.errno or 0), f"cannot start: {error.strerror}") from error
    finally:
        close_all(theirs)
    for descriptor in ours:
        os.set_blocking(descriptor, False)
    stdin, stdout, stderr, report = ours
    try:
        async with asyncio.timeout(timeout):
            said = await _read_to_end(report)
    except BaseException as error:
        _bury(process, (stdin, stdout, stderr))
        if isinstance(error, TimeoutError):
            raise LaunchError("timeout", f"not started within {timeout} s") from None
        raise
    finally:
        close_all((report,))
    if said:
        _bury(process, (stdin, stdout, stderr))
        raise _refusal(said)
    return Launched(process, stdin, stdout, stderr)


def _check(spec: LaunchSpec, env: Mapping[str, str]) -> None:
    if not spec.command:
        raise LaunchError("command_missing", "the command is empty")
    if not spec.cwd.is_dir():
        raise LaunchError("cwd_missing", "the working folder is not there")
    command = spec.command[0]
    if os.sep not in command and shutil.which(command, path=env.get("PATH", os.defpath)) is None:
        raise LaunchError("command_missing", "the command is not on the PATH")
    if any("\0" in text for text in (*spec.command, *env, *env.values())) or any("=" in name for name in env):
        raise LaunchError("failed", "a NUL in the command or the environment, or a = in a variable's name")


async def _read_to_end(descriptor: int) -> bytes:
    """What the shim says; ends when it is replaced by the command."""
    loop = asyncio.get_running_loop()
    said = bytearray()
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(descriptor, _set, ready)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
        with suppress(BlockingIOError):
            data = os.read(descriptor, 256)
            if not data:
                return bytes(said)
            said += data


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _refusal(said: bytes) -> LaunchError:
    number, _, step = said.decode("ascii", "replace").partition(" ")
    code = int(number) if number.isdigit() else 0
    return LaunchError(_fault(code), f"cannot start ({step}): {os.strerror(code)}")


def _fault(code: int) -> LaunchFault:
    if code in (errno.ENOENT, errno.ENOTDIR):
        return "command_missing"
    if code in (errno.EACCES, errno.ENOEXEC, errno.EPERM):
        return "not_executable"
    if code in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
        return "no_resources"
    return "failed"


def _bury(process: subprocess.Popen[bytes], descriptors: Iterable[int]) -> None:
    """A process that never became the agent: it has nothing to save."""
    kill_session(process.pid)
    process.wait()
    close_all(descriptors)
