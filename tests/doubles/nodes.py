"""Real ``toolrelay serve`` processes and a real server for them to share. Nothing outlives its ``with`` block.

Everything here is synchronous (a thread gathers each process' output), so a fixture of any scope may hold it.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from gateway.bus.embedded import find_server
from tests.doubles.lifetimes import assert_lifetimes, watched

ROOT = Path(__file__).parent.parent.parent
API_KEY = "trk-test-key-of-the-backend"
START_S = 60.0  # a machine may have much else to do; nothing waits for longer than it takes
STOP_S = 30.0
_SOCKET = re.compile(rb"unixsocket:([^ \0]+)")  # in the title that a server gives itself

# Between us and a server: it asks to be killed with us, whatever ends us. 1 is PR_SET_PDEATHSIG.
_LAUNCH = """
import os, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def _popen(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *command]
    return subprocess.Popen(launch, stdin=subprocess.DEVNULL, text=True, **options)


def wait_until(condition: Callable[[], object], within: float, what: str) -> Any:
    """The condition's first true value. Fails after ``within`` seconds."""
    end = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < end, f"{what}: not within {within} s"
        time.sleep(0.01)
    return value


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    """The processes under a process, all generations."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *children_of(int(child))]
    return found


@contextmanager
def shared_server(password: str = "") -> Generator[str]:
    """A server on a unix socket, in memory; its URL. ``password``: characters that a URL takes as they are."""
    folder = Path(tempfile.mkdtemp(prefix="tr"))
    path = folder / "s"
    binary = str(find_server()[0])
    with _popen(
        [
            *(binary, "--port", "0", "--unixsocket", str(path), "--dir", str(folder), "--save", ""),
            *(("--requirepass", password) if password else ()),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:

            def answers() -> bool:
                assert process.poll() is None, "the server ended"
                with socket.socket(socket.AF_UNIX) as link, contextlib.suppress(OSError):
                    link.settimeout(5)
                    link.connect(str(path))
                    link.sendall(b"PING\r\n")
                    return link.recv(16).startswith((b"+PONG", b"-NOAUTH"))
                return False

            wait_until(answers, START_S, "the server")
            url = f"unix://:{password}@{path}" if password else f"unix://{path}"
            with watched(url):
                yield url
            assert_lifetimes(url)
        finally:
            process.kill()
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class AgentTable:
    """One ``[[agents]]`` table. ``more`` are further settings of it."""

    name: str
    command: Sequence[str]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])


def demo_agent(folder: Path, name: str = "demo", faults: Mapping[str, Any] | None = None, **more: Any) -> AgentTable:
    """The demo agent, with its storage below ``folder``; ``faults`` as its README has them."""
    env = {"MC_HOME": str(folder / "home")}
    if faults is not None:
        env["DEMO_AGENT_FAULTS"] = json.dumps(faults)
    command = (sys.executable, str(ROOT / "examples/demo_agent"), "serve", "--stdio")
    return AgentTable(name, command, str(folder / "work" / "{session_id}"), env, more)


def _toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case Mapping():
            return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + " }"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return f"[{', '.join(_toml(item) for item in value)}]"


def _table(head: str, values: Mapping[str, Any]) -> str:
    return "\n".join([head, *(f"{key} = {_toml(value)}" for key, value in values.items())])


class Node:
    """One ``serve``. ``start`` and ``stop`` may be called again and again: the folder with its state stays."""

    def __init__(
        self,
        folder: Path,
        *,
        redis: str = "embedded",
        roles: Sequence[str] = ("edge", "agents"),
        agents: Sequence[AgentTable] = (),
        limits: Mapping[str, Any] | None = None,
        server: Mapping[str, Any] | None = None,
        prefix: str = "t",
        auth: Mapping[str, Any] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.config = folder / "toolrelay.toml"
        for agent in agents:
            if "{session_id}" not in agent.cwd:
                Path(agent.cwd).mkdir(parents=True, exist_ok=True)
            if home := agent.env.get("MC_HOME"):
                Path(home).mkdir(parents=True, exist_ok=True)
        tables = [
            _table("[server]", {"port": 0, "roles": roles, "state_dir": str(folder / "state"), **(server or {})}),
            _table("[redis]", {"url": redis, "prefix": prefix}),
            _table("[auth]", {"api_keys": [{"label": "backend", "key": API_KEY}], **(auth or {})}),
            _table("[limits]", limits or {}),
            *(
                _table("[[agents]]", {"name": a.name, "command": a.command, "cwd": a.cwd, "env": a.env, **a.more})
                for a in agents
            ),
        ]
        self.config.write_text("\n\n".join(tables) + "\n")
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        self.output: list[str] = []
        self.errors: list[str] = []
        self._threads: list[threading.Thread] = []

    # --- life

    def launch(self) -> None:
        """Starts the process and waits for nothing."""
        self.output, self.errors = [], []
        process = self.process = _popen(
            [sys.executable, "-m", "gateway.cli.main", "serve", "--config", str(self.config)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("TOOLRELAY_")},
        )
        self._threads = [
            threading.Thread(target=self._gather, args=(pipe, lines), daemon=True)
            for pipe, lines in ((process.stdout, self.output), (process.stderr, self.errors))
        ]
        for thread in self._threads:
            thread.start()

    def _gather(self, pipe: Any, lines: list[str]) -> None:
        lines.extend(line.rstrip("\n") for line in pipe)

    def start(self) -> Self:
        """Starts it and waits until ``/readyz`` says 200."""
        self.launch()

        def address() -> str | None:
            assert self._running.poll() is None, f"it ended: {self.everything()}"
            found = re.search(r"toolrelay serves (http://\S+)", "\n".join(self.output))
            return found.group(1) if found else None

        self.url = wait_until(address, START_S, "the address")

        def ready() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
            return False

        wait_until(ready, START_S, "readiness")
        return self

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self.process is not None, "it was not started"
        return self.process

    @property
    def pid(self) -> int:
        """The process."""
        return self._running.pid

    def wait(self, within: float = STOP_S) -> int:
        """The exit code, once it has ended."""
        process = self._running
        code = process.wait(within)
        for thread, pipe in zip(self._threads, (process.stdout, process.stderr), strict=True):
            thread.join(within)
            if pipe is not None and not thread.is_alive():
                pipe.close()
        return code

    def stop(self, within: float = STOP_S) -> int:
        """SIGTERM and the exit code. Processes that it leaves are a failure, and keys that would stay for ever."""
        for url in self.embedded():
            assert_lifetimes(url)
        under = children_of(self.pid)
        self._running.terminate()
        code = self.wait(within)
        wait_until(lambda: not any(alive(pid) for pid in under), 10, f"the end of what {self.pid} started")
        return code

    def kill(self) -> None:
        """SIGKILL; what it had started must end by itself."""
        under = children_of(self.pid)
        self._running.kill()
        self.wait()
        wait_until(lambda: not any(alive(pid) for pid in under), 10, f"the end of what {self.pid} started")

    def close(self) -> None:
        """Whatever state it is in: no process is left."""
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            under = children_of(process.pid)
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                for pid in (process.pid, *under):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                process.wait(STOP_S)
        self.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                for url in self.embedded():
                    assert_lifetimes(url)
        finally:
            self.close()

    def embedded(self) -> list[str]:
        """The address of its own Redis while it runs one."""
        if self.process is None or self.process.poll() is not None:
            return []
        titles = (_command_of(pid) for pid in children_of(self.pid))
        return [f"unix://{found[1].decode()}" for title in titles if (found := _SOCKET.search(title))]

    # --- what it said

    def everything(self) -> str:
        """Both outputs so far."""
        return "\n".join([*self.output, *self.errors])

    def logged(self, *levels: str) -> list[dict[str, Any]]:
        """Its log lines of these levels."""
        lines: list[dict[str, Any]] = []
        for line in [*self.errors, *self.output]:
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.get("level") in levels:
                    lines.append(entry)
        return lines

    def assert_clean(self, *expected: str) -> None:
        """It said nothing of a fault but of those ``expected``, by their events."""
        assert "Traceback" not in self.everything(), self.everything()
        faults = [entry for entry in self.logged("error", "critical") if entry["event"] not in expected]
        assert not faults, faults

    # --- asking it

    def http(self, **headers: str) -> httpx.AsyncClient:
        """A client with the backend's key."""
        return httpx.AsyncClient(
            base_url=self.url, headers={"Authorization": f"Bearer {API_KEY}", **headers}, timeout=30
        )

    def children(self) -> list[int]:
        """The agents' processes that it runs now."""
        return [pid for pid in children_of(self.pid) if b"--stdio" in _command_of(pid)]


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
