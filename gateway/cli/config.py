"""``config check|show|example|schema``."""

import argparse
import json
from pathlib import Path

from gateway.cli.output import Usage, printable, say
from gateway.cli.parsing import Commands, add


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add(commands, "config", "check, show or start a configuration")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    check = add(actions, "check", "say what is wrong with a file and the environment")
    show = add(actions, "show", "print every setting that is in force, without secrets")
    for action in (check, show):
        action.add_argument("--config", metavar="FILE", type=Path, help="the TOML file (or TOOLRELAY_CONFIG)")
    check.set_defaults(run=run_check)
    show.set_defaults(run=run_show)
    add(actions, "example", "print a TOML file to start from").set_defaults(run=run_example)
    add(actions, "schema", "print the JSON Schema of the file").set_defaults(run=run_schema)


def run_check(arguments: argparse.Namespace) -> int:
    """Every mistake on stderr, exit 1; else notes and ``fine``."""
    from gateway.cli.serve import config_path
    from gateway.config.advice import missing, warnings
    from gateway.config.load import ConfigError, load

    path = config_path(arguments.config)
    if path is None:
        raise Usage("config check needs a file: --config FILE, or TOOLRELAY_CONFIG")
    try:
        settings = load(path)
    except ConfigError as error:
        return _refuse(error.problems)
    if lacks := missing(settings):
        return _refuse(lacks)
    for line in warnings(settings):
        say(f"note: {line}")
    print(f"{printable(str(path))}: fine")
    return 0


def _refuse(problems: list[str]) -> int:
    for line in problems:
        say(line)
    return 1


def run_show(arguments: argparse.Namespace) -> int:
    """What is in force, as TOML."""
    from gateway.cli.serve import config_path
    from gateway.config.load import ConfigError, load
    from gateway.config.reference import in_force

    try:
        settings = load(config_path(arguments.config))
    except ConfigError as error:
        raise Usage(*error.problems) from None
    print(in_force(settings), end="")
    return 0


def run_example(_: argparse.Namespace) -> int:
    """The example file."""
    from gateway.config.reference import example

    print(example(), end="")
    return 0


def run_schema(_: argparse.Namespace) -> int:
    """The JSON Schema."""
    from gateway.config.reference import schema

    print(json.dumps(schema(), indent=2))
    return 0
