"""``token create|inspect|revoke``: session tokens. A token is printed when it is made and never again."""

import argparse
import sys
from getpass import getpass

from gateway.cli.parsing import Commands, add, identifier

LINE_CHARS = 4_096


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add(commands, "token", "tokens of a session")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    create = add(actions, "create", "print a new token for a session")
    create.add_argument("session", metavar="SESSION", type=identifier, help="the session's id")
    create.set_defaults(run=run_create)
    inspect = add(actions, "inspect", "read a token from the standard input and say what it is, offline")
    inspect.set_defaults(run=run_inspect)
    revoke = add(actions, "revoke", "end a token and the streams that it opened")
    revoke.add_argument("session", metavar="SESSION", type=identifier, help="the session's id")
    revoke.add_argument("token", metavar="TOKEN_ID", type=identifier, help="the token's id")
    revoke.set_defaults(run=run_revoke)


def run_create(arguments: argparse.Namespace) -> int:
    """The token on stdout, alone, so that a script can take it; when it ends on stderr."""
    from gateway.cli.client import Gateway
    from gateway.cli.output import printable, say

    with Gateway() as gateway:
        answer = gateway.ask("POST", f"/v1/sessions/{arguments.session}/tokens", keyed=True)
    print(printable(str(answer["session_token"])))
    say(f"expires at {answer['expires_at']}")
    return 0


def run_inspect(_: argparse.Namespace) -> int:
    """What the text itself says; only a gateway knows whether it is still good. Exit 1 for no token of ours."""
    from gateway.auth.tokens import read_session_token
    from gateway.cli.output import Failure, say

    # Not an argument: arguments stand in the shell's history and in the list of processes.
    text = (getpass("token: ") if sys.stdin.isatty() else sys.stdin.readline(LINE_CHARS)).strip()
    token = read_session_token(text)
    if token is None:
        raise Failure("this is no session token of toolrelay: its form or its checksum is not right")
    print(f"a token of session {token.session_id}; form and checksum are right")
    say("only the gateway knows whether it is still good")
    return 0


def run_revoke(arguments: argparse.Namespace) -> int:
    """Nothing is printed when it is done."""
    from gateway.cli.client import Gateway

    with Gateway() as gateway:
        gateway.ask("DELETE", f"/v1/sessions/{arguments.session}/tokens/{arguments.token}")
    return 0
