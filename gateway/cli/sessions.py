"""``sessions list|tail``."""

import argparse
import json
from typing import Any, cast

from gateway.cli.parsing import Commands, add, count, identifier, position

SUMMARY_CHARS = 160


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add(commands, "sessions", "sessions of a running gateway")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = add(actions, "list", "print sessions, newest first")
    listing.add_argument("--limit", metavar="N", type=count, default=50, help="at most so many (default 50)")
    listing.add_argument("--json", action="store_true", help="one JSON object a line")
    listing.set_defaults(run=run_list)
    tail = add(actions, "tail", "follow a session's log")
    tail.add_argument("session", metavar="SESSION", type=identifier, help="the session's id")
    tail.add_argument("--after-seq", metavar="N", type=position, help="begin after this position; 0 is the whole log")
    tail.add_argument("--json", action="store_true", help="one JSON object a line")
    tail.set_defaults(run=run_tail)


def run_list(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from gateway.cli.client import Gateway
    from gateway.cli.output import table

    with Gateway() as gateway:
        items = gateway.items("/v1/sessions", limit=arguments.limit)
    table(items, ("id", "status", "display_name", "agent_id", "created_at"), as_json=arguments.json)
    return 0


def run_tail(arguments: argparse.Namespace) -> int:
    """Follow the log. Ends by Ctrl-C or a final refusal."""
    from gateway.cli.client import Gateway
    from gateway.cli.following import follow

    with Gateway() as gateway:
        for event in follow(gateway, arguments.session, arguments.after_seq):
            show(event, as_json=arguments.json)
    return 0


def show(event: dict[str, Any], *, as_json: bool) -> None:
    """One event on one line; with ``as_json`` whole."""
    if as_json:
        print(json.dumps(event, separators=(",", ":")), flush=True)
        return
    from gateway.cli.output import cut, printable

    text = cut(printable(summary(event)), SUMMARY_CHARS)
    print(f"{event['seq']:>6}  {printable(event['type']):<22} {text}".rstrip(), flush=True)


def summary(event: dict[str, Any]) -> str:
    """One line of an event: what was said, or its fields."""
    message: Any = event.get("message")
    if isinstance(message, dict):
        blocks = cast("dict[str, list[dict[str, Any]]]", message).get("content", [])
        return " ".join(_block(block) for block in blocks)
    shown = {name: value for name, value in event.items() if name not in ("seq", "type")}
    return " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value, separators=(',', ':'))}"
        for name, value in shown.items()
    )


def _block(block: dict[str, Any]) -> str:
    data = block.get("data", {})
    if block.get("type") == "text":
        return str(data.get("text", ""))
    return f"[{block.get('type')} {data.get('name', '')}]".replace(" ]", "]")
