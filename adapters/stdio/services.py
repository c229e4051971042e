"""What the stdio adapter needs of the rest. Owns the list; ``gateway/app.py`` fills it."""

from collections.abc import Mapping
from dataclasses import dataclass

from adapters.stdio.reaper import Reaper
from gateway.bus.calls import Calls
from gateway.bus.sessions import Sessions
from gateway.bus.store import Store
from gateway.config.settings import Agent, Limits
from gateway.model.redaction import Redactor
from gateway.services.capacity import Capacity
from gateway.services.deadlines import Timers
from gateway.services.offers import Offers
from gateway.services.tasks import Tasks


@dataclass(frozen=True, slots=True)
class StdioServices:
    """Shared by all sessions that this node owns."""

    store: Store
    sessions: Sessions
    calls: Calls
    offers: Offers
    redactor: Redactor
    timers: Timers
    capacity: Capacity
    reaper: Reaper
    tasks: Tasks
    limits: Limits
    agents: Mapping[str, Agent]
