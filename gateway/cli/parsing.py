"""What commands share of the command line: the type of the place they are added to, and of ids."""

import argparse
from typing import Protocol
from uuid import UUID


class Commands(Protocol):
    """Where a command adds its parser (argparse names that class privately)."""

    def add_parser(
        self,
        name: str,
        *,
        help: str,  # noqa: A002
        description: str,
        allow_abbrev: bool,
    ) -> argparse.ArgumentParser:
        """A new parser below."""
        ...


def add(commands: Commands, name: str, text: str) -> argparse.ArgumentParser:
    """A new parser; ``text`` is its line of help, here and in ``docs/cli.md``."""
    return commands.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.", allow_abbrev=False)


def identifier(text: str) -> str:
    """A uuid in its canonical text: nothing else may become a part of a path."""
    try:
        return str(UUID(text))
    except ValueError:
        raise argparse.ArgumentTypeError("must be a uuid") from None


def position(text: str) -> int:
    """A place in a log: a whole number, 0 before the first event."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError("must be a whole number, 0 or more")
    return int(text)


def count(text: str) -> int:
    """A whole number above 0."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("must be a whole number above 0")
    return int(text)
