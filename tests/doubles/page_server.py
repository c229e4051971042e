"""A plain web server for test pages: files of some folders, at an origin of its own."""

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


@contextmanager
def page_server(folders: Mapping[str, Path]) -> Generator[str]:
    """Serves each folder's files below its path; the origin."""
    files = {
        f"{path}{file.name}": file.read_bytes()
        for path, folder in folders.items()
        for file in folder.iterdir()
        if file.suffix in TYPES
    }

    class Pages(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            content = files.get(self.path.partition("?")[0])
            self.send_response(200 if content is not None else 404)
            self.send_header("content-type", TYPES.get(Path(self.path.partition("?")[0]).suffix, "text/plain"))
            self.send_header("content-length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
