"""What a session offers to its children: the catalog, read from the registrations. Owns when it is read again, which
tools are kept out of the native ones, which were used last, and the session's record of all that (bridge 2, 3)."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from adapters.stdio.services import StdioServices
from gateway.bus.errors import BusUnavailable
from gateway.config.settings import Agent
from gateway.model.catalog import (
    REFUSED_BY_CHILD,
    REFUSED_BY_PROVIDER,
    Catalog,
    DescriptorRedaction,
    build_catalog,
    list_fingerprint,
)
from gateway.model.names import RESERVED, kept_names
from gateway.model.registration import Registration
from gateway.services.catalogs import CatalogRecord, nested_names, prepared

_USED: Final = 64  # tools whose last use is remembered
_RETRY_S: Final = 0.5


class Offering:
    """``recorded`` is what the session's owners have kept, ``record`` keeps it anew. ``on_changed`` is called, at once
    and on the loop, whenever the catalog was built anew."""

    def __init__(
        self,
        services: StdioServices,
        agent: Agent,
        session_id: str,
        *,
        recorded: CatalogRecord,
        record: Callable[[str], None],
        on_changed: Callable[[], None],
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
        self._recorded = recorded
        self._record = record
        self._held = recorded.held
        self._excluded = dict(recorded.excluded)
        self._fingerprint: str | None = None  # of the list that ``chosen`` of the record was made for
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
                registrations = [registration for registration, _ in found]
                await prepared(registrations, self._redaction)
                self._revisions = {stored.client_id: stored.revision for _, stored in found}
                self._build(registrations)
        finally:
            self._reading = None
        self._on_changed()

    def _build(self, registrations: Sequence[Registration]) -> None:
        """The native ones are chosen anew only when the list itself differs: use alone replaces nothing."""
        fingerprint = list_fingerprint(registrations, self._held)
        same = self._fingerprint is None or self._fingerprint == fingerprint
        self.catalog = build_catalog(
            registrations,
            redaction=self._redaction,
            used=self._recorded.chosen if same else self._used,
            held=self._held,
            dynamic_tools=self._agent.dynamic_tools,
            excluded=self._excluded,
        )
        self._fingerprint = fingerprint
        live = {registration.client_id for registration in registrations}
        self._held = kept_names(self._held, self.catalog.names, live)
        known = set(self._held.values())
        self._excluded = {name: why for name, why in self._excluded.items() if name in known}
        self._keep(
            names=nested_names(self._held),
            chosen=tuple(item.model_name for item in self.catalog.items if item.native),
            excluded=dict(self._excluded),
        )

    def _keep(self, **changed: Any) -> None:
        record = msgspec.structs.replace(self._recorded, **changed)
        if record != self._recorded and not self._closed:
            self._recorded = record
            self._record(record.encoded)

    def serves(self, native: Collection[str]) -> None:
        """Another child is in service, with these tools of its own."""
        self._keep(generation=self._recorded.generation + 1, native=tuple(sorted(set(native) - RESERVED)))

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
