"""``docs/curl.md`` is run as it stands."""

import asyncio
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.doubles.http_node import KEY, Node

PAGE = Path(__file__).parents[2] / "docs" / "curl.md"


async def play_the_agent(node: Node) -> None:
    """One run with one call, as soon as somebody asks for it."""
    async with node.client() as key:
        while True:
            for item in (await key.get("/v1/sessions", params={"limit": 1})).json()["items"]:
                clients = (await key.get(f"/v1/sessions/{item['id']}/clients")).json()["items"]
                log = (await key.get(f"/v1/sessions/{item['id']}/events")).json()["items"]
                if clients and any(event["type"] == "run_queued" for event in log):
                    run_id = await node.begin_run(item["id"])
                    await node.dispatch(item["id"], clients[0]["id"], "call_1_0", arguments=b'{"row_id":"3"}')
                    while not (await key.get(f"/v1/sessions/{item['id']}/calls?state=answered")).json()["items"]:
                        await asyncio.sleep(0.02)
                    await node.end_run(item["id"], run_id)
                    return
            await asyncio.sleep(0.02)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl_does_the_whole_job(node: Node) -> None:
    script = "set -euo pipefail\n" + "\n".join(re.findall(r"```bash\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))
    agent = node.tasks.spawn("test.agent", play_the_agent(node))
    shell = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        script,
        env={"PATH": os.environ["PATH"], "BASE": node.url, "KEY": KEY, "HOME": "/nonexistent"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            out, err = await shell.communicate()
    finally:
        if shell.returncode is None:
            shell.kill()
    assert shell.returncode == 0, err.decode()
    await agent
    lines = out.decode().split("\n")
    run_id = lines[3]
    assert len(run_id) == 36
    assert lines[:2] == ["idle", "1"]
    assert lines[4:] == ["3", "client_tool_acked", "Row 3 is highlighted.", "client_left", ""]
