"""Each rule finds its example and lets its counter-example be."""

import re
from pathlib import Path
from random import Random

import pytest

from gateway.model.redaction import RULES, Redactor, Rule
from gateway.model.redaction.language import longest, parse, written
from gateway.model.redaction.rule import HEAD_BYTES, Tail
from gateway.model.redaction.samples import made
from gateway.model.redaction.shapes_general import ASSIGNMENTS, GENERAL

ROOT = Path(__file__).parents[2]
REDACTOR = Redactor([])
each = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@each
def test_the_example_is_found_and_gone(rule: Rule) -> None:
    for seed in range(20):
        text, parts = made(rule.example, Random(seed))
        out = REDACTOR.log_text(text)
        assert f"[redacted:{rule.name}]" in out
        assert parts
        assert not [part for part in parts if part in out]


@each
def test_the_counter_example_stays(rule: Rule) -> None:
    for seed in range(20):
        text, _ = made(rule.counter, Random(seed))
        assert REDACTOR.log_text(text) == text


@each
def test_it_is_found_wherever_it_stands(rule: Rule) -> None:
    text, parts = made(rule.example, Random(3))
    for before, behind in [
        ("", ""),
        ("x\n", "\ny"),
        ('"', '"'),
        ("(", ")"),
        ("key is ", ". Then"),
        ("\\n", "\\n"),
        ("é ", " é"),
    ]:
        out = REDACTOR.log_text(before + text + behind)
        assert not [part for part in parts if part in out], (before, out)


@each
def test_a_head_has_a_bound(rule: Rule) -> None:
    assert longest(parse(rule.head)) <= HEAD_BYTES


@each
def test_the_tree_writes_the_same_language(rule: Rule) -> None:
    """What the gates and the live patterns are made from must find what the rule finds."""
    pattern = re.compile(written(parse(rule.head)))
    for seed in range(5):
        assert pattern.search(made(rule.example, Random(seed))[0])


def test_there_are_enough_kinds_and_each_has_its_own_name() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names)) >= 60
    assert all(re.fullmatch(r"[a-z0-9-]{2,32}", name) for name in names)
    assert all(rule.says and rule.example and rule.counter for rule in RULES)


def test_tails_are_single_classes() -> None:
    for tail in Tail:
        if tail not in (Tail.NONE, Tail.PEM):
            assert re.fullmatch(r"\[(?:[^\]\\]|\\.)*\]", tail.value), tail


def test_no_file_here_holds_what_a_scanner_would_stop() -> None:
    """The rules' own shapes, run over this project's sources: only assignments of tests may look like secrets."""
    loose = {rule.name for rule in (*GENERAL, *ASSIGNMENTS)} - {"private-key", "putty-key", "age-key", "jwt", "jwe"}
    redactor = Redactor([])
    for folder in ("gateway/model/redaction", "tests/redaction", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            before = dict(redactor.counts)
            redactor.log_text(path.read_text())
            found = {kind for kind, count in redactor.counts.items() if count != before.get(kind, 0)}
            assert not found - loose, (path, found)


def test_counts_name_kinds_and_nothing_else() -> None:
    redactor = Redactor([])
    text, _ = made(next(rule.example for rule in RULES if rule.name == "github-token"), Random(1))
    redactor.log_text(f"{text} {text}")
    redactor.log_json(b'{"password":"abcdefg"}')
    assert dict(redactor.counts) == {"github-token": 2, "named-value": 1}


@pytest.mark.parametrize(
    "text",
    [
        "the password is required",
        "password: str",
        "password=password",
        "token = get_token()",
        "token: Optional[str] = None",
        "self.token = token",
        "next_token=abc123def456",
        "max_tokens=1024, token_count=12",
        "secret = os.environ['SECRET']",
        "api_key=${API_KEY}",
        "api_key=<your key>",
        "Bearer authentication is used",
        "basic understanding of things",
        "https://example.org:8080/a@b",
        "user@example.org",
        "PWD=/srv/me/project1",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "uuid 123e4567-e89b-12d3-a456-426614174000",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUA",
        "a task-based-approach-to-risk-assessment-in-desk-research",
        "Authorization: <redacted>\nContent-Type: application/json",
        "Authorization: [redacted] Content-Type: application/json",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert REDACTOR.log_text(text) is text


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("password=hunter22", "hunter22"),
        ("PASSWORD: hunter22", "hunter22"),
        ("--password hunter22", "hunter22"),
        ("?access_token=abc123def456&x=1", "abc123def456"),
        ("{'api_key': 'abc123def456'}", "abc123def456"),
        ('{\\"password\\": \\"abc123def456\\"}', "abc123def456"),
        ('{\\\\\\"password\\\\\\": \\\\\\"abc123def456\\\\\\"}', "abc123def456"),
        ("X-Api-Key: abc123def456", "abc123def456"),
        ("Authorization: Bearer abc123def456ghi", "abc123def456ghi"),
        ("Authorization: <redacted> abc123def456ghi", "abc123def456ghi"),
        ("'authorization': '[REDACTED] abc123def456ghi'", "abc123def456ghi"),
        ("Authorization: *** abc123def456ghi", "abc123def456ghi"),
        ("authorization=Bearer%20abc123def456ghi", "abc123def456ghi"),
        ("postgres://me:p@ss1word@host/db", "p@ss1word"),
        ("Server=x;User Id=me;Password=abc123def;", "abc123def"),
        ("\x1b[31mpassword=\x1b[0mabc123def456", "abc123def456"),
        ("export DB_PASS=abc123def", "abc123def"),
    ],
)
def test_assignments_of_all_sorts(text: str, gone: str) -> None:
    assert gone not in REDACTOR.log_text(text)
