"""The list of what runs on the demo agent alone is whole: no test leaves the real child out without a reason."""

import ast
from pathlib import Path

from tests.doubles.stdio_demo_alone import CODES, TESTS, WORDS


def test_every_test_of_the_demo_agent_alone_has_its_reason():
    alone: set[str] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                alone |= {node.name for argument in node.args.args if argument.arg == "demo"}
    assert alone == set(TESTS)
    assert all(len(reason) > 10 for reason in (*CODES.values(), *WORDS.values(), *TESTS.values()))
