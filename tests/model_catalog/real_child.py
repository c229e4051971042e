"""The real child as a judge of registries: it gets ``initialize`` and says whether it takes the tools."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
BINARY = _CACHE / "toolrelay-peers" / "magi-code-0.104.0" / "bin" / "magi-code"
SETTINGS = {
    "schema_version": 2,
    "agent": {"model": {"provider": "scripted", "model": "scripted"}},
    "providers": {
        "custom": {
            "scripted": {
                "label": "Scripted",
                "base_url": "http://127.0.0.1:9/v1",
                "use_responses_endpoint": False,
                "extra_models": ["scripted"],
            }
        },
        "catalog": {"enabled": ["scripted/scripted"]},
    },
}


class RealChild:
    """One child at a time; a refused registry leaves it as it was, a taken one needs the next child."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "home").mkdir()
        (folder / "cwd").mkdir()
        (folder / "home" / "settings.json").write_text(json.dumps(SETTINGS))
        self._process: subprocess.Popen[bytes] | None = None
        self._ids = 0

    def answer(self, registry: bytes) -> str:
        """``taken``, or the code of the error."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        self._ids += 1
        head = f'{{"protocol":"magi-code.local-agent","version":1,"id":"r{self._ids}","method":"initialize"'
        params = b',"params":{"required_capabilities":["client.tools"],"client_tools":%b}}\n' % registry
        process.stdin.write(head.encode() + params)
        process.stdin.flush()
        while line := process.stdout.readline():
            frame: dict[str, Any] = json.loads(line)
            if frame["type"] == "response":
                if "error" in frame:
                    return str(frame["error"]["code"])
                self.end()
                return "taken"
        self.end()
        return "closed"

    def end(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(10)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        home = str(self._folder / "home")
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._folder), "MC_HOME": home, "MC_DISABLE_MCP": "1"}
        environment |= {"MC_PROVIDER": "scripted", "MC_MODEL": "scripted"}
        return subprocess.Popen(
            [BINARY, "serve", "--stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder / "cwd",
            env=environment,
        )
