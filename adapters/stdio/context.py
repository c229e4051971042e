"""What a run needs of its session. Owns the names of that; ``session.py`` is it."""

from collections.abc import Sequence
from typing import Protocol

from adapters.stdio.generation import Generation
from adapters.stdio.services import StdioServices
from gateway.bus.outbox import Outbox
from gateway.config.settings import Agent
from gateway.model.catalog import Catalog
from gateway.model.clean import ModelText
from gateway.model.events import EventPayload


class SessionContext(Protocol):
    """A session as its run sees it."""

    services: StdioServices
    agent: Agent
    session_id: str
    outbox: Outbox
    long_answers: dict[str, ModelText]
    """Answers of the gateway's own tools that ``client__more`` may read on in, by call."""

    @property
    def catalog(self) -> Catalog:
        """What is offered now, as far as this node has heard."""
        ...

    @property
    def stale(self) -> bool:
        """Whether the list has changed since ``catalog`` was built; ``catalog_changed`` follows."""
        ...

    def revision(self, client_id: str) -> int:
        """The revision of a registration's list that ``catalog`` was built from; 0 when it is not in it."""
        ...

    def refresh(self) -> None:
        """Read the registrations again."""
        ...

    def write(
        self,
        payloads: Sequence[EventPayload],
        *,
        ends_run: str = "",
        fields: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Log events, with whatever is to be marked of delivered answers."""
        ...

    def take_marks(self) -> str:
        """What became of answers at the child since the last write (``Calls.dispatch``, ``Sessions.append``)."""
        ...

    def mark(self, call_id: str, what: str) -> None:
        """Notes what became of an answer at the child, for the next write."""
        ...

    def persisted(self, child_session: str) -> None:
        """The child has kept the input: its session may be opened by another child."""
        ...

    def used(self, model_name: str) -> None:
        """A tool was called."""
        ...

    def spent(self, generation: Generation) -> None:
        """The child has hardly any request ids left: the run has to end."""
        ...
