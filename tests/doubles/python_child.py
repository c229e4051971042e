"""Children written in a few lines of Python, and what is heard of them."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from adapters.stdio.child import Child, ChildBounds, ChildEvent
from adapters.stdio.results import Status

PRELUDE = """
import itertools, json, os, signal, subprocess, sys, threading, time
seq = itertools.count(1)
def frame(**fields):
    return json.dumps({"protocol": "magi-code.local-agent", "version": 1, "instance_id": "i1", "seq": next(seq),
                       **fields}).encode() + b"\\n"
def put(data):
    while data:
        data = data[os.write(1, data):]
def respond(request_id, result):
    put(frame(type="response", id=request_id, result=result))
def event(name, **data):
    put(frame(type="event", event=name, data={"session_id": "s1", "run_id": "run1", **data}))
def requests():
    for line in sys.stdin.buffer:
        yield json.loads(line)
STATUS = {"state": "idle", "readiness": "ready"}
"""

SERVE = """
for request in requests():
    if request["method"] == "status":
        respond(request["id"], STATUS)
    elif request["method"] == "turn.start":
        respond(request["id"], {"run_id": "run1", "accepted": True})
        turn()
    elif request["method"] == "shutdown":
        respond(request["id"], {"state": "stopping"})
"""


class Listener:
    """What a child said, and a wait for something in it."""

    def __init__(self) -> None:
        self.events: list[ChildEvent] = []
        self._changed = asyncio.Event()

    def __call__(self, event: ChildEvent) -> None:
        self.events.append(event)
        self._changed.set()

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def first(self, kind: type[Any], within: float = 30.0) -> Any:
        return (await self.many(kind, 1, within))[0]

    async def many(self, kind: type[Any], count: int, within: float = 30.0) -> list[Any]:
        async with asyncio.timeout(within):
            while len(found := self.of(kind)) < count:
                self._changed.clear()
                await self._changed.wait()
        return found


Start = Callable[..., Awaitable[tuple[Child, Listener]]]


QUICK = ChildBounds(stall_s=0.5, stop_s=0.5, term_s=0.5)


def state_of(pid: int) -> str:
    """The kernel's letter for a process; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


async def until(condition: Callable[[], object], within: float = 20.0) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)


async def status(child: Child, timeout: float = 20.0) -> Status:
    result = await child.request(child.protocol.status(), timeout)
    assert isinstance(result, Status)
    return result


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))
