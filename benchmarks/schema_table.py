"""What becomes of real schemas: reads the lines of ``collect_schemas.py``, prints the table of docs/schemas.md.

    python -m benchmarks.schema_table schemas.jsonl [--child]

With ``--child`` the real child gets every native descriptor, in registries as full as a catalog fills them; one that is
refused is printed and makes the exit status 1.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter

from gateway.model.catalog import Descriptor, DescriptorRedaction, build_catalog, registry_json
from gateway.model.clean import ModelJson, ModelText
from gateway.model.errors import Refusal
from gateway.model.registration import Registration, ToolSpec
from gateway.model.tools import parse_tools
from tests.model_catalog.real_child import RealChild

KINDS = ("native, as it is", "native, with something dropped", "by client__use", "refused at registration")
REDACTION = DescriptorRedaction(ModelText, ModelJson)


def judged(schema: object, reasons: Counter[str]) -> tuple[str, ToolSpec | None]:
    """Which of ``KINDS`` a schema is, and its tool when it is native."""
    try:
        (tool,) = parse_tools([{"name": "t", "description": "d", "parameters": schema}])
    except Refusal as refusal:
        reasons["refused: " + refusal.message.partition("parameters")[2].rpartition(".")[2][:80]] += 1
        return KINDS[3], None
    (item,) = build_catalog([registration([tool])], redaction=REDACTION).items
    reasons.update({note.partition(" at ")[0].partition(": ")[0] for note in item.notes})
    return (KINDS[2], None) if not item.native else (KINDS[1] if item.notes else KINDS[0], tool)


def registration(tools: list[ToolSpec]) -> Registration:
    """A client with these tools, under names of their own."""
    named = tuple(
        ToolSpec(name=f"t{number}", description=tool.description, parameters=tool.parameters)
        for number, tool in enumerate(tools)
    )
    return Registration(client_id="c", name="web", order=1, tools=named)


def refused_by_child(tools: list[ToolSpec]) -> list[Descriptor]:
    """The descriptors that the real child does not take."""
    refused: list[Descriptor] = []
    with tempfile.TemporaryDirectory() as folder:
        child = RealChild(Path(folder))
        for start in range(0, len(tools), 29):
            left = tools[start : start + 29]
            while left:  # what had no room goes into the next registry
                made = build_catalog([registration(left)], redaction=REDACTION)
                if child.answer(registry_json(made.descriptors)) != "taken":
                    refused += [one for one in made.descriptors if child.answer(registry_json([one])) != "taken"]
                left = [tool for tool, item in zip(left, made.items, strict=True) if not item.native]
        child.end()
    return refused


def main() -> int:
    """Print the table; 1 when the child refused a descriptor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--child", action="store_true")
    options = parser.parse_args()
    rows: dict[str, Counter[str]] = {}
    reasons: Counter[str] = Counter()
    native: list[ToolSpec] = []
    start = perf_counter()
    for line in options.lines.read_text().splitlines():
        entry = json.loads(line)
        kind, tool = judged(entry["schema"], reasons)
        rows.setdefault(entry["kind"], Counter())[kind] += 1
        native += [tool] if tool else []
    total = sum(sum(row.values()) for row in rows.values())
    print(f"| source | schemas | {' | '.join(KINDS)} |\n| --- | {' | '.join(['---'] * 5)} |")
    for name, row in rows.items():
        print(f"| {name} | {row.total()} | {' | '.join(str(row[kind]) for kind in KINDS)} |")
    print(f"\n{total} schemas in {perf_counter() - start:.1f} s\n")
    for reason, count in reasons.most_common():
        print(f"- {reason}: {count}")
    refused = refused_by_child(native) if options.child else []
    print(f"\nthe child was given {len(native) if options.child else 0} and refused {len(refused)}")
    for descriptor in refused:
        print(descriptor.encoded().decode(), file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
