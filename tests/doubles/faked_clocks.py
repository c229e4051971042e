"""Clocks that a test sets, by libfaketime: of a process from its start on, or of a server while it runs.

Monotonic clocks stay true, as they do when somebody sets a machine's clock.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.doubles.valkey_servers import Server

_LIBRARIES = [
    Path(folder) / "faketime/libfaketime.so.1"
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
]


def library() -> Path | None:
    """The library, None where this machine lacks it."""
    return next((path for path in _LIBRARIES if path.exists()), None)


def preloaded(**more: str) -> Mapping[str, str]:
    """The environment of a process whose wall clock is not the machine's; skips where that cannot be."""
    found = library()
    if found is None:
        pytest.skip("lacks libfaketime: no clock is set here")
    return {"LD_PRELOAD": str(found), "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1", **more}


class SteppedServer(Server):
    """A server whose clock a test sets while it runs. The library reads the file at each look at the clock."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._seconds = 0
        self._write()
        given = preloaded(FAKETIME_TIMESTAMP_FILE=str(self._file), FAKETIME_NO_CACHE="1")
        super().__init__(through=["/usr/bin/env", *(f"{name}={value}" for name, value in given.items())])

    def step(self, seconds: int) -> None:
        """Sets the clock so much forward, or back."""
        self._seconds += seconds
        self._write()

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(f"{self._seconds:+d}\n")
        os.replace(new, self._file)
