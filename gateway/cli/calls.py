"""``calls list|tail|answer``."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gateway.cli.parsing import Commands, add, count, identifier, position

if TYPE_CHECKING:
    from gateway.cli.client import Gateway

OPEN = ("dispatched", "acked")
OF_CALLS = frozenset({"tool_call", "tool_result", "client_tool_dispatched", "client_tool_acked", "client_tool_failed"})
"""Events of the log that tell of a call."""
ANSWER_BYTES = 1024 * 1024
"""What is read of the standard input; the gateway's own limit is far below."""


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add(commands, "calls", "calls of a session")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    action = add(actions, "list", "print a session's calls")
    action.add_argument("session", metavar="SESSION", type=identifier, help="the session's id")
    action.add_argument("--state", metavar="STATE", help="only calls in this state")
    action.add_argument("--limit", metavar="N", type=count, default=50, help="at most so many (default 50)")
    action.add_argument("--json", action="store_true", help="one JSON object a line")
    action.set_defaults(run=run_list)
    tail = add(actions, "tail", "follow what becomes of a session's calls")
    tail.add_argument("session", metavar="SESSION", type=identifier, help="the session's id")
    tail.add_argument("--after-seq", metavar="N", type=position, help="begin after this position; 0 is the whole log")
    tail.add_argument("--json", action="store_true", help="one JSON object a line")
    tail.set_defaults(run=run_tail)
    answer = add(actions, "answer", "answer an open call in its client's place")
    answer.add_argument("session", metavar="SESSION", type=identifier, help="the session's id")
    answer.add_argument("call", metavar="CALL", help="the call's id, as `calls list` prints it")
    answer.add_argument(
        "text", metavar="TEXT", nargs="?", help="what the agent is told; read from the standard input without it"
    )
    answer.add_argument("--error", action="store_true", help="the call failed, and TEXT says why")
    answer.add_argument("--structured", metavar="JSON", type=_json, help="a JSON value beside the text")
    answer.set_defaults(run=run_answer)


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise argparse.ArgumentTypeError("must be JSON") from None


def _no_number(name: str) -> Any:
    raise ValueError(name)  # NaN and Infinity are Python's, not JSON's


def run_list(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from gateway.cli.client import Gateway
    from gateway.cli.output import table

    query: dict[str, str | int] = {"state": arguments.state} if arguments.state else {}
    with Gateway() as gateway:
        items = gateway.items(f"/v1/sessions/{arguments.session}/calls", limit=arguments.limit, query=query)
    columns = ("call_id", "client_id", "tool", "state", "outcome", "reason", "deadline")
    table(items, columns, as_json=arguments.json)
    return 0


def run_tail(arguments: argparse.Namespace) -> int:
    """Follow the log's events of calls. Ends by Ctrl-C or a final refusal."""
    from gateway.cli.client import Gateway
    from gateway.cli.following import follow
    from gateway.cli.sessions import show

    with Gateway() as gateway:
        for event in follow(gateway, arguments.session, arguments.after_seq):
            if event["type"] in OF_CALLS:
                show(event, as_json=arguments.json)
    return 0


def run_answer(arguments: argparse.Namespace) -> int:
    """Run the command. The client's own answer may come first: then this one is told so and changes nothing."""
    from gateway.cli.client import Gateway
    from gateway.cli.output import Usage

    text = arguments.text
    if text is None:
        if sys.stdin.isatty():
            raise Usage("calls answer needs TEXT, or a text on the standard input")
        text = sys.stdin.read(ANSWER_BYTES).removesuffix("\n")
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of the terminal or the pipe that are no text stand in it as lone surrogates
        raise Usage("TEXT must be UTF-8") from None
    body: dict[str, Any] = {"text": text, "is_error": arguments.error}
    if arguments.structured is not None:
        body["structured"] = arguments.structured
    with Gateway() as gateway:
        client_id = _client_of(gateway, arguments.session, arguments.call)
        path = f"/v1/sessions/{arguments.session}/clients/{client_id}/calls/{quote(arguments.call, safe='')}/result"
        gateway.ask("POST", path, body=body, keyed=True)
    print("answered")
    return 0


def _client_of(gateway: "Gateway", session_id: str, call_id: str) -> str:
    from gateway.cli.output import Failure

    for state in OPEN:
        for item in gateway.items(f"/v1/sessions/{session_id}/calls", limit=1_000, query={"state": state}):
            if item.get("call_id") == call_id:
                return str(item["client_id"])
    raise Failure("no such call is open; `toolrelay calls list SESSION` prints them")
