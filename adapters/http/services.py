"""What the HTTP adapter needs of a node. Owns the one struct; the composition root fills it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from adapters.http.streams import Streams
from gateway.auth.authenticator import Authenticator
from gateway.auth.reach import SessionAgents
from gateway.bus.calls import Calls
from gateway.bus.log import Log
from gateway.bus.sessions import Sessions
from gateway.config.settings import Agent, Settings
from gateway.model import limits
from gateway.services.answers import Answers
from gateway.services.catalogs import Catalogs
from gateway.services.enquiries import Enquiries
from gateway.services.feeds import Feeds
from gateway.services.offers import Offers
from gateway.services.sessions import Conversations
from gateway.services.tasks import Tasks
from gateway.web.rates import Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServices:
    """The services of one node. ``now_ms`` is the bus clock; ``demo_agent`` the name of the agent whose sessions this
    gateway's own pages may use (empty: none)."""

    settings: Settings
    agents: Mapping[str, Agent]
    authenticator: Authenticator
    session_agents: SessionAgents
    conversations: Conversations
    enquiries: Enquiries
    sessions: Sessions
    offers: Offers
    catalogs: Catalogs
    answers: Answers
    calls: Calls
    log: Log
    feeds: Feeds
    streams: Streams
    tasks: Tasks
    rates: Rates
    failures: Rates
    now_ms: Callable[[], int]
    draining: Callable[[], bool]
    demo_agent: str = ""
    heartbeat_s: float = limits.HEARTBEAT_S
    write_s: float = 20.0
    """How long a stream's client may leave bytes unread before its stream is ended."""
