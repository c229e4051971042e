"""What the fuzzer cannot make up: an agent that there is; for single requests a session and a client that there are."""

import os
from typing import Any

import schemathesis

KNOWN = {"sid": os.environ.get("FUZZ_SESSION"), "cid": os.environ.get("FUZZ_CLIENT")}
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
    known = {name: value for name, value in KNOWN.items() if value and name in path_parameters}
    return {**path_parameters, **known}
