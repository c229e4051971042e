"""Which pages may speak to us (contract.md, "Origins"). Owns the comparison; it is exact, with no pattern."""

from collections.abc import Sequence
from urllib.parse import urlsplit


def origin_of(url: str) -> str:
    """The origin of an http(s) address: scheme, host and port as a browser writes it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def own_origin(public_url: str, host: str) -> str:
    """What this gateway's own pages say as their origin: ``public_url``'s, or without one that of the checked Host."""
    return origin_of(public_url) if public_url else f"http://{host.lower()}"


def allowed(origin: str | None, agent_origins: Sequence[str], *, own: str, demo_agent: bool) -> bool:
    """Whether a request with this ``Origin`` may use a session of an agent.

    No origin: it is not a browser. Our own origin: for the demo agent's sessions alone. Everything else: exactly as the
    agent lists it; ``null`` never, even if it is listed.
    """
    if origin is None:
        return True
    if origin == "null":
        return False
    return origin in agent_origins or (demo_agent and origin == own)
