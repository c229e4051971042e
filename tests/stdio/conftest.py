"""Fixtures of the child's process tests: a reaper, children that are ended, and what they leave behind."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from adapters.stdio.child import Child, ChildBounds, spawn
from adapters.stdio.launch import LaunchSpec, ProcessLimits
from adapters.stdio.reaper import Reaper
from tests.doubles.python_child import PRELUDE, SERVE, Listener, Start


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    reaper = Reaper()
    yield reaper
    reaper.close()


@pytest.fixture
async def start(tmp_path: Path, reaper: Reaper) -> AsyncIterator[Start]:
    """Start a child that runs the given Python text; it is ended after the test."""
    children: list[Child] = []

    async def begin(
        program: str,
        *,
        serve: bool = False,
        bounds: ChildBounds | None = None,
        env: dict[str, str] | None = None,
        limits: ProcessLimits | None = None,
    ) -> tuple[Child, Listener]:
        script = tmp_path / f"child{len(children)}.py"
        script.write_text(PRELUDE + program + (SERVE if serve else ""))
        spec = LaunchSpec((sys.executable, "-S", str(script)), tmp_path, env or {}, limits or ProcessLimits())
        listener = Listener()
        child = await spawn(spec, listener, reaper=reaper, bounds=bounds)
        children.append(child)
        return child, listener

    yield begin
    for child in children:
        child.kill()
        await child.wait()
