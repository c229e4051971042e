"""Frames of a child, for tests of the machine that reads them: as the protocol describes them, keys sorted."""

import itertools
import json
from typing import Any

INSTANCE = "01c1ea45-2cdf-4874-95b8-3c6b6fd446a3"
SESSION = "c33c42f6-f916-4dc4-9188-bbdb93fc2b0a"
RUN = "1bdfd4dd-1512-4dd8-b757-e626fc5f4d71"
SCOPE = {"session_id": SESSION, "run_id": RUN}
LIMITS = {"frame_bytes": 65_536, "json_depth": 32, "prompt_bytes": 16_384, "requests_per_child": 4096}
TOOL_LIMITS = {"result_bytes": 32_768, "pending_calls": 16}


def line(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


class FrameWriter:
    """Writes frames with rising numbers, as one child does."""

    def __init__(self, instance_id: str = INSTANCE) -> None:
        self.instance_id = instance_id
        self.numbers = itertools.count(1)

    def envelope(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {
            "protocol": "magi-code.local-agent",
            "version": 1,
            "type": kind,
            "instance_id": self.instance_id,
            "seq": next(self.numbers),
            **fields,
        }

    def result(self, request_id: str | None, result: Any) -> bytes:
        return line(self.envelope("response", id=request_id, result=result))

    def error(self, request_id: str | None, code: str) -> bytes:
        return line(self.envelope("response", id=request_id, error={"code": code}))

    def event(self, event: str, /, **data: Any) -> bytes:
        return line(self.envelope("event", event=event, data={**SCOPE, **data}))

    def initialized(self, request_id: str, tools: list[str] | None, capabilities: list[str]) -> bytes:
        result: dict[str, Any] = {
            "capabilities": capabilities,
            "limits": LIMITS,
            "status": {"state": "idle", "readiness": "ready"},
        }
        if tools is not None:
            result["client_tools"] = {"tools": tools, "limits": TOOL_LIMITS}
        return self.result(request_id, result)

    def call(self, call_id: str = "call-1", **data: Any) -> bytes:
        fields = {
            "call_id": call_id,
            "task_id": None,
            "subagent_id": None,
            "name": "client__page__read",
            "arguments": {"row": 42},
            "timeout_ms": 300_000,
        }
        return self.event("client.tool.call", **{**fields, **data})

    def cancel(self, call_id: str = "call-1", **data: Any) -> bytes:
        fields = {"call_id": call_id, "task_id": None, "subagent_id": None, "reason": "timeout"}
        return self.event("client.tool.cancel", **{**fields, **data})

    def finished(self, **data: Any) -> bytes:
        fields = {"outcome": "completed", "persistence": "durable", "revision": "v2", "error_code": None}
        return self.event("run.finished", **{**fields, **data})
