"""A gateway that answers what a test tells it to, and the command run inside the test."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gateway.cli.main import main


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class Double:
    """``answers`` by ``METHOD path``: (status, body). A body of bytes is sent as it is; a list one after the other.
    ``stream`` is the content type of streams."""

    url: str = ""
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    stream: str = "text/event-stream"


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[Double]:
    state = Double()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            sent = self.rfile.read(int(headers.get("content-length", 0)))
            state.asked.append(Asked(self.command, self.path, headers, sent))
            key = f"{self.command} {self.path}"
            status, body = state.answers.get(
                key, (404, {"error": {"code": "not_found", "message": "there is no such thing here"}})
            )
            if isinstance(body, list):  # a new answer for each time
                body = body.pop(0) if body else b""
            data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            stream = self.path.partition("?")[0].endswith("/stream") and status == 200
            self.send_header("content-type", state.stream if stream else "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_DELETE = do_GET  # noqa: N815  # the base class asks for these names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("TOOLRELAY_URL", state.url)
    monkeypatch.setenv("TOOLRELAY_API_KEY", "trk_test")
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    monkeypatch.delenv("TOOLRELAY_CONFIG", raising=False)

    def run(*words: str) -> Ended:
        code = main(words)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Ended(code, out, err)

    return run
