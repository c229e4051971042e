"""For `make test`: skips what needs a real peer and says by name what this machine lacks (``-p tests.lacks``)."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.faked_clocks import library
from tests.doubles.proxies import nginx

ROOT = Path(__file__).parent.parent


def _magi_code() -> bool:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return os.access(cache / "toolrelay-peers/magi-code-0.104.0/bin/magi-code", os.X_OK)


def _python_for_sdk() -> bool:
    if os.access(ROOT / ".venv-peers/bin/python", os.X_OK):
        return True
    return subprocess.run([ROOT / ".ci/python", "3", "12"], capture_output=True, check=False).returncode == 0


def _autobahn() -> bool:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [*pyenv.glob("versions/2.7.*/bin/python2.7"), *filter(None, [shutil.which("python2.7")])]
    # A shim of pyenv's is there without an interpreter behind it, so each is run.
    return any(
        subprocess.run([one, "-m", "pip", "-V"], capture_output=True, check=False).returncode == 0 for one in found
    )


def _redis() -> bool:
    return shutil.which("redis-sentinel") is not None


PEERS: dict[str, Callable[[], bool]] = {
    "Chromium": lambda: shutil.which("chromium") is not None,
    "CPython 2.7, for the Autobahn test suite": _autobahn,
    "magi-code 0.104.0": _magi_code,
    "Node.js with npm, for the JavaScript client": lambda: bool(shutil.which("node") and shutil.which("npm")),
    "Python >= 3.12 for the SDK": _python_for_sdk,
    "Xvfb": lambda: shutil.which("Xvfb") is not None,
    "libfaketime": lambda: library() is not None,
    "nginx": lambda: nginx() is not None,
    "redis-sentinel": _redis,
}


def lacks() -> list[str]:
    """The names of the peers that are not on this machine."""
    return [name for name, found in PEERS.items() if not found()]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("peers"):
            item.add_marker(pytest.mark.skip(reason="needs a real peer: `make test-peers` runs it"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    missing = lacks()
    text = ", ".join(missing) if missing else "nothing: `make test-peers` can run as it is"
    terminalreporter.write_line(f"This machine lacks: {text}")
