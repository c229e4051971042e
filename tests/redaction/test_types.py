"""No reader, log line or child frame can be built from text that has not been redacted: pyright refuses it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SINKS = """
from gateway.model.clean import DiagnosticText, DispatchJson, LogJson, LogText, ModelJson, ModelText
from gateway.model.redaction import KnownSecret, Redactor, ours_for_diagnostics, ours_for_model, trusted, trusted_json

def reader_event(kind: LogText, data: LogJson) -> None: ...
def log_line(text: DiagnosticText) -> None: ...
def child_frame(text: ModelText, structured: ModelJson) -> None: ...
def dispatched(arguments: DispatchJson) -> None: ...

redactor = Redactor([KnownSecret("x", "y")])
text: str = input()
raw: bytes = text.encode()
arguments = redactor.dispatch_json(raw, by_name=True)
"""

REFUSED = {
    "a reader's event from a str": "reader_event(text, redactor.log_json(raw))",
    "a reader's event from bytes": "reader_event(redactor.log_text(text), raw)",
    "a log line from a str": "log_line(text)",
    "a log line from an f-string over clean text": 'log_line(f"x {redactor.diagnostic(text)}")',
    "a log line from text for the model": "log_line(redactor.model_text(text))",
    "a child's frame from a str": "child_frame(text, redactor.model_json(raw))",
    "a child's frame from bytes": "child_frame(redactor.model_text(text), raw)",
    "a child's frame from a dispatch": "child_frame(redactor.model_text(text), arguments)",
    "a dispatch from bytes": "dispatched(raw)",
    "a constant that is none": "trusted(text)",
    "a constant made from a str": 'ours_for_model(f"x {text}")',
    "constant JSON that is none": "trusted_json(text)",
    "a constant for diagnostics that is none": "ours_for_diagnostics(text)",
}
ACCEPTED = """
reader_event(redactor.log_text(text), redactor.log_json(raw))
reader_event(trusted("session_created"), trusted_json("{}"))
log_line(redactor.diagnostic(text))
log_line(ours_for_diagnostics("the bus is not reachable"))
child_frame(redactor.model_text(text), redactor.model_json(raw))
child_frame(ours_for_model("Error client_gone: " + "the client left"), redactor.model_json(raw))
dispatched(redactor.dispatch_json(raw, by_name=False))
for part in (redactor.deltas().feed(text), redactor.deltas().flush()):
    reader_event(part, redactor.log_json(raw))
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
