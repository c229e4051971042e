"""A synchronous driver of one stdio child. Owns the process, its pipes and the record of its frames.

It must never interpret the protocol beyond telling responses from events: what a child may say is for the tests to
judge. The same driver runs the demo agent and the real child, so a case can be pointed at either.
"""

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

Frame = dict[str, Any]

PROTOCOL = "magi-code.local-agent"
IDENTITY = ("session_id", "run_id", "call_id", "task_id", "subagent_id")
BOUND_S = 30.0


class NoFrameError(AssertionError):
    """The child said nothing that fits within the bound, or its output ended."""


def tool(name: str, description: str = "A tool.", schema: Any = None, **more: Any) -> Frame:
    """One descriptor for ``client_tools``; ``more`` adds or replaces fields."""
    return {"name": name, "description": description, "input_schema": schema or {"type": "object"}, **more}


def encode(request_id: Any, method: str, params: Any) -> bytes:
    """One request frame with its LF."""
    frame = {"protocol": PROTOCOL, "version": 1, "id": request_id, "method": method, "params": params}
    return json.dumps(frame, separators=(",", ":")).encode() + b"\n"


class Child:
    """A running child. A thread reads its stdout all the time, unless ``reading=False``."""

    def __init__(
        self, command: Sequence[str], cwd: Path, env: Mapping[str, str], *, reading: bool = True, stderr: bool = True
    ) -> None:
        self.process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if stderr else subprocess.DEVNULL,
            start_new_session=True,
        )
        self.frames: list[Frame] = []
        self.lines: list[bytes] = []
        self.stderr = bytearray()
        self._queue: queue.Queue[bytes | None] = queue.Queue()
        self._ended = False
        self._cursor = 0
        self._numbers = 0
        self._threads: list[threading.Thread] = []
        if stderr:
            self._spawn(self._drain_stderr)
        if reading:
            self.read()

    def _spawn(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _drain_stderr(self) -> None:
        assert self.process.stderr is not None
        while chunk := self.process.stderr.read(65536):
            self.stderr += chunk

    def _drain_stdout(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line)
        self._queue.put(None)

    def read(self) -> None:
        """Start reading stdout (once)."""
        self._spawn(self._drain_stdout)

    # Writing.

    def raw(self, data: bytes) -> None:
        """Write bytes as they are. A child that has gone is not an error here: its output tells."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def send(self, method: str, params: Any, request_id: str | None = None) -> str:
        """Write one request and give its id."""
        if request_id is None:
            self._numbers += 1
            request_id = f"q{self._numbers}"
        self.raw(encode(request_id, method, params))
        return request_id

    def close_input(self) -> None:
        """End the child's input."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    # Reading.

    def _pull(self, timeout: float) -> bool:
        if self._ended:
            return False
        try:
            line = self._queue.get(timeout=max(timeout, 0.001))
        except queue.Empty:
            return False
        if line is None:
            self._ended = True
            return False
        self.lines.append(line)
        self.frames.append(json.loads(line))
        return True

    def find(self, accept: Callable[[Frame], bool], bound_s: float = BOUND_S, *, after: int = 0) -> Frame:
        """The first frame since index ``after`` that ``accept`` takes; waits for it at most ``bound_s`` seconds."""
        end = time.monotonic() + bound_s
        index = after
        while True:
            while index < len(self.frames):
                if accept(self.frames[index]):
                    return self.frames[index]
                index += 1
            if not self._pull(end - time.monotonic()) and (self._ended or time.monotonic() >= end):
                state = "its output ended" if self._ended else f"nothing within {bound_s} s"
                raise NoFrameError(f"{state}; the last frames: {self.frames[-6:]}")

    def response(self, request_id: str | None, bound_s: float = BOUND_S, *, after: int = 0) -> Frame:
        """The response with this id."""
        return self.find(lambda f: f["type"] == "response" and f["id"] == request_id, bound_s, after=after)

    def request(self, method: str, params: Any, bound_s: float = BOUND_S) -> Frame:
        """Send and wait: ``{"result": …}`` or ``{"error": …}`` inside the whole frame."""
        return self.response(self.send(method, params), bound_s)

    def result(self, method: str, params: Any) -> Any:
        """Send, wait, and insist on a result."""
        frame = self.request(method, params)
        assert "result" in frame, frame
        return frame["result"]

    def error(self, method: str, params: Any) -> str:
        """Send, wait, and insist on an error: its code."""
        frame = self.request(method, params)
        assert "error" in frame, frame
        return frame["error"]["code"]

    def event(self, name: str, bound_s: float = BOUND_S) -> Frame:
        """The next event of this name that no earlier call of ``event`` gave or went past."""
        frame = self.find(lambda f: f.get("event") == name, bound_s, after=self._cursor)
        self._cursor = self.frames.index(frame, self._cursor) + 1
        return frame

    def null_error(self, after: int = 0) -> str:
        """The code of the next error without an id."""
        return self.response(None, after=after)["error"]["code"]

    def drain(self, bound_s: float = BOUND_S) -> list[Frame]:
        """Everything until the output ends."""
        with contextlib.suppress(NoFrameError):
            self.find(lambda _f: False, bound_s)
        assert self._ended, "the output has not ended"
        return self.frames

    def wait(self, bound_s: float = BOUND_S) -> int:
        """The exit code."""
        return self.process.wait(bound_s)

    def events(self, run_id: str | None = None) -> list[Frame]:
        """The events seen so far (of one run)."""
        seen = [f for f in self.frames if f["type"] == "event"]
        return seen if run_id is None else [f for f in seen if f["data"].get("run_id") == run_id]

    # What most cases need.

    def initialize(self, tools: Sequence[Frame] | None = None, *more: str) -> Frame:
        """The handshake with ``client.tools`` unless ``tools`` is None; gives the result."""
        params: Frame = {"required_capabilities": list(more)}
        if tools is not None:
            params["required_capabilities"].append("client.tools")
            params["client_tools"] = list(tools)
        return self.result("initialize", params)

    def answer(self, call: Frame, text: str = "done", *, wait: bool = True, **more: Any) -> Frame:
        """Answer the ``client.tool.call`` event ``call``; ``more`` adds to or replaces the params."""
        params = {k: call["data"][k] for k in IDENTITY}
        params |= {"instance_id": call["instance_id"], "status": "success", "text": text, **more}
        request_id = self.send("client.tool.result", params)
        return self.response(request_id) if wait else {"id": request_id}

    def start(self, session_id: str, prompt: Any) -> str:
        """Start a turn; a prompt that is no text is sent as JSON. Gives the run id."""
        text = prompt if isinstance(prompt, str) else json.dumps(prompt)
        return self.result("turn.start", {"session_id": session_id, "prompt": text})["run_id"]

    def finish(self, bound_s: float = BOUND_S) -> Frame:
        """The data of the next ``run.finished``."""
        return self.event("run.finished", bound_s)["data"]

    # The end.

    def stop(self) -> int:
        """End it by whatever it takes, and reap it; the exit code."""
        if self.process.poll() is None:
            self.close_input()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(3)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        code = self.process.wait(5)
        for thread in self._threads:
            thread.join(5)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        return code

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
