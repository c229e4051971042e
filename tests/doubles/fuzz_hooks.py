# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false
"""What the fuzzer cannot make up: an agent that there is; for single requests a session and a client that there are."""

import os
import re
from typing import Any

import schemathesis

KNOWN = {"sid": os.environ.get("FUZZ_SESSION"), "cid": os.environ.get("FUZZ_CLIENT")}
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ENDS = ("delete_session", "leave_client")


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Sessions are of an agent that there is."""
    if context.operation.path == "/v1/sessions" and isinstance(body, dict) and "agent_id" in body:
        return {**body, "agent_id": os.environ["FUZZ_AGENT"]}
    return body


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: Any) -> Any:
    """Requests reach the session, but those that would end it."""
    if context.operation.definition.raw.get("operationId") in ENDS or not path_parameters:
        return path_parameters
    known = {name: value for name, value in KNOWN.items() if value and _UUID.fullmatch(str(path_parameters.get(name)))}
    return {**path_parameters, **known}


@schemathesis.hook
def filter_headers(_context: Any, headers: Any) -> bool:
    """An optional header that cannot be sent as it is would be left out, and the request be a good one."""
    key = (headers or {}).get("Idempotency-Key", "x")
    return isinstance(key, str) and bool(key.strip())
