"""``calls list``."""

import argparse

from gateway.cli.parsing import Commands, add, count, identifier


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
