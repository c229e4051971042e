"""The canaries' play with the real child and a scripted model: two nodes, overheard on both sides of the child.

The agents bear the names that the scenes know. What the child's frames say is put into them behind it (``Mouth``), but
for a file of the machine that the agent reads with a tool of its own: that is the agent's business, and its model's,
until it passes the gateway.
"""

import asyncio
import json
import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from tests.doubles.canaries import Canaries
from tests.doubles.canary_scenes import arguments, results, schemas
from tests.doubles.canary_stage import ENV_SECRET, KNOWN, SHORT, Heard, Stage, parted, reading
from tests.doubles.nodes import API_KEY, AgentTable, Node, shared_server
from tests.doubles.nodes_session import calls
from tests.doubles.overheard import PIECE, Mouth, dumped, ear, monitored
from tests.doubles.peers import magi_agent
from tests.doubles.peers_judge import SETTINGS as JUDGE_SETTINGS
from tests.doubles.peers_judge import risky_judge
from tests.doubles.scripted_model import scripted_model

OWN_FILE = "file of the machine"
"""Where canaries are that the agent's own tool reads."""
APART = "|".center(PIECE)
"""No key or token that stands before it goes on behind it."""
SAY = {"text": "mark-said {{results}}"}


def play_with_the_real_child(folder: Path) -> Heard:
    """Everything, once."""
    os.environ[ENV_SECRET] = KNOWN["a value of an agent's environment"]
    try:
        return _play(folder)
    finally:
        del os.environ[ENV_SECRET]


def _play(folder: Path) -> Heard:
    heard = Heard(Canaries(KNOWN))
    mouth = Mouth(folder / "mouth")
    mouth.shouts(heard.canaries.text("stderr"))
    log = folder / "requests.jsonl"
    log.touch()
    with ExitStack() as stack:
        redis = stack.enter_context(shared_server(KNOWN["the password of Redis"]))
        commands = stack.enter_context(monitored(redis))
        port = stack.enter_context(scripted_model(log))
        judge = stack.enter_context(risky_judge(folder / "judge"))

        def agent(name: str, *, dies: bool = False, **more: Any) -> AgentTable:
            made = magi_agent(folder / name, port, name=name, **more)
            env = {**made.env, "UPSTREAM": f"env:{ENV_SECRET}"}
            return replace(made, command=mouth.command(made.command, dies=dies), env=env)

        common: dict[str, Any] = {
            "redis": redis,
            "agents": [
                agent("demo"),
                agent("strict", redact_arguments_by_name=True),
                agent("careful", env=judge, tooling=JUDGE_SETTINGS),
                agent("dying", dies=True),
            ],
            "auth": {"operator_key": KNOWN["the operator key"]},
            "server": {"log_level": "debug"},
        }
        nodes = {
            name: stack.enter_context(Node(folder / name, roles=[role], **common))
            for name, role in (("owner", "agents"), ("edge", "edge"))
        }
        asyncio.run(_scenes(heard, mouth, nodes["owner"], nodes["edge"], folder))
        for name, node in nodes.items():
            heard.outputs[f"metrics of the {name}"] = httpx.get(f"{node.url}/metrics").content
        stored = dumped(redis)
        heard.outputs["Redis: keys"] = b"\n".join(stored)
        heard.outputs["Redis: values"] = b"\n".join(stored.values())
        for node in reversed(nodes.values()):
            node.stop()
        for name, node in nodes.items():
            heard.outputs[f"log of the {name}"] = "\n".join(node.errors).encode()
            heard.outputs[f"stdout of the {name}"] = "\n".join(node.output).encode()
    heard.outputs["Redis: commands"] = b"".join(commands)
    heard.outputs["the child"] = mouth.heard()
    heard.outputs["the model"] = _asked(log)
    return heard


def _asked(log: Path) -> bytes:
    """What the model was sent; what comes again with each request of a conversation, once."""
    parts: dict[str, None] = {}
    for line in log.read_text().splitlines():
        request: dict[str, Any] = json.loads(line)
        pieces = [*request.pop("messages", ()), *request.pop("tools", ()), request]
        parts |= dict.fromkeys(map(json.dumps, pieces))
    return "\n".join(parts).encode()


async def _scenes(heard: Heard, mouth: Mouth, owner: Node, edge: Node, folder: Path) -> None:
    async with ear(edge.url) as listening:
        base = f"http://127.0.0.1:{listening.port}"
        headers = {"Authorization": f"Bearer {API_KEY}"}
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=30) as http:
            stage = Stage(heard, mouth, owner, edge, listening, http)
            await _prompts(stage)
            await _words(stage)
            await _own_file(stage, folder)
            for scene in (arguments, results, schemas, _approvals, _failures):
                await scene(stage)
        heard.outputs["clients"] = bytes(listening.heard)


async def _prompts(stage: Stage) -> None:
    """Inputs; the model says their ends again, and reads all of them again with each new one."""
    async with stage.talk() as talk:
        for at, text in enumerate(stage.canaries.lines("prompt", 12_000)):
            await talk.run(f"mark-prompt-{at} {text}")
            stage.heard.must_show(f"mark-prompt-{at}", "the child", "the model", "clients", "Redis: values")
        await talk.run(stage.canaries.text("prompt of lines"))
        await talk.run(APART.join(canary.text for canary in stage.canaries.each("prompt")))


async def _words(stage: Stage) -> None:
    """What the child says in its messages and their deltas, whole and cut in two, and in its activities."""
    canaries, mouth = stage.canaries, stage.mouth
    async with stage.talk() as talk, reading(stage, talk) as socket:
        for name, said in (("words", mouth.says), ("halved words", mouth.halves)):
            text = APART.join(said(canary.text) for canary in canaries.each(name))
            await talk.run({"text": f"mark-{name[:6]:11}{text}", "chunk": PIECE})  # a token is never cut
        echo = {"intent": "echo", "command": f"echo mark-activity '{mouth.says(canaries.text('activity'))}'"}
        await talk.run(calls("bash", echo), SAY)
        socket.cancel()
    stage.heard.must_show("mark-words", "clients", "Redis: values")
    stage.heard.must_show("mark-halved", "clients", "Redis: values")


async def _own_file(stage: Stage, folder: Path) -> None:
    """What the agent's own shell reads, in a file and in its environment, and the model says."""
    async with stage.talk() as talk, reading(stage, talk) as socket:
        for at, lines in enumerate(parted(stage.canaries.lines(OWN_FILE, SHORT, known=False), 1)):
            path = folder / f"notes-{at}"
            path.write_text(f"mark-file-{at}\n" + "\n".join(lines))
            await talk.run(calls("bash", {"intent": "read", "command": f"cat {path}; printenv UPSTREAM"}), SAY)
            stage.heard.must_show(f"mark-file-{at}", "the model", "clients", "Redis: values")
        socket.cancel()


async def _approvals(stage: Stage) -> None:
    """A command that is asked about, and the denial's message."""
    async with stage.talk("careful") as talk:
        told = f"echo 'mark-command {stage.mouth.says(stage.canaries.lines('command', SHORT)[0])}'"
        run = await talk.say(calls("bash", {"intent": "list", "command": told}), SAY)
        asked = await talk.event("approval_requested")
        denial = {"decision": "deny", "message": f"mark-denial {stage.canaries.text('denial')[:3_900]}"}
        await talk.done("POST", f"/approvals/{asked['call_id']}", denial)
        await talk.end(run)
    stage.heard.must_show("mark-command", "clients", "Redis: values")
    stage.heard.must_show("mark-denial", "clients", "Redis: values")


async def _failures(stage: Stage) -> None:
    """A child that dies with canaries on stderr, and a model that answers with an error."""
    async with stage.talk("dying") as talk:
        end = await talk.end(await talk.say("mark-dying"))
        assert end["type"] == "run_failed", end
        assert "end of stderr" in json.dumps(talk.events), talk.stream.tail()
    async with stage.talk() as talk:
        run = await talk.say({"status": 400})
        assert (await talk.end(run))["type"] == "run_failed"
