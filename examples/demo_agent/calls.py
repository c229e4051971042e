"""The calls that stand open with the client. Owns their identity, their clocks and how each one ends.

A call ends once: by the first valid result, by its timeout, by a cancel of its run or by the end of the child,
whichever comes first; whoever is later hears ``stale_client_tool_call`` (stdio protocol, "Execute and reply").
"""

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from frames import Refused, anything, compact, fields, is_text
from output import Output
from redact import tool_result
from registry import LIMITS, Tool

IDENTITY = ("session_id", "run_id", "call_id", "task_id", "subagent_id")
DELEGATE_ID_BYTES = 1_024


class CallFailed(Exception):
    """A call that did not get an answer: ``client_tool_timeout``, ``client_tool_busy`` and so on."""


@dataclass(frozen=True)
class Answer:
    """What a client answered, as the model may see it."""

    text: str
    failed: bool


@dataclass(eq=False)
class Call:
    """One open call. ``ended`` is its answer, or the reason why there will be none."""

    data: dict[str, Any]
    deadline: float  # monotonic seconds
    ended: Answer | str | None = field(default=None)

    def identity(self) -> dict[str, Any]:
        """The five fields that a client copies."""
        return {name: self.data[name] for name in IDENTITY}


def _delegate_id(value: Any) -> bool:
    return value is None or (isinstance(value, str) and 0 < len(value.encode()) <= DELEGATE_ID_BYTES)


def _status(value: Any) -> bool:
    return value in ("success", "error")


RESULT_FIELDS = {
    **dict.fromkeys(("instance_id", "session_id", "run_id", "call_id", "text"), is_text),
    **dict.fromkeys(("task_id", "subagent_id"), _delegate_id),
    "status": _status,
}


class Broker:
    """All open calls of the child, at most sixteen, whoever asked."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.tools: dict[str, Tool] = {}
        self.open_calls: dict[str, Call] = {}

    def open(self, scope: dict[str, Any], name: str, arguments: Any, call_id: str | None = None) -> Call:
        """Publish a call. ``scope`` has the session, run, task and subagent. CallFailed when it may not go out."""
        tool = self.tools.get(name)
        if tool is None:
            raise CallFailed("client_tool_unavailable")
        self.check(arguments)
        with self.output.room:
            if len(self.open_calls) >= LIMITS["pending_calls"]:
                raise CallFailed("client_tool_busy")
            deadline = time.monotonic() + tool.timeout_ms / 1000  # before it is published, and never again
            identity: dict[str, Any] = {**scope, "call_id": call_id or str(uuid.uuid4())}
            data: dict[str, Any] = {**identity, "name": name, "arguments": arguments, "timeout_ms": tool.timeout_ms}
            call = Call(data, deadline)
            self.open_calls[data["call_id"]] = call
        try:
            self.output.event("client.tool.call", data)
        except BaseException as error:
            self._end(call, "output_unavailable")
            if isinstance(error, ValueError):
                raise CallFailed("client_tool_payload_limit") from None
            raise
        return call

    def check(self, arguments: Any) -> None:
        """Shape and size of arguments, before a hook of the agent sees them and after it made others. CallFailed."""
        try:
            size = len(compact(arguments))
        except ValueError:
            size = LIMITS["arguments_bytes"] + 1
        if not isinstance(arguments, dict) or size > LIMITS["arguments_bytes"]:
            raise CallFailed("client_tool_payload_limit")

    def wait(self, call: Call) -> Answer:
        """The answer of a call; CallFailed with the code that the model sees. Announces a cancel to the client."""
        room = self.output.room
        with room:
            if not room.wait_for(lambda: call.ended is not None, max(0.0, call.deadline - time.monotonic())):
                self._end(call, "timeout")
            ended = call.ended
        if isinstance(ended, Answer):
            return ended
        self.output.event("client.tool.cancel", {**call.identity(), "reason": ended})
        raise CallFailed(f"client_tool_{ended}")

    def _end(self, call: Call, ended: Answer | str) -> None:
        with self.output.room:
            if call.ended is None:
                call.ended = ended
                self.open_calls.pop(call.data["call_id"], None)
                self.output.room.notify_all()

    def end_run(self, run_id: str, reason: str) -> list[Call]:
        """End every open call of a run for ``reason``; whoever waits for one announces it. The calls ended."""
        with self.output.room:
            calls = [call for call in self.open_calls.values() if call.data["run_id"] == run_id]
            for call in calls:
                self._end(call, reason)
        return calls

    def settle(self, request_id: str, params: Any) -> None:
        """``client.tool.result``: refuse it, or answer it and only then let the run go on."""
        value = fields(params, RESULT_FIELDS, {"structured": anything})
        try:
            text = tool_result(value["text"], *([value["structured"]] if "structured" in value else []))
        except ValueError:
            raise Refused("invalid_params") from None
        with self.output.room:
            call = self.open_calls.get(value["call_id"])
            known = call is not None and all(value[name] == item for name, item in call.identity().items())
            if call is None or not known or value["instance_id"] != self.output.instance_id:
                raise Refused("stale_client_tool_call")
            if time.monotonic() >= call.deadline:
                raise Refused("stale_client_tool_call")  # whoever waits for it says timeout
            self.output.respond(request_id, result={"accepted": True})
            self._end(call, Answer(text, value["status"] == "error"))
