"""``toolrelay demo`` as a process of its own, and what it printed."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

START_S = 60.0
STOP_S = 30.0
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/demo#[\w-]+")


class DemoProcess:
    """A running demo. Its output is read as it comes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[str] = []
        self._given = 0
        self._grown = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.said.append(line.decode())
            self._grown.set()
        self._grown.set()

    async def newest(self) -> str:
        """The address that was printed and not yet given out here, as soon as it was printed. It works once."""
        async with asyncio.timeout(START_S):
            while len(found := _ADDRESS.findall("".join(self.said))) <= self._given:
                assert not self._reading.done(), f"the demo ended: {''.join(self.said)}"
                self._grown.clear()
                await self._grown.wait()
        self._given += 1
        return found[-1]

    async def interrupt(self) -> int:
        """Ctrl-C: its exit code."""
        self.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(STOP_S):
            code = await self.process.wait()
            await self._reading
        return code

    async def end(self) -> None:
        """Ends it whatever state it is in."""
        if self.process.returncode is None:
            try:
                await self.interrupt()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading


@asynccontextmanager
async def running_demo(folder: Path) -> AsyncGenerator[DemoProcess]:
    """A demo on a free port, started in ``folder``, where all its temporary files are too."""
    temporary = folder / "t"
    temporary.mkdir()
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).parent / "toolrelay",
        "demo",
        "--port",
        "0",
        cwd=folder,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    demo = DemoProcess(process)
    try:
        yield demo
    finally:
        await demo.end()


def files_in(folder: Path) -> list[Path]:
    """Everything below ``folder`` but folders."""
    return [path for path in folder.rglob("*") if not path.is_dir()]


def processes_of(folder: Path) -> list[str]:
    """The command lines of all processes that have ``folder`` in their arguments, environment or working folder."""
    mark = str(folder).encode()
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            known = command + (entry / "environ").read_bytes() + os.fsencode(os.readlink(entry / "cwd"))
            if mark in known:
                found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found
