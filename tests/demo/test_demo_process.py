"""``toolrelay demo`` as a person starts it: from any folder, usable by its address, and gone after Ctrl-C."""

import asyncio
from pathlib import Path
from typing import Any

import httpx

from tests.doubles.demo_process import files_in, processes_of, running_demo

RUN_S = 60.0


async def end_of_run(client: httpx.AsyncClient, path: str) -> list[dict[str, Any]]:
    """The log, once its run has ended."""
    async with asyncio.timeout(RUN_S):
        while True:
            items = (await client.get(path, params={"order": "asc", "limit": 200})).json()["items"]
            if any(item["type"] in ("run_completed", "run_failed") for item in items):
                return items
            await asyncio.sleep(0.05)


async def test_a_demo_answers_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running_demo(tmp_path) as demo:
        address, _, code = (await demo.newest()).partition("#")
        base = address.removesuffix("/demo")
        async with httpx.AsyncClient(base_url=base) as client:
            reply = await client.post("/demo/session", json={"code": code}, headers={"origin": base})
            assert reply.status_code == 201
            session = reply.json()
            client.headers["authorization"] = f"Bearer {session['token']}"
            client.headers["origin"] = base  # the page's own requests: allowed for the demo agent's sessions
            path = f"/v1/sessions/{session['session_id']}/events"
            assert (await client.post(path, json={"type": "input", "text": "echo hello"})).status_code == 200
            log = await end_of_run(client, path)
        assert log[-1]["type"] == "run_completed"
        said = [item["message"]["content"] for item in log if item["type"] == "message_assistant"]
        assert said == [[{"type": "text", "data": {"text": "hello"}}]]
        assert len(processes_of(tmp_path)) >= 3  # the gateway, its Redis, the agent: what must be gone afterwards
        assert await demo.interrupt() == 0
    assert processes_of(tmp_path) == []
    assert files_in(tmp_path) == []
    assert "Traceback" not in "".join(demo.said)
