"""``agents list``."""

import argparse

from gateway.cli.parsing import Commands, add


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add(commands, "agents", "agents of a running gateway")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    action = add(actions, "list", "print every agent")
    action.add_argument("--json", action="store_true", help="one JSON object a line")
    action.set_defaults(run=run_list)


def run_list(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from gateway.cli.client import Gateway
    from gateway.cli.output import table

    with Gateway() as gateway:
        items = gateway.ask("GET", "/v1/agents")["items"]
    table(items, ("id", "name", "created_at"), as_json=arguments.json)
    return 0
