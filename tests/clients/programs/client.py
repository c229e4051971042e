"""A client that a test drives: commands on stdin, what happens on stdout, a JSON object a line each."""

import asyncio
import json
import sys
from typing import Any

import msgspec

from toolrelay_client import Call, Client, Registration, Tool, ToolrelayError


def say(said: str, **fields: Any) -> None:
    print(json.dumps({"said": said, **fields}), flush=True)


class Anything(msgspec.Struct):
    row: Any = None


class Program:
    def __init__(self) -> None:
        self.open: dict[str, asyncio.Future[str]] = {}
        self.client: Client
        self.over = asyncio.Event()

    def tool(self, name: str) -> Tool:
        async def run(call: Call, **arguments: Any) -> str:
            left = call.remaining_s * 1000
            say("call", call_id=call.call_id, tool=name, args=arguments, attempt=call.attempt, remaining_ms=left)
            if name.startswith("hold"):
                coming = self.open[call.call_id] = asyncio.get_running_loop().create_future()
                try:
                    return await coming
                except asyncio.CancelledError:
                    say("aborted", call_id=call.call_id)
                    raise
            if name == "grow":
                self.client.add(self.tool("grown"))
                return "grown"
            if name == "large":
                return "x" * 70_000
            if name == "boom":
                raise ValueError("on purpose")
            return json.dumps(arguments, separators=(",", ":"))

        return Tool(name, name, {"type": "object"}, run, Anything, "call", idempotent=name.endswith("idempotent"))

    def offer(self, names: list[str]) -> None:
        for gone in [name for name in ("echo", "hold", "hold_idempotent", "other") if self.client.find(name)]:
            if gone not in names:
                self.client.remove(gone)
        for name in names:
            self.client.add(self.tool(name))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        first = json.loads(await reader.readline())
        registration = first.get("registration")
        self.client = client = Client(
            first["url"],
            session=first["session"],
            token=first["token"],
            name="web",
            key=first.get("key"),
            ttl_s=first["ttl"],
            after_seq=first.get("after_seq"),
            registration=Registration(**registration) if registration else None,
            on_state=self.state,
            on_error=lambda error: say("error", code=error.code),
        )
        self.offer(first["tools"])
        async with client, asyncio.TaskGroup() as group:
            watching = group.create_task(self.watch())
            while line := await reader.readline():
                command = json.loads(line)
                match command.pop("do"):
                    case "finish":
                        self.open[command["call_id"]].set_result(command["text"])
                    case "set_tools":
                        self.offer(command["tools"])
                    case "send":
                        group.create_task(self.send(**command))
                    case "close":
                        await client.close(leave=command["leave"])
                        break
                    case other:
                        raise ValueError(other)
            watching.cancel()
        say("bye")

    def state(self, state: str) -> None:
        held = self.client.registration
        if state == "online" and held is not None:
            say("registration", client_id=held.client_id, resume_key=held.resume_key)
        say("state", state=state, code=self.client.error.code if self.client.error else None)

    async def watch(self) -> None:
        async for event in self.client.events():
            say("event", type=event["type"], seq=event["seq"])

    async def send(self, text: str, key: str) -> None:
        try:
            say("sent", **await self.client.send(text, idempotency_key=key))
        except ToolrelayError as error:
            say("error", code=error.code)


asyncio.run(Program().run())
