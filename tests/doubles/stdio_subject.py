"""A child under test behind this gateway's own adapter: the demo agent or the real magi-code, driven by one script.

Owns how each is started and one life of it. What the adapter would never write (a bound passed by one, a broken frame)
goes out by ``Life.raw`` and ``Life.forge``.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adapters.stdio.child import Child, ChildRefusedError, spawn
from adapters.stdio.events import InFlight, LostRequest
from adapters.stdio.frames import MessageReconcile, RunFinished, ToolCall
from adapters.stdio.launch import LaunchSpec
from adapters.stdio.messages import RunMessages
from adapters.stdio.reaper import Reaper
from adapters.stdio.requests import Request, ToolDescriptor
from adapters.stdio.results import RESULTS, Admitted, Attached, Result
from gateway.model.clean import ModelJson, ModelText
from gateway.model.redaction import ours_for_model, ours_for_model_json
from tests.doubles.python_child import Listener
from tests.doubles.scripted_model import write_home
from tests.doubles.stdio_peers import DEMO, magi_binary

WITHIN_S = 30.0
X = ToolDescriptor("client__x", ours_for_model("A tool."), ours_for_model_json('{"type":"object"}'), 2_000)
CALL: dict[str, Any] = {"calls": [{"name": "client__x", "arguments": {}}]}
SAY: dict[str, Any] = {"text": "{{results}}"}


class Life:
    """One child."""

    def __init__(self, child: Child, heard: Listener) -> None:
        self.child = child
        self.heard = heard
        self.session = ""
        self.revision = ""
        self.run = ""
        self._forged = 0

    @property
    def protocol(self) -> Any:
        """The machine of its frames; a test may look inside."""
        return self.child.protocol

    async def ask(self, request: Request) -> Any:
        """A request's result."""
        return await self.child.request(request, WITHIN_S)

    async def refused(self, request: Request) -> str:
        """A request's error code."""
        try:
            result: Result = await self.ask(request)
        except ChildRefusedError as error:
            return error.code
        raise AssertionError(f"accepted: {result}")

    def forge(self, method: str, params: Any, request_id: str | None = None) -> Request:
        """A request that no builder makes; known to the machine, so that its answer finds it."""
        if request_id is None:
            self._forged += 1
            request_id = f"forged-{self._forged}"
        frame = {
            "protocol": "magi-code.local-agent",
            "version": 1,
            "id": request_id,
            "method": method,
            "params": params,
        }
        data = json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        known: Any = method if method in RESULTS else "status"
        self.protocol._in_flight[request_id] = InFlight(request_id, known, len(data) - 1, None)
        return Request(request_id, known, data)

    async def forged(self, method: str, params: Any, request_id: str | None = None) -> str:
        """The error code of a forged request; empty when it was accepted."""
        try:
            await self.ask(self.forge(method, params, request_id))
        except ChildRefusedError as error:
            return error.code
        return ""

    async def raw(self, data: bytes) -> str:
        """The code of the error without an id that these bytes bring."""
        before = len(self.heard.of(LostRequest))
        self.child._stdin.write(data)
        return (await self.heard.many(LostRequest, before + 1, WITHIN_S))[before].code

    async def initialize(self, tools: Sequence[ToolDescriptor] | None = (X,), *, cards: bool = False) -> "Life":
        """The handshake and a session."""
        await self.ask(self.protocol.initialize(tools, cards=cards))
        return await self.attach()

    async def attach(self, session: str | None = None) -> "Life":
        """A new session, or an earlier one."""
        attached = await self.ask(
            self.protocol.session_create() if session is None else self.protocol.session_open(session)
        )
        assert isinstance(attached, Attached)
        self.session, self.revision = attached.session_id, attached.revision
        return self

    async def turn(self, *steps: Any) -> str:
        """Starts a run: its id."""
        admitted = await self.ask(self.protocol.turn_start(self.session, ModelText(json.dumps({"steps": steps}))))
        assert isinstance(admitted, Admitted)
        self.run = admitted.run_id
        return self.run

    async def finished(self, number: int = 1) -> RunFinished:
        """How the run with this number ended."""
        found: RunFinished = (await self.heard.many(RunFinished, number, WITHIN_S))[number - 1]
        if found.revision is not None:
            self.revision = found.revision
        return found

    async def call(self, number: int = 1) -> ToolCall:
        """The call with this number."""
        return (await self.heard.many(ToolCall, number, WITHIN_S))[number - 1]

    async def play(self, *steps: Any, answer: Callable[[ToolCall], str]) -> RunFinished:
        """A whole run, the first of this child, whose calls are all answered."""
        await self.turn(*steps)
        finished = asyncio.ensure_future(self.finished())
        number = 1
        try:
            while not finished.done():
                calling = asyncio.ensure_future(self.call(number))
                await asyncio.wait([finished, calling], return_when=asyncio.FIRST_COMPLETED)
                if calling.done():
                    number += 1
                    await self.ask(self.result(calling.result(), answer(calling.result())))
                else:
                    calling.cancel()
            return finished.result()
        finally:
            finished.cancel()

    def messages(self) -> list[str]:
        """What the run has said, each message as it stands now."""
        messages = RunMessages()
        for event in self.heard.events:
            if isinstance(event, MessageReconcile) and event.run_id == self.run:
                messages.reconcile(event)
        return [message.text for message in messages.finish()]

    def said(self) -> str:
        """The run's last message."""
        return self.messages()[-1]

    def result(self, call: ToolCall, text: str = "done", structured: bytes | None = None) -> Request:
        """An answer to a call."""
        return self.protocol.tool_result(
            call.call_id,
            status="success",
            text=ModelText(text),
            structured=None if structured is None else ModelJson(structured),
        )

    def identity(self, call: ToolCall, **more: Any) -> dict[str, Any]:
        """The params of an answer, to be forged."""
        return {
            "instance_id": self.protocol.instance_id,
            "session_id": call.session_id,
            "run_id": call.run_id,
            "call_id": call.call_id,
            "task_id": call.task_id,
            "subagent_id": call.subagent_id,
            "status": "success",
            "text": "done",
            **more,
        }


class Subject:
    """One kind of child, ``name`` says which, with a home of its own."""

    def __init__(self, name: str, folder: Path, reaper: Reaper, port: int) -> None:
        self.name = name
        self.folder = folder
        self._reaper = reaper
        self._port = port
        self._lives: list[Life] = []
        self.hooks: Mapping[str, Any] = {}
        """Hooks of the real child's own (its setting ``automation.hooks``); the demo agent's stand in its script."""

    async def start(self, *, cwd: str = "cwd", **env: str | None) -> Life:
        """A child that has said nothing yet. ``env`` adds to its environment; None takes a variable out."""
        work = self.folder / cwd
        work.mkdir(exist_ok=True)
        home = self.folder / "home"
        if self.name == "magi":
            command, own = (str(magi_binary()), "serve", "--stdio"), write_home(home, self._port, self.hooks)
        else:
            command, own = (sys.executable, str(DEMO), "serve", "--stdio"), {"MC_HOME": str(home)}
        environment = {**own, "HOME": str(self.folder), "PATH": os.environ["PATH"], **env}
        heard = Listener()
        spec = LaunchSpec(command, work, {name: value for name, value in environment.items() if value is not None})
        life = Life(await spawn(spec, heard, reaper=self._reaper), heard)
        self._lives.append(life)
        return life

    async def begin(self, **options: Any) -> Life:
        """A child with a tool and a session."""
        return await (await self.start()).initialize(**options)

    def session_files(self) -> list[Path]:
        """Where its sessions lie."""
        return [path for path in (self.folder / "home").rglob("*.jsonl") if path.stat().st_size]

    async def close(self) -> None:
        """Ends all that were started."""
        for life in self._lives:
            await life.child.stop(grace=1.0)
