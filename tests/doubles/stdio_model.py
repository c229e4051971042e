"""A model server that plays a script out of the prompt, for the real child: it stands in for a paid model.

It answers the streaming chat requests of an OpenAI-compatible provider. A user message that is (or holds) a JSON object
with ``steps`` is played one step per request; the keys are those of the demo agent's scripts that a model can play:
``calls``, ``text`` with ``{{results}}``, ``repeat``, ``sleep_s``, ``status``.
"""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "scripted"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())


def _script(text: str) -> list[dict[str, Any]] | None:
    """The first script in a text; one that a subagent was given may be escaped once or twice more."""
    for _ in range(3):
        for match in re.finditer(r'\{\s*"steps"', text):
            try:
                return json.JSONDecoder().raw_decode(text, match.start())[0]["steps"]
            except ValueError:
                continue
        text = text.replace('\\"', '"').replace("\\\\", "\\")
    return None


def next_step(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What the model says next: the step whose number is that of the answers since the script."""
    found = [
        (n, steps) for n, m in enumerate(messages) if m["role"] == "user" and (steps := _script(_text(m["content"])))
    ]
    if not found:
        return {"text": "echo: " + _text(messages[-1].get("content"))}
    start, steps = found[-1]
    later = messages[start + 1 :]
    roles = [message["role"] for message in later]
    played = sum(role == "assistant" and roles[n - 1 : n] != ["assistant"] for n, role in enumerate(roles))
    if played >= len(steps):
        return {"text": "(script ended)"}
    step = dict(steps[played])
    if "text" in step:
        results = [_text(message.get("content")) for message in later if message["role"] == "tool"]
        step["text"] = step["text"].replace("{{results}}", json.dumps(results)) * step.get("repeat", 1)
    return step


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    count = 0

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Keep quiet."""

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """The list of models."""
        models = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "tests"}]}
        self._send(200, "application/json", json.dumps(models).encode())

    def do_POST(self) -> None:
        """One step, streamed."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        step = next_step(request["messages"])
        time.sleep(step.get("sleep_s", 0))
        if "status" in step:
            self._send(step["status"], "application/json", b'{"error":{"message":"refused by the script"}}')
            return
        _Handler.count += 1
        number = _Handler.count
        delta: dict[str, Any] = {"role": "assistant", "content": step.get("text")}
        if "calls" in step:
            delta["tool_calls"] = [
                {
                    "index": n,
                    "id": f"call_{number}_{n}",
                    "type": "function",
                    "function": {"name": call["name"], "arguments": json.dumps(call.get("arguments", {}))},
                }
                for n, call in enumerate(step["calls"])
            ]
        reason = "tool_calls" if "calls" in step else "stop"
        head = {"id": f"chat_{number}", "object": "chat.completion.chunk", "created": 0, "model": MODEL}
        chunks = [
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {**head, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
        ]
        body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self._send(200, "text/event-stream", body.encode())


class ModelServer:
    """The server on a loopback port of its own, until ``close``."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and give the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
