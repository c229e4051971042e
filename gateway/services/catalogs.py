"""A session's catalog as everybody sees it. Owns the record that its owner keeps of it, and the joining of the two.

What is offered stands in the registrations. What only the owner knows stands in the record, a field of the session:
names that were given, what its child has as native tools, which tools are kept out of those and why. So every node
gives the same answer, and the next owner goes on with the same names (bridge 2, 4).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gateway.bus.sessions import Sessions
from gateway.model.catalog import NOT_NATIVE, DescriptorRedaction, Item, build_catalog, prepare
from gateway.model.names import ToolKey
from gateway.model.redaction import Redactor
from gateway.model.registration import Registration
from gateway.services.offers import Offers

NEXT_TURN: Final = "native from the next turn on"
LAST_TURN: Final = "not native from the next turn on"
_AT_ONCE: Final = 64  # tools of one list


class CatalogRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """``generation`` counts the session's children that were ready, 0 before the first; ``native`` are the model names
    in the registry of the last one, ``chosen`` those that the next one gets while the list stays as it is. ``names``:
    client id to tool to model name. ``excluded``: model name to the note that says why it is not native."""

    generation: int = 0
    names: dict[str, dict[str, str]] = {}
    native: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    excluded: dict[str, str] = {}

    @property
    def held(self) -> dict[ToolKey, str]:
        """The names as ``build_catalog`` takes them."""
        return {(client_id, tool): name for client_id, tools in self.names.items() for tool, name in tools.items()}

    @property
    def encoded(self) -> str:
        """The record as the session's field holds it."""
        return _encode(self).decode()


_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = msgspec.json.Decoder(CatalogRecord).decode


def read_record(stored: bytes | None) -> CatalogRecord:
    """The record of a session; an empty one where no owner has written any."""
    return _decode(stored) if stored else CatalogRecord()


def nested_names(names: Mapping[ToolKey, str]) -> dict[str, dict[str, str]]:
    """Names as a record keeps them."""
    nested: dict[str, dict[str, str]] = {}
    for (client_id, tool), name in names.items():
        nested.setdefault(client_id, {})[tool] = name
    return nested


async def prepared(registrations: Sequence[Registration], redaction: DescriptorRedaction) -> None:
    """Schemas are narrowed client by client, so that a session with many tools holds nobody else up."""
    if sum(len(registration.tools) for registration in registrations) > _AT_ONCE:
        for registration in registrations:
            prepare(registration, redaction)
            await asyncio.sleep(0)


class Catalogs:
    """The catalogs of all sessions, for whoever asks at this node."""

    def __init__(self, sessions: Sessions, offers: Offers, redactor: Redactor) -> None:
        self._sessions = sessions
        self._offers = offers
        self._redaction = DescriptorRedaction(redactor.model_text, redactor.schema_json)

    async def shown(self, session_id: str, *, dynamic_tools: bool) -> tuple[int, Sequence[Item]]:
        """The generation and the tools that are offered now. ``native`` says what the child of that generation has (of
        generation 0: what the first will have); where the next one will differ, a note says so."""
        record = read_record(await self._sessions.catalog_record(session_id))
        registrations = [registration for registration, _ in await self._offers.all(session_id)]
        await prepared(registrations, self._redaction)
        catalog = build_catalog(
            registrations,
            redaction=self._redaction,
            used=record.chosen,
            held=record.held,
            dynamic_tools=dynamic_tools,
            excluded=record.excluded,
        )
        if record.generation == 0:
            return 0, catalog.items
        native = frozenset(record.native)
        return record.generation, [_of_generation(item, item.model_name in native) for item in catalog.items]


def _of_generation(item: Item, native: bool) -> Item:
    if item.native == native:
        return item
    others = tuple(note for note in item.notes if not note.startswith(NOT_NATIVE))
    return msgspec.structs.replace(item, native=native, notes=(*others, LAST_TURN if native else NEXT_TURN))
