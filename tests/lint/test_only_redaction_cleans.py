"""Nobody but the redaction package makes the types of ``gateway.model.clean``, but for a short list with reasons."""

import ast
from pathlib import Path

import pytest

from gateway.model import clean

ROOT = Path(__file__).parents[2]
HOME = ROOT / "gateway" / "model" / "redaction"
TYPES = frozenset(name for name in vars(clean) if name.endswith(("Text", "Json")))
SOURCES = [
    path
    for folder in ("gateway", "adapters", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if HOME not in path.parents
]


def made(source: str) -> list[tuple[int, str]]:
    """Where a source calls one of the types, casts to it, or takes it under another name."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = _name(node.func)
            if name in TYPES:
                found.append((node.lineno, f"{name}(...)"))
            elif name == "cast" and node.args and _cast_to(node.args[0]):
                found.append((node.lineno, "cast"))
            elif name in ("map", "partial") and any(_name(arg) in TYPES for arg in node.args):
                found.append((node.lineno, str(name)))
        elif isinstance(node, ast.ImportFrom) and node.module == "gateway.model.clean":
            found += [(node.lineno, f"{alias.name} as {alias.asname}") for alias in node.names if alias.asname]
        elif isinstance(node, ast.Assign) and _name(node.value) in TYPES:
            found.append((node.lineno, "another name"))
    return found


def _name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _cast_to(node: ast.expr) -> bool:
    text = node.value if isinstance(node, ast.Constant) else ast.unparse(node)
    return any(name in str(text) for name in TYPES)


def test_there_is_something_to_look_at() -> None:
    assert {"LogText", "LogJson", "ModelText", "ModelJson", "DispatchJson", "DiagnosticText"} == TYPES
    assert len(SOURCES) > 10


OTHERS = {
    "adapters/stdio/failures.py": "a child's code, of a closed set, and its redacted last words behind a constant",
    "gateway/bus/sessions.py": "reads back what was clean when it was queued",
    "gateway/model/catalog.py": "puts clean parts and constants together",
    "gateway/model/narrowing.py": "encodes a copy of a schema that was clean when it was stored",
    "gateway/model/results.py": "cuts a clean text into parts and counts them",
    "gateway/services/answers.py": "a constant before a clean text",
    "gateway/services/offers.py": "encodes what was clean when it was stored, and numbers",
}
"""Who else makes one, and why it needs no redaction there."""


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if str(path.relative_to(ROOT)) not in OTHERS],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_nothing_is_made_outside(path: Path) -> None:
    assert made(path.read_text()) == []


@pytest.mark.parametrize("name", OTHERS)
def test_the_list_of_others_is_short(name: str) -> None:
    assert made((ROOT / name).read_text()), "it takes its name off the list"


@pytest.mark.parametrize(
    "source",
    [
        "LogText('x')",
        "clean.ModelJson(raw)",
        "cast(LogText, text)",
        "cast('LogText', text)",
        "typing.cast('list[LogJson]', texts)",
        "from gateway.model.clean import LogText as T",
        "make = LogText",
        "list(map(LogText, texts))",
        "functools.partial(LogText, x)",
    ],
)
def test_planted_makers_are_found(source: str) -> None:
    assert made(source)


@pytest.mark.parametrize("source", ["def f(x: LogText) -> LogJson: ...", "from gateway.model.clean import LogText"])
def test_uses_are_fine(source: str) -> None:
    assert not made(source)
