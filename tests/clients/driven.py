"""Both client libraries behind one line protocol, so that one test proves the same of both."""

import asyncio
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
JS = ROOT / "clients/js"
PROGRAMS = Path(__file__).parent / "programs"
WAIT_S = 20.0


def prepare_js() -> str:
    """Builds the JavaScript client where it is not. Empty, or what this machine lacks."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "Node.js with npm, for the client library"
    made = subprocess.run([ROOT / ".ci/client"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    return "" if made.returncode == 0 else f"the client library's packages: {made.stderr.strip()[-200:]}"


class Driven:
    """A client in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []

    async def do(self, command: str, **fields: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": command, **fields}).encode() + b"\n")
        await self.process.stdin.drain()

    async def hear(self, said: str, **wanted: Any) -> dict[str, Any]:
        """The next thing of that kind with these members; it is taken."""
        seen = 0
        async with asyncio.timeout(WAIT_S):
            while True:
                while seen < len(self.said):
                    one = self.said[seen]
                    if one["said"] == said and all(one.get(name) == value for name, value in wanted.items()):
                        return self.said.pop(seen)
                    seen += 1
                assert self.process.stdout is not None
                line = await self.process.stdout.readline()
                assert line, f"it ended, having said {self.said}"
                self.said.append(json.loads(line))

    def heard(self, said: str) -> list[dict[str, Any]]:
        """What was said of that kind and not taken."""
        return [one for one in self.said if one["said"] == said]


def _newer_node() -> str:
    """Playwright's own Node.js: it is 22 or newer, whatever the system has."""
    return str(importlib.import_module("playwright._impl._driver").compute_driver_executable()[0])


def _program(kind: str) -> list[str]:
    match kind:
        case "js":
            return ["node", str(JS / "test/driven.mjs")]
        case "js, its own socket":
            return [_newer_node(), str(JS / "test/driven.mjs"), "own"]
        case _:
            return [sys.executable, str(PROGRAMS / "client.py")]


@asynccontextmanager
async def driven(kind: str) -> AsyncGenerator[Driven]:
    """A client that is not yet connected: ``js``, ``js, its own socket`` (peers alone: Node.js >= 22), ``python``."""
    program = _program(kind)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python"), "NO_PROXY": "*"}
    process = await asyncio.create_subprocess_exec(
        *program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment, limit=1 << 20
    )
    try:
        yield Driven(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
