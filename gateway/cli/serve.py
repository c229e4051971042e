"""``serve``: one node in the foreground. Owns its flags and what is said when something is missing."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli.output import Usage, say
from gateway.cli.parsing import Commands, add

if TYPE_CHECKING:
    from gateway.config.settings import Settings


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add(commands, "serve", "run a node")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the TOML file (or TOOLRELAY_CONFIG)")
    parser.add_argument("--host", metavar="H", help="address to listen on")
    parser.add_argument("--port", metavar="P", type=int, help="port to listen on; 0 takes a free one")
    parser.add_argument("--redis-url", metavar="URL", help="embedded, or the address of a Redis")
    parser.add_argument("--roles", metavar="edge,agents", help="what this node does")
    parser.add_argument(
        "--dev", action="store_true", help="for this machine alone: a fresh API key, the demo agent, no file needed"
    )
    parser.add_argument(
        "--demo-agent", metavar="NAME", help="with --dev: whose sessions the demo page opens (default demo)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from gateway.config.advice import missing, warnings
    from gateway.config.load import ConfigError, load

    path = config_path(arguments.config)
    if path is None and not arguments.dev:
        raise Usage(
            "serve needs a configuration: --config FILE, or TOOLRELAY_CONFIG",
            "`toolrelay config example` prints a file to start from",
            "`toolrelay serve --dev` needs none and listens on loopback only",
        )
    if arguments.demo_agent is not None and not arguments.dev:
        raise Usage("--demo-agent goes with --dev: without it there is no demo page")
    flags = {
        "server.host": arguments.host,
        "server.port": arguments.port,
        "server.roles": arguments.roles,
        "redis.url": arguments.redis_url,
    }
    try:
        settings = load(path, flags=flags)
    except ConfigError as error:
        raise Usage(*error.problems) from None
    if arguments.dev:
        settings = for_dev(settings)
    elif lacks := missing(settings):
        raise Usage(*lacks)
    for line in warnings(settings):
        say(f"note: {line}")
    from gateway.config.dev import DEMO_AGENT
    from gateway.server import run as run_server

    demo_agent = arguments.demo_agent or DEMO_AGENT
    if arguments.dev and all(agent.name != demo_agent for agent in settings.agents):
        raise Usage(f"--demo-agent {demo_agent}: there is no such agent")
    return run_server(settings, dev=arguments.dev, demo_agent=demo_agent)


def config_path(given: Path | None) -> Path | None:
    """The flag's file, else the variable's, else none."""
    if given is not None:
        return given
    named = os.environ.get("TOOLRELAY_CONFIG", "")
    return Path(named) if named else None


def for_dev(settings: "Settings") -> "Settings":
    """Settings for this machine alone, with a fresh API key, which is printed, and the demo agent."""
    from gateway.config.checks import is_loopback

    if not is_loopback(settings.server.host):
        raise Usage(f"--dev listens on loopback only, not on {settings.server.host}")
    from gateway.auth.tokens import mint_api_key
    from gateway.config.dev import dev_settings

    key = mint_api_key()
    print(f"API key of this run: {key}", flush=True)
    return dev_settings(settings, key)
