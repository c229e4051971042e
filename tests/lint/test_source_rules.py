"""Rules of the house that no linter has: sizes, tasks, unfinished work, what project files may name."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 400
SIZED = {".py", ".ts", ".js", ".mjs", ".lua", ".html", ".css"}
TASK_OWNER = "gateway/observe/tasks.py"


def tracked() -> list[str]:
    """Every file of the project, by its path; those not yet added too."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in names if (ROOT / name).is_file()]


FILES = tracked()
SOURCES = [name for name in FILES if name.startswith(("gateway/", "adapters/")) and name.endswith(".py")]
TEXTS = [
    name
    for name in FILES
    if Path(name).suffix in {*SIZED, ".md", ".toml", ".txt", ".yml", ".yaml", ".json", ".service", ".conf", ""}
]


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def lines(name: str) -> int:
    return len(read(name).splitlines())


def test_files_stay_small() -> None:
    over = {name: count for name in FILES if Path(name).suffix in SIZED and (count := lines(name)) > LIMIT}
    assert not over, f"over {LIMIT} lines"


def bare_tasks(source: str) -> list[int]:
    """Lines that create a task other than by ``Tasks`` or inside an ``asyncio.TaskGroup``."""
    tree = ast.parse(source)
    groups = {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name) and "TaskGroup" in ast.unparse(item.context_expr)
    }
    found: list[int] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "asyncio":
            found += [node.lineno for name in node.names if name.name in ("create_task", "ensure_future")]
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = ast.unparse(node.func.value)
        if node.func.attr in ("create_task", "ensure_future") and owner not in groups:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import asyncio\nasyncio.create_task(f())", [2]),
        ("loop.create_task(f())", [1]),
        ("import asyncio\nasyncio.ensure_future(f())", [2]),
        ("from asyncio import create_task", [1]),
        ("async def f():\n async with asyncio.TaskGroup() as g:\n  g.create_task(x())", []),
        ("tasks.spawn('a', f())", []),
    ],
)
def test_bare_tasks_are_seen(source: str, expected: list[int]) -> None:
    assert bare_tasks(source) == expected


@pytest.mark.parametrize("name", [name for name in SOURCES if name != TASK_OWNER])
def test_no_task_is_created_bare(name: str) -> None:
    assert bare_tasks(read(name)) == [], "use gateway.observe.tasks.Tasks"


@pytest.mark.parametrize("name", SOURCES)
def test_a_module_says_what_it_owns(name: str) -> None:
    assert ast.get_docstring(ast.parse(read(name))), "the first lines say what the module owns"


# Written in pieces, so that this file does not hold what it looks for.
UNFINISHED = re.compile(r"(?:#|//|/\*|--)\s*(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
PATHS = re.compile(r"/wo" + r"rk/|/ro" + r"ot/|/home/[a-z]|/tm" + r"p/(?!\.|toolrelay|\$|\{|\*)")
REGISTRIES = re.compile(
    r"(?:files\.pythonhos" + r"ted|pypi\.o" + r"rg|registry\.npmj" + r"s|crates\.i" + r"o|index\.goog" + r"le)"
)


@pytest.mark.parametrize(
    ("pattern", "what"), [(UNFINISHED, "unfinished work"), (PATHS, "a machine's path"), (REGISTRIES, "a registry")]
)
def test_project_files_name_nothing_of_one_machine(pattern: re.Pattern[str], what: str) -> None:
    found = [
        f"{name}:{number}"
        for name in TEXTS
        for number, line in enumerate(read(name).splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, what


def test_lock_files_hold_no_addresses() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        text = path.read_text("utf-8")
        assert "://" not in text
        assert "--index" not in text
        pins = re.findall(r"^[a-z0-9][\w.-]*==\S+", text, re.MULTILINE)
        assert pins
        assert text.count("--hash=sha256:") >= len(pins)
