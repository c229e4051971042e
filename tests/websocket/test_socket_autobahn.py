"""The Autobahn test suite's fuzzing client against an echo behind our server: nothing but case 7.1.5 may fail.

It needs CPython 2.7 (`.ci/peers autobahn` installs it where one is found). Our own raw frames run everywhere
(tests/conformance/websocket/test_raw_frames.py). Left out: 12.* and 13.*, of a compression that we do not offer.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.socket_echo import echo

pytestmark = pytest.mark.peers
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
WSTEST = CACHE / "toolrelay-peers/autobahn-25.10.1/wstest"
MAY_FAIL = {"7.1.5"}
"""A close in the middle of a message: the suite wants 1000 for it, we say 1002 (incomplete fragmented message)."""
FINE = {"OK", "NON-STRICT", "INFORMATIONAL"}
NOT_OFFERED = ["12.*", "13.*"]


async def _reports(folder: Path, cases: list[str], without: list[str], at_most_s: float) -> dict[str, Any]:
    """What became of each case."""
    async with echo() as port:
        server = {"agent": "toolrelay", "url": f"ws://127.0.0.1:{port}"}
        spec = {
            "outdir": str(folder),
            "servers": [server],
            "cases": cases,
            "exclude-cases": without,
            "exclude-agent-cases": {},
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        command = [WSTEST, "--mode", "fuzzingclient", "--spec", folder / "spec.json"]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(), at_most_s)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    index = folder / "index.json"
    assert index.exists(), said[-2_000:].decode(errors="replace")
    return json.loads(index.read_text())["toolrelay"]


def _failed(reports: dict[str, Any]) -> dict[str, Any]:
    return {case: told for case, told in reports.items() if {told["behavior"], told["behaviorClose"]} - FINE}


@pytest.mark.parametrize(
    ("cases", "without", "count"),
    [
        pytest.param(["*"], ["9.*", *NOT_OFFERED], 247, id="frames"),
        pytest.param(["9.*"], [], 54, id="limits", marks=pytest.mark.nightly),
    ],
)
async def test_nothing_but_one_case_fails(tmp_path: Path, cases: list[str], without: list[str], count: int) -> None:
    if not WSTEST.exists():
        pytest.skip("this machine lacks CPython 2.7, for the Autobahn test suite (`.ci/peers autobahn`)")
    reports = await _reports(tmp_path, cases, without, at_most_s=600)
    assert len(reports) == count
    failed = _failed(reports)
    assert failed.keys() <= MAY_FAIL, failed
