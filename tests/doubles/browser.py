"""A real Chromium, driven by Playwright. Only tests that are marked ``peers`` may use it.

Playwright is no part of the plain environment, so it is imported when a browser is asked for.
"""

import importlib
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""For a container: no sandbox of its own, and nothing that calls home."""

PATIENCE_MS = 20_000
"""How long a test waits for what the page is to show."""


@asynccontextmanager
async def chromium(*, extra: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> AsyncGenerator[Any]:
    """The system's Chromium without a window: a Playwright ``Browser``.

    ``without`` names switches that Playwright would set by itself.
    """
    path = shutil.which("chromium")
    assert path is not None, "Chromium is not installed"
    api = importlib.import_module("playwright.async_api")
    async with api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, args=[*FLAGS, *extra], ignore_default_args=list(without)
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def persistent(profile: Path, extension: Path) -> AsyncGenerator[Any]:
    """A Chromium with a profile and one extension, without a window: a Playwright ``BrowserContext``."""
    path = shutil.which("chromium")
    assert path is not None, "Chromium is not installed"
    api = importlib.import_module("playwright.async_api")
    async with api.async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            profile,
            executable_path=path,
            headless=False,
            args=[
                *FLAGS,
                "--headless=new",
                f"--disable-extensions-except={extension}",
                f"--load-extension={extension}",
            ],
            ignore_default_args=["--disable-extensions"],
        )
        try:
            context.set_default_timeout(PATIENCE_MS)
            yield context
        finally:
            await context.close()


@asynccontextmanager
async def page_of(browser: Any, **options: Any) -> AsyncGenerator[tuple[Any, list[str]]]:
    """A page in a context of its own, and what it complained about (errors, console errors), which grows."""
    context = await browser.new_context(**options)
    complaints: list[str] = []
    try:
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        yield page, complaints
    finally:
        await context.close()
