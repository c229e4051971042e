"""The real child with a scripted model, as an agent of a node; what the model was asked, to look at afterwards."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.doubles.nodes import AgentTable
from tests.doubles.scripted_model import plain, write_home

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
MAGI_CODE = CACHE / "toolrelay-peers/magi-code-0.104.0/bin/magi-code"


def magi_agent(
    folder: Path,
    port: int,
    *,
    name: str = "magi",
    env: Mapping[str, str] | None = None,
    tooling: Mapping[str, Any] | None = None,
    **more: Any,
) -> AgentTable:
    """The real child, whose only model is the scripted one on ``port``; ``tooling`` goes into its settings."""
    home = write_home(folder / "home", port)
    if tooling is not None:
        settings = folder / "home/settings.json"
        settings.write_text(json.dumps({**json.loads(settings.read_text()), "internal_tooling": tooling}))
    cwd = folder / "work" / "{session_id}"
    # Its shell is a login shell: a profile of this machine's user may wait for anything.
    variables = {**home, "HOME": str(folder), **(env or {})}
    return AgentTable(name, (str(MAGI_CODE), "serve", "--stdio"), str(cwd), variables, more)


class ModelLog:
    """The requests that the scripted model got, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def requests(self, holding: str) -> list[dict[str, Any]]:
        """Those of the conversation whose user text holds a mark."""
        with self._path.open(encoding="utf-8") as file:
            asked: list[dict[str, Any]] = [json.loads(line) for line in file]
        return [request for request in asked if any(holding in text for text in _said(request, "user"))]

    def results(self, holding: str) -> list[str]:
        """The tool results that the last request of that conversation held."""
        return _said(self.requests(holding)[-1], "tool")

    def tools(self, holding: str) -> dict[str, dict[str, Any]]:
        """The tools that the model was offered last, by name: their parameters."""
        offered = self.requests(holding)[-1].get("tools", [])
        return {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in offered}


def _said(request: Mapping[str, Any], role: str) -> list[str]:
    return [plain(message.get("content")) for message in request.get("messages", ()) if message.get("role") == role]
