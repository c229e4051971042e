"""The rules of both protocols and the tests that prove them, held to each other (``rules.toml``)."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
MANIFEST = Path(__file__).parent / "rules.toml"
RULE = re.compile(r"\b(?:STDIO|HTTP)-[A-Z]{3}-\d{2}\b")
SECTIONS = {
    "STDIO-NEG": "stdio: Negotiate once",
    "STDIO-BND": "stdio: Bounds and schemas",
    "STDIO-EXE": "stdio: Execute and reply",
    "STDIO-CAN": "stdio: Cancellation and permissions",
    "HTTP-REG": "http: Registering",
    "HTTP-LIV": "http: Staying registered",
    "HTTP-ANS": "http: Answering a call",
    "HTTP-CHG": "http: Changing what you offer",
}
LATER = 0
"""Rules that no test proves yet. This number may only fall."""


@cache
def rules() -> dict[str, dict[str, Any]]:
    with MANIFEST.open("rb") as file:
        return tomllib.load(file)


@cache
def functions(path: Path) -> frozenset[str]:
    """The tests of a file, as pytest would find them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in found if node.name.startswith("test_"))


def named() -> list[tuple[str, str]]:
    """Every (rule, test) of the manifest."""
    return [(rule, test) for rule, told in rules().items() if told["tests"] != "later" for test in told["tests"]]


def test_every_rule_has_its_form():
    for rule, told in rules().items():
        assert RULE.fullmatch(rule), rule
        assert told["seed"] == SECTIONS[rule.rpartition("-")[0]], rule
        assert told["rule"].endswith("."), rule
        later = told["tests"] == "later"
        assert later == ("why" in told), f"{rule}: only what is proved later says why"
        assert set(told) <= {"seed", "rule", "tests", "why"}, rule
        assert later or (isinstance(told["tests"], list) and told["tests"]), f"{rule}: no test and not later"


def test_every_section_of_both_seeds_has_rules_without_a_gap():
    for section in SECTIONS:
        numbers = [int(rule.rpartition("-")[2]) for rule in rules() if rule.startswith(section)]
        assert numbers == list(range(1, len(numbers) + 1)), section
        assert numbers, section


def test_every_named_test_exists():
    missing = []
    for rule, test in named():
        path, _, function = test.partition("::")
        if not (TESTS / path).is_file() or function not in functions(TESTS / path):
            missing.append(f"{rule}: {test}")
    assert not missing, "\n".join(missing)


def test_no_rule_names_a_test_twice():
    pairs = named()
    assert len(pairs) == len(set(pairs))


def test_every_rule_that_a_test_names_stands_in_the_manifest_with_it():
    """A test may carry ``# STDIO-NEG-03`` in its body or above it: then the manifest names its file for that rule."""
    wrong = []
    for path in sorted(TESTS.rglob("test_*.py")):
        if path == Path(__file__):
            continue
        place = path.relative_to(TESTS).as_posix()
        for rule in RULE.findall(path.read_text(encoding="utf-8")):
            told = rules().get(rule)
            if told is None:
                wrong.append(f"{place}: no rule {rule}")
            elif not any(str(test).startswith(f"{place}::") for test in told["tests"]):
                wrong.append(f"{place}: {rule} does not name it")
    assert not wrong, "\n".join(wrong)


def test_what_is_proved_later_grows_less():
    assert sum(told["tests"] == "later" for told in rules().values()) <= LATER
