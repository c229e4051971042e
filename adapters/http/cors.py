"""Origins and CORS (contract.md, "Origins"; HTTP protocol, "Tokens"). Owns who is let in by origin, and the headers.

CORS is answered below ``/v1/sessions/{sid}`` alone, for origins that the session's agent allows, and not where an API
key is needed. An unknown session is answered as if any configured agent's list were its own: a preflight needs no
credential, so it must not tell which sessions there are.
"""

from collections.abc import Iterable
from typing import Final

from adapters.http.services import HttpServices
from gateway.auth.origins import allowed, own_origin
from gateway.web.replies import Headers

MAX_AGE_S: Final = 600
ALLOWED_HEADERS: Final = (
    "Authorization, Idempotency-Key, Last-Event-ID, Subako-User-Agent, Kikuvi-Workspace, Content-Type"
)
EXPOSED_HEADERS: Final = "Retry-After, Toolrelay-Oldest-Seq"


def origin_allowed(http: HttpServices, origin: str, agent_id: str | None, host: str) -> bool:
    """Whether a page of that origin may use a session of the agent; None stands for an unknown session."""
    own = own_origin(http.settings.server.public_url, host)
    known = http.agents.get(agent_id) if agent_id is not None else None
    if agent_id is not None and known is None:
        return False  # its agent is not configured any more
    agents = (known,) if known is not None else http.agents.values()
    return any(
        allowed(origin, agent.allowed_origins, own=own, demo_agent=bool(agent.name) and agent.name == http.demo_agent)
        for agent in agents
    )


def answer_headers(origin: str) -> Headers:
    """What an answer says to a browser whose page is allowed."""
    return (
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", EXPOSED_HEADERS.encode()),
        (b"vary", b"Origin"),
    )


def preflight_headers(origin: str, methods: Iterable[str], *, private_network: bool) -> Headers:
    """What a preflight says where the page is allowed."""
    headers = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", ", ".join(sorted(methods)).encode()),
        (b"access-control-allow-headers", ALLOWED_HEADERS.encode()),
        (b"access-control-max-age", b"%d" % MAX_AGE_S),
        (b"vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
    ]
    if private_network:
        headers.append((b"access-control-allow-private-network", b"true"))
    return headers
