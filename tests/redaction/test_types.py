"""No reader, log line or child frame can be built from text that has not been redacted: pyright refuses it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SINKS = """
from adapters.stdio.protocol import ChildProtocol
from adapters.stdio.requests import ToolDescriptor
from gateway.model import events
from gateway.model.clean import DispatchJson
from gateway.model.redaction import (
    KnownSecret, Redactor, ours_for_diagnostics, ours_for_model, trusted, trusted_json
)
from gateway.observe.log import get_logger

def dispatched(arguments: DispatchJson) -> None: ...

redactor = Redactor([KnownSecret("x", "y")])
log = get_logger("planted")
child = ChildProtocol()
text: str = input()
raw: bytes = text.encode()
arguments = redactor.dispatch_json(raw, by_name=True)
clean = redactor.model_text(text)
"""

REFUSED = {
    "an input's event from a str": "events.message_user(text)",
    "a message's event from a str": "events.message_assistant(text)",
    "a message's event from an f-string over clean text": 'events.message_assistant(f"{redactor.log_text(text)}")',
    "a message's event from text for the model": "events.message_assistant(redactor.model_text(text))",
    "a call's block from bytes": 'events.message_assistant_call("c", "n", raw)',
    "a call's block from a dispatch": 'events.message_assistant_call("c", "n", arguments)',
    "a call's event from bytes": 'events.tool_call("c", "n", raw)',
    "a result's event from a str": 'events.tool_result("c", text, is_error=False)',
    "a failed run's event from a str": 'events.run_failed("r", text)',
    "an error's event from a str": "events.error(text)",
    "an approval's event from bytes": 'events.approval_requested("c", raw, "h")',
    "a denial's event from a str": 'events.approval_resolved("c", "deny", text, None)',
    "a client's event from bytes": 'events.client_registered("c", trusted_json("{}"), raw)',
    "a list's event from bytes": 'events.client_tools_updated("c", raw)',
    "an event of ours from bytes": 'events.custom("k", raw)',
    "an event's bytes from bytes": "payload: events.EventPayload = raw",
    "a log line's text from a str": 'log.info("said", text=text)',
    "a log line's text from an f-string over clean text": 'log.debug("said", text=f"x {redactor.diagnostic(text)}")',
    "a log line's text from text for the model": 'log.warning("said", text=redactor.model_text(text))',
    "a log line's event from a str": "log.error(text)",
    "a log line's event from an f-string": 'log.info(f"said {text}")',
    "a child's prompt from a str": 'child.turn_start("s", text)',
    "a child's prompt from text for the log": 'child.turn_start("s", redactor.log_text(text))',
    "a child's result from a str": 'child.tool_result("c", status="success", text=text)',
    "a child's result from bytes": 'child.tool_result("c", status="success", text=clean, structured=raw)',
    "a child's result from a dispatch": 'child.tool_result("c", status="success", text=clean, structured=arguments)',
    "a child's tool from a str": 'ToolDescriptor("client__x", text, redactor.schema_json(raw))',
    "a child's tool from bytes": 'ToolDescriptor("client__x", clean, raw)',
    "a dispatch from bytes": "dispatched(raw)",
    "a constant that is none": "trusted(text)",
    "a constant made from a str": 'ours_for_model(f"x {text}")',
    "constant JSON that is none": "trusted_json(text)",
    "a constant for diagnostics that is none": "ours_for_diagnostics(text)",
}
ACCEPTED = """
events.message_user(redactor.log_text(text))
events.message_assistant(redactor.log_text(text))
events.message_assistant(trusted("it said nothing"))
events.message_assistant_call("c", "n", redactor.log_json(raw))
events.tool_call("c", "n", redactor.log_json(raw))
events.tool_result("c", redactor.log_text(text), is_error=False)
events.run_failed("r", redactor.log_text(text))
events.error(redactor.log_text(text))
events.approval_requested("c", redactor.log_json(raw), "h")
events.approval_resolved("c", "deny", redactor.log_text(text), None)
events.client_registered("c", trusted_json("{}"), redactor.log_json(raw))
events.client_tools_updated("c", redactor.log_json(raw))
events.custom("k", trusted_json("{}"))
log.info("said", text=redactor.diagnostic(text), number=1)
log.error("said", text=ours_for_diagnostics("the bus is not reachable"), error=ValueError(text))
child.turn_start("s", redactor.model_text(text))
child.tool_result("c", status="success", text=clean, structured=redactor.model_json(raw))
child.tool_result("c", status="error", text=ours_for_model("Error client_gone: " + "the client left"))
child.initialize([ToolDescriptor("client__x", clean, redactor.schema_json(raw))])
dispatched(redactor.dispatch_json(raw, by_name=False))
for part in (redactor.deltas().feed(text), redactor.deltas().flush()):
    events.message_assistant(part)
"""


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Line number of the planted file -> what pyright says about it. One run for all."""
    folder = tmp_path_factory.mktemp("planted")
    planted = folder / "planted.py"
    planted.write_text(SINKS + "\n".join(REFUSED.values()) + ACCEPTED)
    config = {
        "extraPaths": [str(ROOT)],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
        "include": ["planted.py"],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    pyright = Path(sys.executable).with_name("pyright")
    done = subprocess.run(
        [str(pyright), "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] >= 1, done.stderr
    return {item["range"]["start"]["line"]: item["message"] for item in report["generalDiagnostics"]}


@pytest.mark.parametrize("what", REFUSED)
def test_pyright_refuses(what: str, errors: dict[int, str]) -> None:
    line = SINKS.count("\n") + list(REFUSED).index(what)
    assert "is not assignable to" in errors.get(line, ""), what


def test_pyright_accepts_the_right_way(errors: dict[int, str]) -> None:
    first = SINKS.count("\n") + len(REFUSED)
    assert {line: text for line, text in errors.items() if line >= first or line < SINKS.count("\n")} == {}
