"""``demo``: a node, an embedded Redis, the demo agent and the demo page; nothing of it stays."""

import argparse
import tempfile

from gateway.cli.parsing import Commands, add


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add(commands, "demo", "try it: a page whose table an agent highlights")
    parser.add_argument("--port", metavar="P", type=int, help="port to listen on; 0 takes a free one (default 8080)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from gateway.cli.output import Usage
    from gateway.cli.serve import for_dev
    from gateway.config.load import ConfigError, load

    with tempfile.TemporaryDirectory(prefix="toolrelay-demo-") as folder:
        try:
            settings = load(
                None,
                # What a person is told stands on the terminal alone; faults are still logged beside it.
                flags={"server.port": arguments.port, "server.state_dir": folder, "server.log_level": "warning"},
            )
        except ConfigError as error:
            raise Usage(*error.problems) from None
        settings = for_dev(settings)
        from gateway.server import run as run_server

        return run_server(settings, dev=True, demo=True)
