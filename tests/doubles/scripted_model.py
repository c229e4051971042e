"""A model server that plays a script carried by the prompt: what a real agent is tested against, without a real model.

Run it as a program (it prints ``listening PORT``), or use ``ScriptedModel``. Standard library only. It speaks the
OpenAI-compatible ``GET /v1/models`` and ``POST /v1/chat/completions``, streamed or not.

A user message with a JSON object ``{"steps": [...]}`` in it (also escaped inside a JSON string, as in a subagent's
task) is played one step per request, counted by the assistant turns after it; any other message is echoed. A step:

    calls       [{"name", "arguments", "sized"}]: call these tools; sized maps further arguments to how many characters
                they have
    text        say this (with calls: before them); {{results}} becomes the JSON list of the tool results so far
    repeat      say it so many times over
    sleep_s     wait before answering
    chunk       characters per streamed piece; chunk_s: seconds between pieces; drop_after: cut after so many
    status      answer with this HTTP error
"""

import argparse
import contextlib
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAME = "scripted"


def plain(content: Any) -> str:
    """The text of a message's content, a string or a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or () if isinstance(part, dict))


def find_steps(text: str) -> list[dict[str, Any]] | None:
    """The steps of the first script in ``text``, unescaping it up to three levels."""
    decoder = json.JSONDecoder()
    for _ in range(4):
        for found in re.finditer(r'\{\s*"steps"\s*:', text):
            with contextlib.suppress(ValueError):
                return decoder.raw_decode(text, found.start())[0]["steps"]
        text = text.replace('\\"', '"').replace("\\\\", "\\")
    return None


def next_step(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What is said to these messages."""
    for at in reversed(range(len(messages))):
        if messages[at].get("role") != "user":
            continue
        steps = find_steps(plain(messages[at].get("content")))
        if steps is None:
            continue
        since = messages[at + 1 :]
        # Neighbouring assistant messages are one turn: an agent may keep a text and its calls apart.
        roles = [None, *(message.get("role") for message in since)]
        turn = sum(now == "assistant" != before for before, now in itertools.pairwise(roles))
        if turn >= len(steps):
            return {"text": "(script ended)"}
        step = dict(steps[turn])
        if "text" in step:
            results = [plain(message.get("content")) for message in since if message.get("role") == "tool"]
            step["text"] = step["text"].replace("{{results}}", json.dumps(results)) * step.get("repeat", 1)
        return step
    said = [plain(message.get("content")) for message in messages if message.get("role") == "user"]
    return {"text": "echo: " + (said[-1][-200:] if said else "")}


def arguments(call: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call, those with a size made."""
    return {**call.get("arguments", {}), **{name: "x" * size for name, size in call.get("sized", {}).items()}}


def deltas(step: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """The step as streamed pieces."""
    text, size = step.get("text"), step.get("chunk") or 1 << 30
    pieces: list[dict[str, Any]] = [
        {"role": "assistant", "content": text[at : at + size]} for at in range(0, len(text or ""), size) if text
    ]
    if "calls" in step:
        calls = [
            {
                "index": index,
                "id": f"call_{number}_{index}",
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(arguments(call))},
            }
            for index, call in enumerate(step["calls"])
        ]
        if pieces and "chunk" not in step:
            pieces[-1]["tool_calls"] = calls
        else:
            pieces.append({"role": "assistant", "content": None, "tool_calls": calls})
    return pieces or [{"role": "assistant", "content": ""}]


class Server(ThreadingHTTPServer):
    """Serves on a free port of loopback; every request's body goes to ``log`` as one line."""

    daemon_threads = True

    def __init__(self, port: int, log: str | None) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.log = log
        self.lock = threading.Lock()
        self.count = 0

    def note(self, body: Any) -> int:
        with self.lock:
            self.count += 1
            if self.log:
                with open(self.log, "a", encoding="utf-8") as file:
                    file.write(json.dumps(body) + "\n")
            return self.count


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Nothing: stdout is for the port."""

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        models = {"object": "list", "data": [{"id": NAME, "object": "model", "owned_by": "tests"}]}
        self.answer(200, "application/json", json.dumps(models).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
        number = self.server.note(body)
        step = next_step(body.get("messages", []))
        time.sleep(step.get("sleep_s", 0))
        if "status" in step:
            self.answer(step["status"], "application/json", b'{"error":{"message":"as the script says","type":"test"}}')
            return
        base = {"id": f"chat_{number}", "created": int(time.time()), "model": NAME}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        end = "tool_calls" if "calls" in step else "stop"
        pieces = deltas(step, number)
        if not body.get("stream"):
            message = {"role": "assistant", "content": step.get("text")}
            if "calls" in step:
                message["tool_calls"] = pieces[-1]["tool_calls"]
            choice = {"index": 0, "message": message, "finish_reason": end}
            whole = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
            self.answer(200, "application/json", json.dumps(whole).encode())
            return
        chunk = {**base, "object": "chat.completion.chunk"}
        chunks: list[dict[str, Any]] = [
            {**chunk, "choices": [{"index": 0, "delta": piece, "finish_reason": None}]} for piece in pieces
        ]
        chunks.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]})
        chunks.append({**chunk, "choices": [], "usage": usage})
        self.stream(chunks, step.get("chunk_s", 0), step.get("drop_after"))

    def stream(self, chunks: list[dict[str, Any]], pause: float, drop_after: int | None) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):
            for chunk in chunks[:drop_after]:
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                self.wfile.flush()
                time.sleep(pause)
            if drop_after is None:
                self.wfile.write(b"data: [DONE]\n\n")
            else:
                self.connection.shutdown(socket.SHUT_RDWR)


def write_home(home: Path, port: int, hooks: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Write the settings of an agent whose only model is the scripted one on ``port``; its environment comes back.
    ``hooks`` are its hooks around calls of tools, enabled."""
    home.mkdir(parents=True, exist_ok=True)
    provider = {
        "label": "Scripted",
        "base_url": f"http://127.0.0.1:{port}/v1",
        "use_responses_endpoint": False,
        "extra_models": [NAME],
    }
    settings: dict[str, Any] = {
        "schema_version": 2,
        "agent": {"model": {"provider": NAME, "model": NAME}},
        "providers": {"custom": {NAME: provider}, "catalog": {"enabled": [f"{NAME}/{NAME}"]}},
    }
    if hooks:
        settings["automation"] = {"hooks": {"enabled": True, **hooks}}
    (home / "settings.json").write_text(json.dumps(settings))
    return {"MC_HOME": str(home), "MC_PROVIDER": NAME, "MC_MODEL": NAME, "MC_DISABLE_MCP": "1"}


@contextlib.contextmanager
def scripted_model(log: Path | None = None) -> Generator[int]:
    """The server as a process of its own, for as long as the block; its port."""
    command = [sys.executable, os.path.abspath(__file__), *(("--log", str(log)) if log else ())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            word, port = process.stdout.readline().split()
            assert word == "listening"
            yield int(port)
        finally:
            process.terminate()


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log")
    options = parser.parse_args()
    server = Server(options.port, options.log)
    print(f"listening {server.server_address[1]}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
