"""Where canaries go in with what is wrong: requests, frames, children that break, files that are no configuration."""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from websockets.asyncio.client import connect

from gateway.cli.main import main as command
from tests.doubles.canaries import Canaries
from tests.doubles.canary_stage import KNOWN, SHORT, Stage, asked, thrown
from tests.doubles.nodes import API_KEY, ROOT
from tests.doubles.nodes_session import Client, calls, tool

_BROKEN = """
import sys, threading
from gateway import server
from gateway.cli.main import main
def fail(*_):
    thread = threading.Thread(target=lambda: (_ for _ in ()).throw(ValueError(sys.argv[1])))
    thread.start()
    thread.join()
    raise RuntimeError(sys.argv[1])
server._check_agents = fail
main(["serve", "--config", sys.argv[2]])
"""


async def requests(stage: Stage) -> None:
    """Paths, queries, headers and bodies of requests, most of them wrong."""
    canaries = stage.canaries
    async with stage.talk() as talk:
        for canary in canaries.each("path"):
            said = quote(canary.text, safe="")
            for path in (f"/v1/sessions/{said}", f"{talk.path}/{said}"):
                await stage.tried("GET", path)
            await stage.tried("GET", f"{talk.path}/events?after_seq={said}&limit={said}&order={said}&{said}=1")
            await stage.tried("GET", f"{talk.path}/events/stream?access_token={said}", headers={"Authorization": ""})
        for line in canaries.lines("question", 100):
            for body in ({"provider": line, "model": "m"}, {"provider": "p", "model": line}):
                await stage.refused("PUT", f"{talk.path}/model", json=body)
            for path in ("history", "models"):
                await stage.refused("GET", f"{talk.path}/{path}", params={"cursor": f"r~{line}"})
        for line in canaries.lines("header", 900):
            value = line.encode("latin-1", "replace")
            for name in (
                "Authorization", "Cookie", "User-Agent", "Origin", "Host", "Last-Event-ID", "X-Request-Id", "Accept",
                "Content-Type", "Idempotency-Key", "X-Forwarded-For", "Traceparent", "Sec-WebSocket-Protocol",
            ):  # fmt: skip
                await stage.tried("GET", f"{talk.path}/events", headers={name: value})  # type: ignore[dict-item]
            await stage.tried("GET", f"{talk.path}/events", headers={"Authorization": b"Bearer " + value})  # type: ignore[dict-item]
            await stage.tried(
                "OPTIONS", "/v1/sessions", headers={"Origin": value, "Access-Control-Request-Method": value}
            )  # type: ignore[dict-item]
        for line in canaries.lines("body", SHORT):
            for body in (
                {"type": line},
                {line: 1},
                {"type": "input", "text": {line: line}},
                [line],
                line,
                {"decision": line},
            ):
                for path in ("/events", "/clients", "/approvals/x", "/cancel", "/tokens"):
                    await stage.tried("POST", f"{talk.path}{path}", json=body)
                await stage.tried("PUT", f"{talk.path}/model", json=body)
            for raw in (f'{{"{line}', f'{{"a":1,"a":"{line}"}}', line, f'{{"type":"input","text":"{line}"'):
                await stage.tried(
                    "POST", f"{talk.path}/events", content=raw.encode(), headers={"Content-Type": "application/json"}
                )


async def sockets(stage: Stage) -> None:
    """Frames, good and bad, before and after an attach; subprotocols; queries of the handshake."""
    canaries = stage.canaries
    url = f"ws://127.0.0.1:{stage.ear.port}/v1/ws"
    async with stage.talk() as talk:
        for line in canaries.lines("frame", SHORT):
            frames: Iterable[Any] = (
                {"id": 1, "op": line}, {"id": line, "op": "ping"}, {line: 1}, [line], line,
                {"id": 2, "op": "attach", "session_id": talk.id, "token": line},
                {"id": 3, "op": "attach", "session_id": line[:64], "token": line},
            )  # fmt: skip
            for frame in frames:
                await thrown(url, json.dumps(frame))
            await thrown(url, f'{{"id":1,"op":"{line}')
        for canary in canaries.each("handshake"):
            said = quote(canary.text, safe="")
            await thrown(f"{url}?token={said}", "{}", protocols=["toolrelay.v1"])
            if canary.text.isalnum():
                await thrown(url, "{}", protocols=[canary.text, "toolrelay.v1"])
        async with connect(url, subprotocols=["toolrelay.v1"], max_size=None) as link:  # type: ignore[list-item]
            made = await asked(link, op="attach", session_id=talk.id, token=talk.token, after_seq=0)
            assert "ok" in made, made
            offered = [{**tool("read"), "description": f"mark-offered {canaries.lines('socket: tool', SHORT)[0]}"}]
            mine = await asked(
                link, op="register", session_id=talk.id, name="sock", lifetime={"type": "never"}, tools=offered
            )
            client = Client(talk, {"id": mine["ok"]["client_id"], "name": "sock"})
            for line in canaries.lines("socket", 12_000):
                said = await asked(
                    link, op="input", session_id=talk.id, text=f"mark-socket {line}", idempotency_key=line[:200]
                )
                await talk.end(said["ok"]["run_id"])
                before = len(talk.of("client_tool_dispatched"))
                run = await talk.say(calls("client__sock__read"), {"text": "{{results}}"})
                call = (await client.dispatched(before + 1))[-1]
                where = {"client_id": client.id, "call_id": call["call_id"]}
                await asked(link, op="result", **where, text={line: line})
                await asked(
                    link, op="result", **where, text=f"mark-by-socket {line}", structured={"s": [line], line[:300]: 1}
                )
                await talk.end(run)
            line = canaries.lines("socket: wrong", SHORT)[0]
            for wrong in (
                {"op": line}, {"op": "ack", "client_id": client.id, "call_id": "x", line: line},
                {"op": "register", "session_id": talk.id, "name": line[:30], "lifetime": {"type": line}},
                {"op": "tools", "client_id": client.id, "tools": [{"name": line, "parameters": line}]},
                {"op": "approve", "session_id": talk.id, "call_id": "x", "decision": "deny", "message": line},
                {"op": "resume", "session_id": talk.id, "client_id": client.id, "resume_key": line[:200]},
            ):  # fmt: skip
                await asked(link, **wrong)
    stage.heard.must_show("mark-socket", "the child", "clients", "Redis: values")
    stage.heard.must_show("mark-by-socket", "the child", "clients")


async def failures(stage: Stage) -> None:
    """Children that die with canaries on stderr, break the protocol with them, or fail a run."""
    canaries, mouth = stage.canaries, stage.mouth
    async with stage.talk("dying") as talk:
        end = await talk.end(await talk.say("mark-dying"))
        assert end["type"] == "run_failed", end
        assert "end of stderr" in json.dumps(talk.events), talk.stream.tail()
    line = canaries.text("broken frame")
    for step in (
        {"noise": f"not a frame {mouth.says(line)}"},
        {"raw_event": {"event": f"x-{mouth.says(line)}", "data": {"a": 1}}},
        {"raw_event": {"event": "message.delta", "data": {mouth.says(line): mouth.says(line)}}},
        {"raw_frame": {"type": mouth.says(line)}},
        {"raw_frame": {"instance_id": mouth.says(line)}},
        {"raw": mouth.says(line), "die": {"exit": 7}},
        {"fail": {"code": mouth.says(line)}},
        {"die": {"signal": "SIGSEGV"}},
    ):
        async with stage.talk() as talk:
            run = await talk.say(step, {"text": "over"})
            await talk.end(run)


def crashes(folder: Path, canaries: Canaries) -> bytes:
    """What a node that cannot start prints, and the command about a file with canaries in wrong places."""
    out = b""
    for at, line in enumerate(canaries.lines("configuration", 300, known=False)):  # nothing is, before it is read
        quoted = json.dumps(line)
        for table in (
            f"[server]\nlog_level = {quoted}", f"[server]\n{quoted} = 1", f"[{quoted}]\na = 1",
            f"[server]\nport = {quoted}",
            f"[redis]\nurl = {quoted}", f"[redis]\nprefix = {quoted}", f"[auth]\napi_keys = [{quoted}]",
            f"[auth]\napi_keys = [{{label = {quoted}, key = {quoted}}}]", f"[auth]\noperator_key = {quoted}",
            f"[[agents]]\nname = {quoted}\ncommand = [{quoted}]\ncwd = {quoted}", f"[server\n{quoted}",
            f"[server]\nallowed_hosts = [{quoted}]\npublic_url = {quoted}\nnode_name = {quoted}",
            f'[[agents]]\nname = "a"\ncommand = [{quoted}]\ncwd = "/"\nenv = {{ {quoted} = {quoted} }}',
            f'[[agents]]\nname = "a"\ncommand = ["x"]\ncwd = "/"\nallowed_origins = [{quoted}]\nstorage = {quoted}',
        )[at % 3 :: 3]:  # fmt: skip
            path = folder / "wrong.toml"
            path.write_text(table)
            out += _checked(path)
    password = KNOWN["the password of Redis"]
    state = json.dumps(str(folder / "crash"))
    good = f'[server]\nport = 0\nstate_dir = {state}\n[auth]\napi_keys = [{{label = "b", key = "{API_KEY}"}}]\n'
    path = folder / "wrong.toml"
    for url in (f"redis://:{password}@127.0.0.1:1/0", f"redis://u:{password}@[::1/0", f"redis://:{password}@h:x"):
        path.write_text(f'{good}[redis]\nurl = "{url}"\n[[agents]]\nname = "a"\ncommand = ["true"]\ncwd = "/"\n')
        out += _command("-m", "gateway.cli.main", "serve", "--config", str(path))
    path.write_text(f'{good}[[agents]]\nname = "a"\ncommand = ["true"]\ncwd = "/"\n')
    for line in canaries.lines("exception", 3_000)[:2]:  # what no code of ours expects
        out += _command("-c", _BROKEN, line, str(path))
    return out


def _checked(path: Path) -> bytes:
    """``config check`` in this process: a node's start takes far longer than its refusal."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        assert command(["config", "check", "--config", str(path)]) == 1
    return said.getvalue().encode()


def _command(*words: str) -> bytes:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr
