# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false
"""What the fuzzer cannot make up, as no description tells it: ids and cursors that were handed out, a model that there
is. A request that is valid but for them gets good ones, so that it must be accepted; every other one goes as it is.
"""

import os
import re
from typing import Any

import schemathesis
from schemathesis.core.parameters import ParameterLocation

KNOWN = {"sid": os.environ.get("FUZZ_SESSION"), "cid": os.environ.get("FUZZ_CLIENT")}
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ENDS = ("delete_session", "leave_client")
AFTER = {"list_agents": os.environ.get("FUZZ_AGENT"), "list_sessions": os.environ.get("FUZZ_SESSION")}
KEY_HEADER = "Idempotency-Key"
MODEL = {"provider": "demo", "model": "rules-deep", "effort": "low"}


def _operation_id(of: Any) -> str:
    return of.operation.definition.raw.get("operationId", "")


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: Any) -> Any:
    """Requests reach the session, but those that would end it."""
    if _operation_id(context) in ENDS or not path_parameters:
        return path_parameters
    known = {name: value for name, value in KNOWN.items() if value and _UUID.fullmatch(str(path_parameters.get(name)))}
    return {**path_parameters, **known}


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Sessions are of an agent that there is."""
    if context.operation.path == "/v1/sessions" and isinstance(body, dict) and "agent_id" in body:
        return {**body, "agent_id": os.environ["FUZZ_AGENT"]}
    return body


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
    """Cursors and models, in valid requests alone; in others a fault that arrives."""
    if case.meta is None:
        return
    if case.meta.generation.mode.is_positive:
        _complete(case)
    elif _faulty_headers(case) and not _arrives((case.headers or {}).get(KEY_HEADER)):
        case.headers = {**(case.headers or {}), KEY_HEADER: "x" * 256}


def _faulty_headers(case: Any) -> bool:
    """The key is the one header that is described, so it is what is wrong."""
    described = case.operation.definition.raw.get("parameters", ())
    part = case.meta.components.get(ParameterLocation.HEADER)
    return part is not None and part.mode.is_negative and any(given["name"] == KEY_HEADER for given in described)


def _complete(case: Any) -> None:
    name = _operation_id(case)
    for cursor in ("after", "cursor"):
        if cursor in (case.query or {}):
            del case.query[cursor]
            if (known := AFTER.get(name)) is not None:
                case.query[cursor] = known
    if name == "select_session_model":
        case.body = {**case.body, **{field: MODEL[field] for field in case.body.keys() & MODEL.keys()}}


def _arrives(value: Any) -> bool:
    """Whether the fuzzer's client sends a header's value as it is: what it cannot write it leaves out, and the request
    would be a good one."""
    return isinstance(value, str) and value.strip() == value and re.fullmatch(r"[ -~\x80-\xff]+", value) is not None


@schemathesis.hook
def filter_headers(_context: Any, headers: Any) -> bool:
    """The same for single requests, which have no description of their fault."""
    key = (headers or {}).get(KEY_HEADER, "x")
    return isinstance(key, str) and bool(key.strip())
