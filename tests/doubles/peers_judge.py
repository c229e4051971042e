"""A stand-in for the real child's command judge: it finds every command risky, so that the child asks for an approval.

An HTTP CONNECT proxy that ends TLS itself, with a throw-away certificate. Nothing leaves the machine.
"""

import contextlib
import json
import shutil
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO, cast

_HOST = "api.typesafe.ai"
SETTINGS = {"jev": {"enabled": True, "bash_protection": {"enabled": True, "failure_policy": "auto_deny"}}}
"""For ``internal_tooling`` in the child's settings."""


def _certificate(folder: Path) -> tuple[Path, Path, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    ca, ca_key, cert, key = (folder / name for name in ("ca.pem", "ca.key", "judge.pem", "judge.key"))
    request, names = folder / "judge.csr", folder / "names"
    names.write_text(f"subjectAltName=DNS:{_HOST}\n")
    rsa, days = ["-newkey", "rsa:2048", "-nodes"], ["-days", "2"]
    signed_by = ["-CA", ca, "-CAkey", ca_key, "-CAcreateserial"]
    for argv in (
        ["req", "-x509", *rsa, *days, "-keyout", ca_key, "-out", ca, "-subj", "/CN=throw-away"],
        ["req", *rsa, "-keyout", key, "-out", request, "-subj", f"/CN={_HOST}"],
        ["x509", "-req", "-in", request, *signed_by, *days, "-out", cert, "-extfile", names],
    ):
        subprocess.run(["openssl", *map(str, argv)], check=True, capture_output=True)
    return ca, cert, key


def _body(stream: BinaryIO) -> bytes:
    size = 0
    while line := stream.readline().strip():
        name, _, value = line.decode().partition(":")
        size = int(value) if name.lower() == "content-length" else size
    return stream.read(size)


@contextlib.contextmanager
def risky_judge(folder: Path) -> Generator[dict[str, str]]:
    """The judge, for as long as the block; the environment of a child that asks it."""
    assert shutil.which("openssl"), "openssl makes the certificate"
    ca, cert, key = _certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    class Proxy(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            self.wfile.write(b"HTTP/1.1 200 ok\r\n\r\n")
            with contextlib.suppress(OSError), context.wrap_socket(self.connection, server_side=True) as link:
                stream = link.makefile("rwb")
                while stream.readline():
                    questions = json.loads(_body(cast(BinaryIO, stream))).get("questions", {})
                    certain = {"0": 0.0, "1": 0.0, "2": 1.0}
                    verdict = {"type": "score", "score": 2.0, "confidence": 1.0, "probabilities": certain}
                    answer = json.dumps({"model": "stand-in", "answers": dict.fromkeys(questions, verdict)}).encode()
                    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(answer)}\r\n\r\n"
                    stream.write(head.encode() + answer)
                    stream.flush()

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield {
                "HTTPS_PROXY": f"http://127.0.0.1:{server.server_address[1]}",
                "SSL_CERT_FILE": str(ca),
                "NO_PROXY": "127.0.0.1",
                "TYPESAFE_API_KEY": "no-key-at-all",
            }
        finally:
            server.shutdown()
            thread.join()
