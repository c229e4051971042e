"""What is measured, started and driven in one way: the floors and the gateway on one node or two.

Owns processes, sessions and sockets; measures nothing. A ``System`` has sessions; an order to one of them is done when
its future is.
"""

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.sockets import Socket

ROOT = Path(__file__).parents[1]
CHILD = Path(__file__).with_name("load_child.py")
KEY = "bench-key-0123456789abcdef"
START_S = 30.0
TOOL = {
    "name": "work",
    "description": "Reads a file of the workspace.",
    "parameters": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file."},
            "query": {"type": "string", "description": "What to look for."},
            "bytes": {"type": "integer", "minimum": 0, "description": "How much to return."},
        },
        "required": ["path", "bytes"],
    },
}
PROSE = (
    "export function highlight(row) {\\n  const cell = document.querySelector(`[data-row='${row}']`);\\n"
    "  return cell ? cell.textContent.trim() : null; // the reader's own table, 42 rows\\n}\\n"
    "The quick brown fox jumps over the lazy dog while 1,024 rows of total 3.14 are shown to nobody in particular. "
)


def answer_of(size: int) -> bytes:
    """A result's text of ``size`` bytes, as it stands in a frame: code and prose with a few escapes."""
    return (PROSE * (size // len(PROSE) + 1))[:size].rstrip("\\").encode()


@dataclass(eq=False)
class Session:
    """One session, its socket and the order under way."""

    socket: Socket
    session_id: str = ""
    token: str = ""
    client_id: str = ""
    number: int = 10
    done: "asyncio.Future[None] | None" = None
    answers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    acks: bool = False

    def order(self, text: str) -> "asyncio.Future[None]":
        self.done = asyncio.get_running_loop().create_future()
        self.say(text)
        return self.done

    def say(self, text: str) -> None:
        raise NotImplementedError  # each kind of child is spoken to in its own way

    def finished(self, error: str = "") -> None:
        if self.done is not None and not self.done.done():
            if error:
                self.done.set_exception(RuntimeError(error))
            else:
                self.done.set_result(None)

    def answer(self, frame: bytes) -> bytes:
        """The text that the call in ``frame`` asks for."""
        at = frame.index(b'"bytes":') + 8
        size = frame[at : frame.index(b",", at)]
        text = self.answers.get(size)
        if text is None:
            text = self.answers[size] = answer_of(int(size))
        return text


def between(frame: bytes, before: bytes, after: bytes = b'"') -> bytes:
    at = frame.index(before) + len(before)
    return frame[at : frame.index(after, at)]


class Gateway(Session):
    """A session of the gateway, and the client of its one tool."""

    def say(self, text: str) -> None:
        self.send({"op": "input", "session_id": self.session_id, "text": text})

    def send(self, frame: dict[str, Any]) -> None:
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, **frame}).encode())

    def heard(self, frame: bytes) -> None:
        if b'"type":"client_tool_dispatched"' in frame:
            head = b'"client_id":"%b","call_id":"%b"' % (self.client_id.encode(), between(frame, b'"call_id":"'))
            if self.acks:
                self.socket.send(b'{"id":1,"op":"ack",%b}' % head)
            self.socket.send(b'{"id":2,"op":"result",%b,"text":"%b"}' % (head, self.answer(frame)))
        elif b'"type":"run_completed"' in frame:
            self.finished()
        elif b'"type":"run_failed"' in frame or b'"error":{' in frame:
            self.finished(frame[:600].decode())


class Floor(Session):
    """A session of a floor."""

    def say(self, text: str) -> None:
        self.socket.send(text.encode())

    def heard(self, frame: bytes) -> None:
        if b'"type":"done"' in frame:
            self.finished()
        else:
            self.socket.send(b'{"call_id":"%b","text":"%b"}' % (between(frame, b'"call_id":"'), self.answer(frame)))


@dataclass(eq=False)
class System:
    """A running system: ``pids`` are its servers' (neither Redis nor children), ``out`` its children's folder."""

    name: str
    pids: Sequence[int]
    sessions: Sequence[Session]
    out: Path
    port: int
    redis: int
    redis_pid: int = 0


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(START_S):
        line = await process.stdout.readline()
    if not line:
        raise RuntimeError(f"a process of the benchmark ended: {await process.wait()}")
    return line.decode().strip()


@contextlib.asynccontextmanager
async def process(*command: str, **more: Any) -> AsyncGenerator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=ROOT, **more)
    try:
        yield started
    finally:
        if started.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                started.terminate()
            try:
                async with asyncio.timeout(10):
                    await started.wait()
            except TimeoutError:
                started.kill()


@contextlib.asynccontextmanager
async def floor(name: str, redis: int, sessions: int, *, record: bool) -> AsyncGenerator[System]:
    out = Path(tempfile.mkdtemp(prefix="bench"))
    python = (sys.executable, "-m", "benchmarks.floor")
    more = ["record"] if record else []
    child = ["--", sys.executable, "-S", "-E", str(CHILD), "bare"]
    environment = {"BENCH_OUT": str(out), "PATH": "/usr/bin:/bin"}
    async with contextlib.AsyncExitStack() as stack:
        edge = await stack.enter_async_context(process(*python, "edge", str(redis), str(sessions), *more))
        port = int(await line_of(edge))
        made: list[Session] = []
        for number in range(sessions):
            session = Floor(await Socket.open(port, f"/{number}"))
            session.socket.on_text = session.heard
            made.append(session)
        # The order is a message to the owner, so it has to be there; the edge's subscriptions are since the handshakes.
        command = process(*python, "owner", str(redis), str(sessions), *more, *child, env=environment)
        owner = await stack.enter_async_context(command)
        await line_of(owner)
        stack.callback(shutil.rmtree, out, ignore_errors=True)
        yield System(name, (owner.pid, edge.pid), made, out, port, redis)
        for session in made:
            session.socket.close()


CONFIG = """
[server]
port = 0
roles = [{roles}]
node_name = "{node}"
state_dir = "{out}/{node}"
log_level = "warning"
[redis]
url = "redis://127.0.0.1:{redis}"
prefix = "{prefix}"
[auth]
api_keys = [{{ label = "bench", key = "{key}" }}]
[limits]
max_children = 512
requests_per_second = 100000.0
request_burst = 100000
[[agents]]
name = "load"
command = ["{python}", "-S", "-E", "{child}"]
cwd = "{out}"
env = {{ BENCH_OUT = "{out}" }}
"""


def ask(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        method=method,
        data=json.dumps(body).encode() if body is not None else None,
        headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return json.load(answer)


async def attach(session: Gateway, *, register: bool = True) -> None:
    """Attaches the session's socket and registers its client."""
    waiting: dict[int, asyncio.Future[Any]] = {}

    def heard(frame: bytes) -> None:
        value = json.loads(frame)
        if "id" in value and value["id"] in waiting:
            waiting.pop(value["id"]).set_result(value)

    async def asked(frame: dict[str, Any]) -> Any:
        session.send({**frame, "session_id": session.session_id})
        answer = waiting[session.number] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(START_S):
            value = await answer
        if "error" in value:
            raise RuntimeError(value)
        return value["ok"]

    session.socket.on_text = heard
    await asked({"op": "attach", "token": session.token})
    if register:
        lifetime = {"type": "ttl", "data": {"seconds": 60}}
        offer = {"op": "register", "name": "bench", "lifetime": lifetime, "tools": [TOOL]}
        session.client_id = (await asked(offer))["client_id"]
    session.socket.on_text = session.heard


async def sessions_of(port: int, count: int, *, register: bool = True) -> list[Gateway]:
    """So many sessions, each with a socket of its own."""
    agent_id = (await asyncio.to_thread(ask, port, "GET", "/v1/agents"))["items"][0]["id"]

    def create() -> list[Any]:
        return [ask(port, "POST", "/v1/sessions", {"agent_id": agent_id}) for _ in range(count)]

    made: list[Gateway] = []
    for row in await asyncio.to_thread(create):
        session = Gateway(await Socket.open(port), row["id"], row["session_token"])
        await attach(session, register=register)
        made.append(session)
    return made


@contextlib.asynccontextmanager
async def gateway(name: str, redis: int, sessions: int, *, nodes: int, acks: bool = False) -> AsyncGenerator[System]:
    out = Path(tempfile.mkdtemp(prefix="bench"))
    roles = ('"edge", "agents"',) if nodes == 1 else ('"agents"', '"edge"')
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, out, ignore_errors=True)
        servers: list[asyncio.subprocess.Process] = []
        port = 0
        for number, its in enumerate(roles):
            file = out / f"{number}.toml"
            file.write_text(
                CONFIG.format(
                    roles=its,
                    node=f"n{number}",
                    out=out,
                    redis=redis,
                    prefix=name.replace(" ", "-"),
                    key=KEY,
                    python=sys.executable,
                    child=CHILD,
                )
            )
            command = (str(Path(sys.executable).with_name("toolrelay")), "serve", "--config", str(file))
            servers.append(await stack.enter_async_context(process(*command)))
            while "serves" not in (line := await line_of(servers[-1])):
                pass
            port = int(line.rpartition(":")[2])
        made = await sessions_of(port, sessions)
        for session in made:
            session.acks = acks
        yield System(name, tuple(server.pid for server in servers), made, out, port, redis)
        for session in made:
            session.socket.close()
