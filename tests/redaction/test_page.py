"""The page about redaction says what the rules do."""

from pathlib import Path

from gateway.model.redaction import RULES, Redactor
from gateway.model.redaction.page import page

PAGE = Path(__file__).parents[2] / "docs" / "redaction.md"


def test_the_page_is_the_one_that_the_rules_write() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m gateway.model.redaction.page > docs/redaction.md"


def test_every_kind_is_on_it() -> None:
    assert [rule.name for rule in RULES if f"| `{rule.name}` |" not in page()] == []


def test_it_holds_nothing_that_looks_like_a_secret() -> None:
    redactor = Redactor([])
    redactor.log_text(page())
    assert not set(redactor.counts) - {"assignment", "netrc"}  # they take the braces for values
