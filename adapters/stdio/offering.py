"""What a session offers to its children: the catalog, read from the registrations. Owns when it is read again, which
tools are kept out of the native ones, and which were used last (bridge 3)."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from adapters.stdio.services import StdioServices
from gateway.bus.errors import BusUnavailable
from gateway.config.settings import Agent
from gateway.model.catalog import REFUSED_BY_CHILD, REFUSED_BY_PROVIDER, Catalog, DescriptorRedaction, build_catalog
from gateway.model.names import RESERVED, ToolKey

_USED: Final = 64  # tools whose last use is remembered
_RETRY_S: Final = 0.5


class Offering:
    """``on_changed`` is called, at once and on the loop, whenever the catalog was built anew."""

    def __init__(
        self, services: StdioServices, agent: Agent, session_id: str, *, on_changed: Callable[[], None]
    ) -> None:
        self._services = services
        self._agent = agent
        self._session_id = session_id
        self._on_changed = on_changed
        redactor = services.redactor
        self._redaction = DescriptorRedaction(redactor.model_text, redactor.schema_json)
        self.catalog: Catalog = build_catalog((), redaction=self._redaction, dynamic_tools=agent.dynamic_tools)
        self._stale = True
        self._revisions: dict[str, int] = {}
        self._excluded: dict[str, str] = {}
        self._proven: set[str] = set()
        self._used: list[str] = []
        self._reading: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def stale(self) -> bool:
        """Whether the list has changed since ``catalog`` was built; so it may have while it is being read."""
        return self._stale or self._reading is not None

    def revision(self, client_id: str) -> int:
        """The revision of a registration's list that ``catalog`` was built from; 0 when it is not in it."""
        return self._revisions.get(client_id, 0)

    def used(self, model_name: str) -> None:
        """A tool was called."""
        with suppress(ValueError):
            self._used.remove(model_name)
        self._used.insert(0, model_name)
        del self._used[_USED:]

    def refresh(self) -> None:
        """Read the registrations again."""
        self._stale = True
        if self._reading is None and not self._closed:
            self._reading = self._services.tasks.spawn("session.read_tools", self._read())

    async def fresh(self) -> Catalog:
        """The catalog of the registrations as they are now."""
        if self._stale:
            self.refresh()
        while self._reading is not None:
            await asyncio.shield(self._reading)
        return self.catalog

    async def _read(self) -> None:
        try:
            while self._stale and not self._closed:
                self._stale = False
                try:
                    found = await self._services.offers.all(self._session_id)
                except BusUnavailable:
                    self._stale = True
                    await asyncio.sleep(_RETRY_S)
                    continue
                held: dict[ToolKey, str] = self.catalog.names
                self._revisions = {stored.client_id: stored.revision for _, stored in found}
                self.catalog = build_catalog(
                    [registration for registration, _ in found],
                    redaction=self._redaction,
                    used=self._used,
                    held=held,
                    dynamic_tools=self._agent.dynamic_tools,
                    excluded=self._excluded,
                )
        finally:
            self._reading = None
        self._on_changed()

    # Which tools may be native.

    def refused(self, catalog: Catalog) -> None:
        """A child refused the registry: none of these is native any more."""
        self._exclude([item.model_name for item in catalog.items if item.native], REFUSED_BY_CHILD)

    def spoke(self, native: Collection[str]) -> None:
        """The model has answered with these tools before it: its provider takes them."""
        self._proven.update(native)

    def failed_unheard(self, native: Collection[str]) -> None:
        """A run failed before the model said a word: what is new among its tools may be why (bridge 3)."""
        self._exclude(set(native) - self._proven - RESERVED, REFUSED_BY_PROVIDER)

    def _exclude(self, names: Collection[str], why: str) -> None:
        if set(names) - self._excluded.keys():
            self._excluded.update(dict.fromkeys(names, why))
            self.refresh()

    def close(self) -> None:
        """Nothing is read any more."""
        self._closed = True
