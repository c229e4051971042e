"""What a model is told about the list of tools: answers of ``client__tools``, and the line about a change (bridge 3).

Owns those texts. Descriptions in them are whole, unlike those of native tools; ``results.fit_result`` cuts an answer
that is too long into parts.
"""

from collections.abc import Collection
from typing import Final

from gateway.model.catalog import Catalog, DescriptorRedaction, Item
from gateway.model.names import TOOLS, USE

_LINE_CHARS: Final = 160
_NAMED: Final = 24  # names in the line about a change


def list_text(catalog: Catalog, redaction: DescriptorRedaction, query: str = "") -> str:
    """One line for each tool that has all words of ``query`` in its name or description."""
    words = query.casefold().split()
    lines: list[str] = []
    for item in catalog.items:
        description = redaction.text(item.spec.description)
        text = f"{item.model_name} {item.tool} {description}".casefold()
        if all(word in text for word in words):
            lines.append(f"{item.model_name}: {_one_line(description)}")
    if lines:
        return f"{len(lines)} of {len(catalog.items)} tools, called with {USE} or directly:\n" + "\n".join(lines)
    if not catalog.items:
        return "No client offers a tool at this moment."
    return f"None of the {len(catalog.items)} tools has these words; {TOOLS} without a query lists all."


def tool_text(item: Item, redaction: DescriptorRedaction) -> str:
    """One tool's whole description and its client's own schema."""
    way = f"It can be called directly, or with {USE}." if item.native else f"It is called with {USE}."
    description = redaction.text(item.spec.description).strip() or "(no description)"
    schema = redaction.schema(item.spec.parameters).decode()
    return f"{item.model_name}\n{way}\n\n{description}\n\nSchema of its arguments:\n{schema}"


def change_line(old: Catalog, new: Catalog, native: Collection[str]) -> str | None:
    """The line that tells a model in a run which tools came, went and changed between two catalogs; ``None`` if none.

    ``native`` are the model names in the registry of the child that runs: new tools that are not among them are
    reached by ``client__use``.
    """
    came = [name for name in new.by_name if name not in old.by_name]
    gone = [name for name in old.by_name if name not in new.by_name]
    changed = [name for name, item in new.by_name.items() if name in old.by_name and _differ(old.by_name[name], item)]
    if not (came or gone or changed):
        return None
    parts = [
        f"{what}: {_names(names)}"
        for what, names in (("now offered", came), ("gone", gone), ("changed", changed))
        if names
    ]
    if any(name not in native for name in (*came, *changed)):
        parts.append(f"{USE} calls any of them, {TOOLS} shows their schemas")
    return f"[The clients' tools have changed. {'; '.join(parts)}.]"


def _differ(old: Item, new: Item) -> bool:
    before, after = old.spec, new.spec
    if (before.description, old.timeout_ms) != (after.description, new.timeout_ms):
        return True
    return before.parameters != after.parameters


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


def _one_line(description: str) -> str:
    line = " ".join(description.split())
    return line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - 1] + "…"
