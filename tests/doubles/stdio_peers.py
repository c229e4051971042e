"""How to start each of the two children that the same cases run on: the demo agent and the real magi-code.

Each start gets a home and a working folder of its own below the test's folder, unless it names one; the environment is
a short list, so nothing of the machine leaks into a verdict.
"""

import json
import os
import sys
from abc import ABC, abstractmethod
from pathlib import Path

from tests.doubles.stdio_driver import Child
from tests.doubles.stdio_model import MODEL, ModelServer

DEMO = Path(__file__).parents[2] / "examples" / "demo_agent"
MAGI_VERSION = "0.104.0"


def magi_binary() -> Path:
    """Where ``make test-peers`` keeps the real child."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "toolrelay-peers" / f"magi-code-{MAGI_VERSION}" / "bin" / "magi-code"


class Peer(ABC):
    """One kind of child. ``name`` is ``demo`` or ``magi``."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(
        self,
        *arguments: str,
        home: str = "home",
        cwd: str = "cwd",
        reading: bool = True,
        stderr: bool = True,
        **env: str,
    ) -> Child:
        """Start one; ``env`` adds to its environment. Without ``arguments``: ``serve --stdio``."""
        work = self.folder / cwd
        work.mkdir(exist_ok=True)
        command, own = self.launch(self.folder / home)
        base = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "MC_HOME": str(self.folder / home)}
        return Child(
            [*command, *(arguments or ("serve", "--stdio"))], work, base | own | env, reading=reading, stderr=stderr
        )

    @abstractmethod
    def launch(self, home: Path) -> tuple[list[str], dict[str, str]]:
        """The command, and what its environment needs."""


class Demo(Peer):
    """The demo agent."""

    name = "demo"

    def launch(self, home: Path) -> tuple[list[str], dict[str, str]]:
        """It needs nothing."""
        return [sys.executable, str(DEMO)], {}


class Magi(Peer):
    """The real child, with a scripted model behind it."""

    name = "magi"

    def __init__(self, folder: Path, model: ModelServer) -> None:
        super().__init__(folder)
        self.model = model

    def launch(self, home: Path) -> tuple[list[str], dict[str, str]]:
        """It needs settings that name its provider."""
        home.mkdir(parents=True, exist_ok=True)
        provider = {
            "label": "Scripted",
            "base_url": f"http://127.0.0.1:{self.model.port}/v1",
            "use_responses_endpoint": False,
            "extra_models": [MODEL],
        }
        settings = {
            "schema_version": 2,
            "agent": {"model": {"provider": "scripted", "model": MODEL}},
            "providers": {"custom": {"scripted": provider}, "catalog": {"enabled": [f"scripted/{MODEL}"]}},
        }
        (home / "settings.json").write_text(json.dumps(settings))
        return [str(magi_binary())], {"MC_PROVIDER": "scripted", "MC_MODEL": MODEL, "MC_DISABLE_MCP": "1"}
