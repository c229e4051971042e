"""The children of one session, one after the other. Owns which is in service, when the next one takes its place, and
the pause after failures (bridge 3, 9)."""

import asyncio
from collections.abc import Callable
from typing import Final

from adapters.stdio.child import Child, ChildEvent, ChildStuckError
from adapters.stdio.failures import RunFailure
from adapters.stdio.frames import InputPersisted, RunFinished
from adapters.stdio.generation import Generation, LostSession, attach, start
from adapters.stdio.offering import Offering
from adapters.stdio.services import StdioServices
from gateway.config.settings import Agent
from gateway.model.catalog import Catalog
from gateway.model.limits import CHILD_REQUEST_IDS
from gateway.observe.log import get_logger

log = get_logger("session")

REQUESTS_OF_A_GENERATION: Final = 3_500
"""Request ids after which a child is replaced between runs (bridge 9); a run may use the rest."""
BACKOFF_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Lineage:
    """``durable`` is the child's own session where something of it was persisted. ``on_event`` hears a child that is in
    service; ``on_restart`` says that the session was lost and begins anew."""

    def __init__(
        self,
        services: StdioServices,
        agent: Agent,
        session_id: str,
        offering: Offering,
        *,
        durable: str | None,
        on_event: Callable[[Child, ChildEvent], None],
        on_restart: Callable[[], None],
    ) -> None:
        self._services = services
        self._agent = agent
        self._session_id = session_id
        self._offering = offering
        self._durable = durable
        self._on_event = on_event
        self._on_restart = on_restart
        self._failures = 0
        self.current: Generation | None = None
        self.revision = ""
        """The newest revision of the child's session: what a page of its history names."""

    def persisted(self, child_session: str) -> None:
        """The child's session is worth keeping: the next generation opens it."""
        self._durable = child_session

    async def ready(self) -> Generation:
        """A child with the list as it is now, attached. Raises RunFailure, Refusal(NO_CAPACITY).

        May be cancelled at any time: a child that is not in service yet ends.
        """
        catalog = await self._offering.fresh()
        current = self.current
        if current is not None and current.alive and self._serves(current, catalog):
            return current
        # The pause first: what does not start takes no place from what would.
        await asyncio.sleep(BACKOFF_S[min(self._failures, len(BACKOFF_S) - 1)])
        await self._services.capacity.take(self._session_id, wait_s=self._services.limits.start_wait_s)
        try:
            generation = await self._replace(catalog)
        except RunFailure as failure:
            self._failures += 1
            failure.count()
            if self.current is None:
                self._services.capacity.free(self._session_id)
            raise
        self._failures = 0
        return generation

    def _serves(self, generation: Generation, catalog: Catalog) -> bool:
        used = CHILD_REQUEST_IDS - generation.child.protocol.requests_left
        return generation.fingerprint == catalog.native_fingerprint and used < REQUESTS_OF_A_GENERATION

    async def _replace(self, catalog: Catalog) -> Generation:
        """The next generation: started and initialised beside the one before, then attached in its stead."""
        source: list[Child] = []  # what a child says before it is ready concerns nobody
        generation = await start(
            self._services,
            self._agent,
            self._session_id,
            catalog,
            lambda event: self._heard(source, event),
            requests=CHILD_REQUEST_IDS,
        )
        source.append(generation.child)
        if generation.refused:
            self._offering.refused(catalog)
        try:
            await self.stop()
            attached = await self._attach(generation)
        except BaseException:
            await stop_child(generation)
            raise
        attached.counted.become("ready")
        self.current, self.revision = attached, attached.revision
        self._offering.serves(attached.native)
        return attached

    async def _attach(self, generation: Generation) -> Generation:
        try:
            return await attach(generation, self._durable, session_id=self._session_id)
        except LostSession as lost:
            if self._agent.on_lost_session == "error":
                raise lost.failure from None
            log.warning("a child's session is lost; it starts anew", session_id=self._session_id)
            self._durable = None
            self._on_restart()
            return await attach(generation, None, session_id=self._session_id)

    def _heard(self, source: list[Child], event: ChildEvent) -> None:
        if not source or self.current is None or self.current.child is not source[0]:
            return
        match event:
            case InputPersisted():
                self.revision = event.revision
                if event.durable:
                    self.persisted(event.session_id)
            case RunFinished(revision=str(revision)):
                self.revision = revision
            case _:
                pass
        self._on_event(source[0], event)

    async def stop(self) -> None:
        """End the child in service, if there is one."""
        generation, self.current = self.current, None
        if generation is not None:
            await stop_child(generation)


async def stop_child(generation: Generation) -> None:
    """End it by the whole ladder; one that does not end is told."""
    generation.counted.become("draining")
    try:
        await generation.child.stop()
    except ChildStuckError as error:
        log.error("a child does not end", error=error)
