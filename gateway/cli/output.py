"""What the command writes for people. Owns tables, errors and making foreign text safe for a terminal."""

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.model.redaction import Redactor


class Failure(Exception):
    """The command failed (exit 1); the text says why."""


class Usage(Exception):
    """The command was not used right (exit 2); ``lines`` say how to."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def say(line: str) -> None:
    """One line to stderr, under the command's name. What it quotes (a file, an answer) may hold a secret."""
    print(f"toolrelay: {printable(_redactor().diagnostic(line))}", file=sys.stderr)


@cache
def _redactor() -> "Redactor":
    from gateway.model.redaction import Redactor  # it compiles its rules: not for a command that goes well

    return Redactor(())


def printable(text: str) -> str:
    """The text with everything that could move a cursor, end a line or turn the writing direction as an escape."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def table(items: Sequence[Mapping[str, object]], columns: Sequence[str], *, as_json: bool) -> None:
    """Rows under a head; with ``as_json`` one JSON object a line, whole."""
    if as_json:
        for item in items:
            print(json.dumps(item, separators=(",", ":")))
        return
    rows = [[_cell(item.get(column)) for column in columns] for item in items]
    head = [column.upper() for column in columns]
    widths = [max(len(row[index]) for row in [head, *rows]) for index in range(len(columns))]
    for row in [head, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return cut(printable(value if isinstance(value, str) else json.dumps(value)), 60) or "-"
