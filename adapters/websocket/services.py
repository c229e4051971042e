"""What the socket needs of the gateway, as one value that the composition root makes. Owns nothing."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.auth.authenticator import Authenticator
from gateway.config.settings import Settings
from gateway.services.answers import Answers
from gateway.services.deadlines import Timers
from gateway.services.feeds import Feeds
from gateway.services.offers import Offers
from gateway.services.sessions import Conversations
from gateway.services.tasks import Tasks
from gateway.web.rates import Rates


@dataclass(frozen=True, slots=True)
class SocketServices:
    """``incarnation`` is this node's; ``now_ms`` the bus clock as ``timers`` use it; ``failures`` counts refused
    credentials by address, those of HTTP among them.

    ``frames_per_second`` and ``frame_burst`` bound one socket; beyond them it is closed (4429). They are far above what
    a client needs, since a call costs two frames. ``demo_agent_id``: the agent whose sessions our own pages may use.
    """

    settings: Settings
    incarnation: str
    authenticator: Authenticator
    conversations: Conversations
    offers: Offers
    answers: Answers
    feeds: Feeds
    timers: Timers
    tasks: Tasks
    failures: Rates
    now_ms: Callable[[], int]
    demo_agent_id: str | None = None
    frames_per_second: float = 5_000
    frame_burst: int = 20_000
