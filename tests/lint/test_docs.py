"""What the docs must show: generated pages as they are generated, and what README owes its readers."""

import json
import re
from pathlib import Path

import pytest

from gateway.cli.reference import PAGES, commands
from gateway.config import reference
from gateway.observe import metrics

ROOT = Path(__file__).parents[2]
SOURCE = "\n".join(
    path.read_text("utf-8")
    for folder in ("gateway", "adapters")
    for path in (ROOT / folder).rglob("*.py")
    if "gateway/config/" not in path.as_posix() and path.name != "metrics.py"
)

READ_AS = {"env": "environment"}
"""Settings that are read by another name."""


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_fresh(name: str) -> None:
    assert (ROOT / "docs" / name).read_text("utf-8") == PAGES[name](), "run `make docs`"


@pytest.mark.parametrize("target", ["make demo", "make test"])
def test_readme_shows_how_to_begin(target: str) -> None:
    assert target in (ROOT / "README.md").read_text("utf-8")


def test_every_make_target_has_a_line_of_help() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    declared = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert declared
    for target in declared[1].split():
        assert re.search(rf"^{target}:.*## \S", text, re.MULTILINE), target


def test_every_command_is_documented_with_a_text() -> None:
    page = (ROOT / "docs/cli.md").read_text("utf-8")
    for name, parser in commands():
        assert f"## `{name}`" in page
        assert parser.description


def test_every_setting_is_documented_with_a_text() -> None:
    page = (ROOT / "docs/configuration.md").read_text("utf-8")
    for setting in reference.settings():
        assert f"### `{setting.section}.{setting.name}`" in page
        assert len(setting.text) > 10, setting


def test_every_setting_is_read() -> None:
    unread = {
        f"{setting.section}.{setting.name}"
        for setting in reference.settings()
        if not re.search(rf"\.{READ_AS.get(setting.name, setting.name)}\b", SOURCE)
    }
    assert not unread, "a setting that nothing reads is a promise that nobody keeps"


def test_every_metric_is_counted() -> None:
    names = [name for name, value in vars(metrics).items() if any(value is each for each, _ in metrics.DEFINITIONS)]
    uncounted = {name for name in names if not re.search(rf"\b{name}\b", SOURCE)}
    assert not uncounted


def test_every_label_has_a_bounded_source() -> None:
    for metric, labels in metrics.DEFINITIONS:
        assert set(labels) <= set(metrics.LABELS), metrics.exposed_name(metric)


def test_schema_is_json_and_closed() -> None:
    schema = json.loads(json.dumps(reference.schema()))
    for name, definition in schema["$defs"].items():
        if name != "Secret":
            assert definition["additionalProperties"] is False, name


def test_links_lead_somewhere() -> None:
    """Every relative link of a page, and the heading that it names."""
    for page in sorted(ROOT.glob("**/*.md")):
        if any(part.startswith(".") or part == "node_modules" for part in page.relative_to(ROOT).parts):
            continue
        for found in re.finditer(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
            address, _, anchor = found[1].partition("#")
            if address.startswith(("http://", "https://")):
                continue
            target = page.parent / address if address else page
            assert target.exists(), f"{page.relative_to(ROOT)}: {found[1]}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
                anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert anchor in anchors, f"{page.relative_to(ROOT)}: {found[1]}"
