"""The other tools of the redaction benchmark: detect-secrets and gitleaks. Owns how they are asked and how their own
test samples are read; must never put either into this project.

Both are optional. ``DETECT_SECRETS_PYTHON`` names an interpreter with detect-secrets (and pytest) in it and
``DETECT_SECRETS_SOURCE`` a checkout of its repository; gitleaks is looked for on PATH (``GITLEAKS`` names it otherwise)
and its source, whose rules bring sample generators, in Go's module cache (``go install`` puts it there).
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_PATIENCE_S: Final = 300
_AT_ONCE: Final = 1_000  # texts for one process of detect-secrets
_TESTS: Final = ("tests/plugins",)
_MODULE: Final = "github.com/zricethezav/gitleaks"

_RECORDER: Final = '''
"""Writes down every line that detect-secrets' own tests put to a plugin, and what the plugin found in it.

Some of its patterns take minutes for some of its lines: after two seconds of work a line counts as one without a find.
"""
import json, os, signal
import detect_secrets.plugins.base as base

lines, given_up = {}, set()

class TooLong(Exception):
    pass

def too_long(*_):
    raise TooLong

signal.signal(signal.SIGVTALRM, too_long)

def wrap(cls):
    original = cls.__dict__.get("analyze_line")
    if original is None or getattr(original, "recorded", False):
        return
    def analyze_line(self, filename, line, line_number=0, *args, **kwargs):
        signal.setitimer(signal.ITIMER_VIRTUAL, 2)
        try:
            found = original(self, filename, line, line_number, *args, **kwargs)
        except TooLong:
            given_up.add(line)
            found = set()
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        values = [one.secret_value for one in found if one.secret_value]
        if values and isinstance(line, str):
            lines.setdefault((self.secret_type, line), values)
        return found
    analyze_line.recorded = True
    cls.analyze_line = analyze_line

def pytest_collection_finish(session):
    todo = [base.BasePlugin]
    while todo:
        cls = todo.pop()
        todo += cls.__subclasses__()
        wrap(cls)

def pytest_sessionfinish(session):
    with open(os.environ["RECORD_TO"], "w") as out:
        rows = [[kind, line, values] for (kind, line), values in lines.items()]
        json.dump({"rows": rows, "given_up": len(given_up)}, out)
'''

_SCAN: Final = """
import json, os, sys, tempfile
from detect_secrets.core.scan import scan_file
from detect_secrets.settings import default_settings
texts = json.load(sys.stdin)
owner = [at for at, text in enumerate(texts) for _ in text.split(chr(10))]
with tempfile.TemporaryDirectory() as folder, default_settings():
    path = os.path.join(folder, "texts.txt")
    with open(path, "w", encoding="utf-8", errors="replace", newline="") as out:
        out.write(chr(10).join(text.replace(chr(13), " ") for text in texts))
    found = {owner[one.line_number - 1] for one in scan_file(path) if one.line_number - 1 < len(owner)}
json.dump([at in found for at in range(len(texts))], sys.stdout)
"""

_VALIDATE: Final = """package utils

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/zricethezav/gitleaks/v8/cmd/generate/config/base"
	"github.com/zricethezav/gitleaks/v8/config"
	"github.com/zricethezav/gitleaks/v8/detect"
)

var out = func() *json.Encoder {
	file, err := os.Create(os.Getenv("RECORD_TO"))
	if err != nil {
		panic(err)
	}
	return json.NewEncoder(file)
}()

func record(rule config.Rule, samples []string) *config.Rule {
	cfg := base.CreateGlobalConfig()
	cfg.Keywords = map[string]struct{}{}
	for at, keyword := range rule.Keywords {
		rule.Keywords[at] = strings.ToLower(keyword)
		cfg.Keywords[rule.Keywords[at]] = struct{}{}
	}
	cfg.Rules = map[string]config.Rule{rule.RuleID: rule}
	detector := detect.NewDetector(cfg)
	for _, sample := range samples {
		values := []string{}
		for _, finding := range detector.DetectString(sample) {
			values = append(values, finding.Secret)
		}
		out.Encode([]any{rule.RuleID, sample, values})
	}
	return &rule
}

func Validate(rule config.Rule, found []string, _ []string) *config.Rule { return record(rule, found) }

func ValidateWithPaths(rule config.Rule, found map[string]string, _ map[string]string) *config.Rule {
	samples := []string{}
	for _, sample := range found {
		samples = append(samples, sample)
	}
	return record(rule, samples)
}
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of another tool: its kind there, the text, and the secret values in it."""

    kind: str
    text: str
    values: tuple[str, ...]


class Missing(Exception):
    """A tool or its source is not here; says which."""


def _run(command: Sequence[str], *, given: str | None = None, cwd: Path | None = None, **env: str) -> str:
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            cwd=cwd,
            env={**os.environ, **env},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{Path(command[0]).name} did not end within {_PATIENCE_S} s") from None
    if done.returncode not in (0, 1):
        raise Missing(f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr[-300:]}")
    return done.stdout


def _detect_secrets() -> str:
    python = os.environ.get("DETECT_SECRETS_PYTHON")
    if not python or not Path(python).exists():
        raise Missing("detect-secrets is not here (DETECT_SECRETS_PYTHON names an interpreter that has it)")
    return python


def detect_secrets_samples() -> tuple[list[Sample], int]:
    """What detect-secrets' own plugin tests take for secrets, and in how many of their lines it did not end."""
    python = _detect_secrets()
    source = os.environ.get("DETECT_SECRETS_SOURCE")
    if not source or not (Path(source) / "tests" / "plugins").is_dir():
        raise Missing("detect-secrets' tests are not here (DETECT_SECRETS_SOURCE names a checkout)")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "recorder.py").write_text(_RECORDER)
        record = Path(folder) / "record.json"
        _run(
            # Its tests of verification ask the services themselves, which is of no use here.
            [python, "-m", "pytest", "-q", "-p", "recorder", "-p", "no:cacheprovider", "-k", "not verify", *_TESTS],
            cwd=Path(source), PYTHONPATH=folder, RECORD_TO=str(record),
        )  # fmt: skip
        recorded: dict[str, Any] = json.loads(record.read_text())
    return [Sample(kind, text, tuple(values)) for kind, text, values in recorded["rows"]], int(recorded["given_up"])


def detect_secrets_finds(texts: Sequence[str]) -> list[bool]:
    """Which of ``texts`` detect-secrets takes for secrets, with its default plugins and filters."""
    found: list[bool] = []
    for at in range(0, len(texts), _AT_ONCE):
        part = json.dumps(list(texts[at : at + _AT_ONCE]))
        found += json.loads(_run([_detect_secrets(), "-c", _SCAN], given=part))
    return found


def _gitleaks_source() -> Path:
    go = shutil.which("go")
    if go is None:
        raise Missing("Go is not here, so gitleaks' sample generators are not either")
    cache = Path(_run([go, "env", "GOMODCACHE"]).strip())
    found = sorted((cache / _MODULE).glob("v8@*"))
    if not found:
        raise Missing("gitleaks' source is not in Go's module cache (go install .../gitleaks/v8@latest)")
    return found[-1]


def gitleaks_samples() -> tuple[list[Sample], int]:
    """What gitleaks' own rule generators make and gitleaks finds; it ends for every one."""
    source = _gitleaks_source()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "gitleaks"
        shutil.copytree(source, copy)
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        (copy / "cmd/generate/config/utils/validate.go").write_text(_VALIDATE)
        record = Path(folder) / "record.jsonl"
        _run(["go", "run", "./cmd/generate/config", str(Path(folder) / "out.toml")], cwd=copy, RECORD_TO=str(record))
        rows: list[Any] = [json.loads(line) for line in record.read_text().splitlines()]
    return [Sample(kind, text, tuple(values)) for kind, text, values in rows if values], 0


def gitleaks_finds(texts: Sequence[str]) -> list[bool]:
    """Which of ``texts`` gitleaks takes for secrets, with its default rules: one file each."""
    binary = os.environ.get("GITLEAKS") or shutil.which("gitleaks")
    if binary is None:
        raise Missing("gitleaks is not here (PATH, or GITLEAKS)")
    with tempfile.TemporaryDirectory() as folder:
        for number, text in enumerate(texts):
            (Path(folder) / f"{number}.txt").write_text(text, "utf-8", "replace")
        report = Path(folder) / "report.json"
        _run([binary, "dir", folder, "--no-banner", "-l", "error", "-f", "json", "-r", str(report), "--exit-code", "0"])
        found = {int(Path(row["File"]).stem) for row in json.loads(report.read_text())}
    return [number in found for number in range(len(texts))]
