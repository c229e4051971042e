"""A Chromium with a window, under Xvfb: a tab that is behind another one is hidden, and its timers are throttled.

Playwright cannot show that: its switches turn throttling off, and it makes every page believe that it is in front. So
this browser is started plainly, and spoken to by DevTools for a moment at a time.
"""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.doubles.browser import FLAGS

START_S = 60.0
WAIT_S = 20.0
END_S = 10.0


class Window:
    """One window of one browser."""

    def __init__(self, devtools: ClientConnection) -> None:
        self._devtools = devtools
        self._ids = count(1)

    async def call(self, method: str, session: str = "", **params: Any) -> Any:
        """One command of DevTools: its result."""
        number = next(self._ids)
        frame: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session:
            frame["sessionId"] = session
        async with asyncio.timeout(WAIT_S):
            await self._devtools.send(json.dumps(frame))
            while (answer := json.loads(await self._devtools.recv())).get("id") != number:
                continue
        assert "result" in answer, answer
        return answer["result"]

    async def open(self, url: str) -> "Tab":
        """A new tab, in front of the others."""
        return Tab(self, (await self.call("Target.createTarget", url=url))["targetId"])


class Tab:
    """A tab. Nothing is attached to it between two looks."""

    def __init__(self, window: Window, target: str) -> None:
        self._window = window
        self._target = target

    async def evaluate(self, expression: str) -> Any:
        session = (await self._window.call("Target.attachToTarget", targetId=self._target, flatten=True))["sessionId"]
        told = await self._window.call("Runtime.evaluate", session, expression=expression, returnByValue=True)
        await self._window.call("Target.detachFromTarget", sessionId=session)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, expression: str) -> None:
        """Waits until it is true."""
        async with asyncio.timeout(WAIT_S):
            while not await self.evaluate(expression):
                await asyncio.sleep(0.1)


@asynccontextmanager
async def _process(*command: str | Path, fds: tuple[int, ...] = (), **environment: str) -> AsyncGenerator[None]:
    """In a process group of its own, which ends with the block."""
    running = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=fds,
        start_new_session=True,
        env={**os.environ, **environment},
    )
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(running.pid, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await running.wait()


@asynccontextmanager
async def _display() -> AsyncGenerator[str]:
    """A screen that nobody sees: its name, which the server picks."""
    path = shutil.which("Xvfb")
    assert path is not None, "Xvfb is not installed"
    ours, its = os.pipe()
    os.set_blocking(ours, False)
    try:
        screen = ("-screen", "0", "1024x768x24", "-nolisten", "tcp")
        async with _process(path, "-displayfd", str(its), *screen, fds=(its,)), asyncio.timeout(None) as patience:
            patience.reschedule(asyncio.get_running_loop().time() + START_S)
            said = b""
            while not said.endswith(b"\n"):
                with suppress(BlockingIOError):
                    said += os.read(ours, 16)
                await asyncio.sleep(0.05)
            patience.reschedule(None)
            yield f":{said.decode().strip()}"
    finally:
        os.close(ours)
        os.close(its)


@asynccontextmanager
async def window(profile: Path, *flags: str) -> AsyncGenerator[Window]:
    """The system's Chromium with these switches beside the usual ones."""
    path = shutil.which("chromium")
    assert path is not None, "Chromium is not installed"
    asked = ("--no-default-browser-check", "--password-store=basic", f"--user-data-dir={profile}")
    command = (path, *FLAGS, *asked, "--remote-debugging-port=0", *flags, "about:blank")
    async with _display() as display, _process(*command, DISPLAY=display):
        told = profile / "DevToolsActivePort"
        async with asyncio.timeout(START_S):
            while not (told.exists() and told.read_text().count("\n") == 1):
                await asyncio.sleep(0.05)
        port, at = told.read_text().split("\n")
        async with connect(f"ws://127.0.0.1:{port}{at}", proxy=None, compression=None, max_size=None) as devtools:
            yield Window(devtools)
