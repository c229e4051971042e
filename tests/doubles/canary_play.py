"""One gateway with everybody around it, overheard, while canaries go in at every input.

Two nodes that log at debug (one with the children, one for clients), a Redis with a password, a demo agent whose mouth
says what no prompt could (``Mouth``), and clients by HTTP, SSE and WebSocket.
"""

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.doubles.canaries import Canaries
from tests.doubles.canary_mistakes import crashes, failures, requests, sockets
from tests.doubles.canary_scenes import arguments, names, prompts, results, schemas, words
from tests.doubles.canary_stage import ENV_SECRET, KNOWN, Heard, Stage
from tests.doubles.nodes import API_KEY, AgentTable, Node, demo_agent, shared_server, wait_until
from tests.doubles.overheard import Mouth, dumped, ear, monitored

LOGGED_NODES = ("owner", "edge")


def agents(folder: Path, mouth: Mouth) -> list[AgentTable]:
    """The demo agent behind the mouth, one that dies with canaries on its lips, and one that is redacted by name."""
    plain = demo_agent(folder / "demo")
    env = {**plain.env, "UPSTREAM": f"env:{ENV_SECRET}"}

    def table(name: str, *, dies: bool = False, **more: Any) -> AgentTable:
        return AgentTable(name, mouth.command(plain.command, dies=dies), plain.cwd, env, more)

    return [table("demo"), table("strict", redact_arguments_by_name=True), table("dying", dies=True)]


def play(folder: Path) -> Heard:
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
    with ExitStack() as stack:
        redis = stack.enter_context(shared_server(KNOWN["the password of Redis"]))
        commands = stack.enter_context(monitored(redis))
        common: dict[str, Any] = {
            "redis": redis,
            "agents": agents(folder, mouth),
            "auth": {"operator_key": KNOWN["the operator key"]},
            "server": {"log_level": "debug"},
        }
        nodes = [
            stack.enter_context(Node(folder / name, roles=roles, **common))
            for name, roles in (("owner", ["agents"]), ("edge", ["edge"]))
        ]
        asyncio.run(_scenes(heard, mouth, *nodes))
        for name, node in zip(LOGGED_NODES, nodes, strict=True):
            heard.outputs[f"metrics of the {name}"] = httpx.get(f"{node.url}/metrics").content
        stored = dumped(redis)
        heard.outputs["Redis: keys"] = b"\n".join(stored)
        heard.outputs["Redis: values"] = b"\n".join(stored.values())
        nodes[0].kill()  # what a death leaves behind
        wait_until(lambda: httpx.get(f"{nodes[1].url}/readyz").status_code == 200, 10, "the edge")
        nodes[1].stop()
        for name, node in zip(LOGGED_NODES, nodes, strict=True):
            heard.outputs[f"log of the {name}"] = "\n".join(node.errors).encode()
            heard.outputs[f"stdout of the {name}"] = "\n".join(node.output).encode()
    heard.outputs["Redis: commands"] = b"".join(commands)
    heard.outputs["the child"] = mouth.heard()
    heard.outputs["crashes"] = crashes(folder, heard.canaries)
    return heard


async def _scenes(heard: Heard, mouth: Mouth, owner: Node, edge: Node) -> None:
    async with ear(edge.url) as listening:
        base = f"http://127.0.0.1:{listening.port}"
        headers = {"Authorization": f"Bearer {API_KEY}"}
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=30) as http:
            stage = Stage(heard, mouth, owner, edge, listening, http)
            for scene in (prompts, words, arguments, results, schemas, names, requests, sockets, failures):
                await scene(stage)
        heard.outputs["clients"] = bytes(listening.heard)
