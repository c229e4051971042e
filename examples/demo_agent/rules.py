"""What the demo agent understands: a few sentences, matched from the top. This is where a model would be.

Each rule is a pattern and a function of the run and the match; it calls tools and says things, as a model would. Tools
are found by what their names and schemas tell, because nothing else is known of a client's tools beforehand.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final, cast

from calls import Answer
from runs import Run

LIST: Final = "client__tools"  # a gateway's own: what else is offered just now
USE: Final = "client__use"  # and this one calls it
HELP: Final = (
    "I follow rules, there is no model behind me. Try: “highlight row 3”, “fill name with Ada”, "
    "“read the selection”, “list tools”, “echo hello”."
)


def _names(schema: dict[str, Any]) -> list[str]:
    """A schema's property names, the required ones first."""
    properties: dict[str, Any] = schema.get("properties", {})
    named: list[str] = schema.get("required", [])
    required = [name for name in named if name in properties]
    return required + [name for name in properties if name not in required]


def _typed(schema: dict[str, Any], name: str, value: str) -> Any:
    """The value as the type that the schema asks for."""
    properties: dict[str, Any] = schema.get("properties", {})
    declared = properties.get(name)
    kind = cast("dict[str, Any]", declared).get("type") if isinstance(declared, dict) else None
    if kind == "integer" and re.fullmatch(r"-?\d{1,15}", value):
        return int(value)
    if kind == "number" and re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", value):
        return float(value)
    return value


def arguments_for(schema: dict[str, Any], wanted: list[tuple[str, str]]) -> dict[str, Any]:
    """Arguments out of (hint, value) pairs: the property whose name holds the hint, else the next free one, else both
    as they are."""
    arguments: dict[str, Any] = {}
    for hint, value in wanted:
        free = [name for name in _names(schema) if name not in arguments]
        key = hint.removesuffix("_id")
        name = next((name for name in free if name == hint), None) or next((n for n in free if key in n), None)
        name = name or (free[0] if free else hint)
        arguments[name] = _typed(schema, name, value)
    return arguments


def _schema_in(text: str) -> dict[str, Any]:
    """The first JSON object in a text that looks like a schema, or one that says nothing."""
    for match in re.finditer(r"\{", text):
        try:
            value: Any = json.JSONDecoder().raw_decode(text, match.start())[0]
        except ValueError:
            continue
        if isinstance(value, dict) and "properties" in value:
            return cast("dict[str, Any]", value)
    return {}


def use(run: Run, words: tuple[str, ...], wanted: list[tuple[str, str]]) -> Answer | None:
    """Call the tool whose name ends with one of the words, or holds one; None when nobody offers such a tool."""

    def best(names: list[str]) -> str | None:
        for word in words:
            ending = [name for name in names if name.endswith(word)]
            if found := ending or [name for name in names if word in name]:
                return found[0]
        return None

    native = best([name for name in run.tools if name not in (LIST, USE)])
    if native is not None:
        return run.call(native, arguments_for(run.tools[native].schema, wanted))
    if LIST not in run.tools or USE not in run.tools:
        return None
    listing = run.call(LIST, {})
    other = best(re.findall(r"client__\w+", listing.text))
    if other is None:
        return None
    schema = _schema_in(run.call(LIST, {"tool": other}).text)
    return run.call(USE, {"tool": other, "arguments": arguments_for(schema, wanted)})


def _tell(run: Run, answer: Answer | None, what: str) -> None:
    if answer is None:
        run.say(f"Nobody offers a tool that could {what}. Open the page that has it, and ask again.")
    elif answer.failed:
        run.say(f"That did not work: {answer.text}")
    else:
        run.say(f"The tool answered: {answer.text}")


def _highlight(run: Run, match: re.Match[str]) -> None:
    row = match["row"]
    run.say(f"I will highlight row {row}.")
    _tell(run, use(run, ("highlight_row", "highlight"), [("row_id", row)]), "highlight a row")


def _fill(run: Run, match: re.Match[str]) -> None:
    wanted = [("field", match["field"].strip()), ("value", match["value"].strip())]
    _tell(run, use(run, ("fill_field", "fill_form", "fill", "set_value"), wanted), "fill a field")


def _selection(run: Run, _match: re.Match[str]) -> None:
    _tell(run, use(run, ("read_selection", "get_selection", "selection"), []), "read the selection")


def _list(run: Run, _match: re.Match[str]) -> None:
    lines = [f"- {tool.name}: {tool.description.splitlines()[0]}" for tool in run.tools.values()]
    if LIST in run.tools:
        lines += ["", "Offered just now:", run.call(LIST, {}).text]
    run.say("\n".join(["These tools are native to me:", *lines]) if run.tools else "I have no tools.")


def _echo(run: Run, match: re.Match[str]) -> None:
    run.say(match["text"])


RULES: Final[list[tuple[re.Pattern[str], Callable[[Run, re.Match[str]], None]]]] = [
    (re.compile(r"^\s*echo\s(?P<text>.*)", re.IGNORECASE | re.DOTALL), _echo),
    (
        re.compile(r"\b(?:highlight|mark)\s+(?:the\s+)?row\s+(?P<row>[\w.-]+?)\.?(?:\s|[!,?]|$)", re.IGNORECASE),
        _highlight,
    ),
    (
        re.compile(r"\bfill\s+(?:in\s+)?(?:the\s+)?(?P<field>.+?)\s+with\s+(?P<value>.+)", re.IGNORECASE | re.DOTALL),
        _fill,
    ),
    (
        re.compile(r"\b(?:read|get|what is)\s+(?:me\s+)?(?:the\s+|my\s+)?(?:current\s+)?selection\b", re.IGNORECASE),
        _selection,
    ),
    (re.compile(r"\b(?:list|show)\s+(?:me\s+)?(?:the\s+|your\s+|all\s+)?tools\b", re.IGNORECASE), _list),
]


def follow(run: Run) -> None:
    """Play the first rule that fits; say what there is when none does."""
    for pattern, rule in RULES:
        if match := pattern.search(run.prompt):
            rule(run, match)
            return
    run.say(HELP)
