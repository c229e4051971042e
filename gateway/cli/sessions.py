"""``sessions list|tail``."""

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any, cast

from gateway.cli.parsing import Commands, add, count, identifier

if TYPE_CHECKING:
    from gateway.cli.client import Gateway

RETRY_MIN_S = 1.0
RETRY_MAX_S = 30.0
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
    tail.add_argument("--after-seq", metavar="N", type=int, help="begin after this position; 0 is the whole log")
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
    """Follow the log; a stream that breaks goes on from its position. Ends by Ctrl-C or a final refusal."""
    from gateway.cli.client import Gateway

    with Gateway() as gateway:
        position: int | None = None
        wait_s = RETRY_MIN_S
        while True:
            before = position
            try:
                position = _follow(gateway, arguments, position)
            except _Broken as broken:
                position = broken.position
            wait_s = RETRY_MIN_S if position != before else min(2 * wait_s, RETRY_MAX_S)
            print(f"toolrelay: the stream ended; asking again in {wait_s:g} s", file=sys.stderr)
            time.sleep(wait_s)


class _Broken(Exception):
    """The stream broke after ``position``."""

    def __init__(self, position: int | None) -> None:
        super().__init__()
        self.position = position


def _follow(gateway: "Gateway", arguments: argparse.Namespace, position: int | None) -> int | None:
    query = {"after_seq": arguments.after_seq} if arguments.after_seq is not None else {}
    data: list[bytes] = []
    try:
        for line in gateway.lines(f"/v1/sessions/{arguments.session}/events/stream", query=query, last_id=position):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"id" and value.isdigit():
                position = int(value)
            elif field == b"data":
                data.append(value)
            elif not line and data:
                position = _show(b"\n".join(data), position, as_json=arguments.json)
                data = []
    except ConnectionError:
        raise _Broken(position) from None
    return position


def _show(data: bytes, position: int | None, *, as_json: bool) -> int | None:
    from gateway.cli.output import Failure, cut, printable

    try:
        event: Any = json.loads(data)
        seq, kind = int(event["seq"]), str(event["type"])
    except (ValueError, TypeError, KeyError):
        raise Failure("the stream sent what is no event") from None
    if as_json:
        print(json.dumps(event, separators=(",", ":")), flush=True)
    else:
        print(f"{seq:>6}  {printable(kind):<22} {cut(printable(summary(event)), SUMMARY_CHARS)}".rstrip(), flush=True)
    return max(seq, position or 0)


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
