"""What a valid configuration may still lack. Owns the sentences of ``serve`` and ``config check``; reads nothing."""

from gateway.config.checks import is_loopback
from gateway.config.settings import Settings


def missing(settings: Settings) -> list[str]:
    """Without these a node could serve nobody; every node has them whatever its roles (its redaction needs them)."""
    found: list[str] = []
    if not settings.auth.api_keys:
        found.append('auth.api_keys: is missing: [{ label = "backend", key = "env:TOOLRELAY_API_KEY" }]')
    if not settings.agents:
        found.append("agents: is missing: at least one [[agents]] table with name, command and cwd")
    return found


def warnings(settings: Settings) -> list[str]:
    """What works and is seldom meant."""
    found: list[str] = []
    server = settings.server
    if not is_loopback(server.host) and not server.allowed_hosts and not server.public_url:
        found.append(f"server.host is {server.host}, but without allowed_hosts or public_url only loopback is served")
    found += [
        f"the API key {key.label} stands in the file; env:NAME or file:PATH keep it out"
        for key in settings.auth.api_keys
        if key.key.source == "literal" and key.label != DEV_LABEL
    ]
    if "agents" not in server.roles and settings.redis.url.reveal() == "embedded":
        found.append("server.roles lacks agents, but an embedded Redis is this node's own: no other node can join")
    for agent in settings.agents:
        if agent.storage == "shared" and "{session_id}" not in agent.cwd and len(settings.agents) > 1:
            shared = [other.name for other in settings.agents if other is not agent and other.cwd == agent.cwd]
            if shared:
                found.append(f"agents {agent.name} and {shared[0]} work in the same folder")
    return found


DEV_LABEL = "dev"
"""The label of the key that ``--dev`` makes."""
