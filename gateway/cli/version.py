"""``version``."""

import argparse

from gateway import __version__
from gateway.cli.parsing import Commands, add


def register(commands: Commands) -> None:
    """Add the command."""
    add(commands, "version", "print the version").set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """Run the command."""
    print(f"toolrelay {__version__}")
    return 0
