"""From registrations to what a model is offered (bridge 2, 3, 4). Owns model names, native slots and equality of lists.

A child's registry is fixed at its start and small; the list of tools is neither. Some tools are native, with their own
descriptors in the child's registry; all are reached by ``client__use``. Nothing here waits, asks or remembers.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, cast

import msgspec

from gateway.model.clean import ModelJson, ModelText
from gateway.model.limits import (
    CHILD_REGISTRY_BYTES,
    CHILD_TIMEOUT_MAX_MS,
    CHILD_TIMEOUT_MIN_MS,
    CHILD_TOOLS,
)
from gateway.model.names import MORE, ToolKey, model_names
from gateway.model.narrowing import Narrowed, narrow
from gateway.model.own_tools import ALL
from gateway.model.registration import Registration, ToolSpec
from gateway.model.strictjson import compact
from gateway.model.text import child_description

NOT_NATIVE: Final = "not native"
"""How the notes begin that say why a tool is not native."""
REFUSED_BY_CHILD: Final = "not native: the agent refused the list of tools with it"
REFUSED_BY_PROVIDER: Final = "not native: the last run failed at the model's provider when this tool was new"
NO_ROOM: Final = "not native: no room; tools used last and clients registered last come first"


class Descriptor(msgspec.Struct, frozen=True):
    """One entry of ``client_tools`` in ``initialize`` (stdio protocol, Client tools)."""

    name: str
    description: ModelText
    input_schema: ModelJson
    timeout_ms: int

    def encoded(self) -> ModelJson:
        """The entry as compact JSON, with the four fields that the child counts."""
        return cast(
            ModelJson,
            b'{"name":%b,"description":%b,"input_schema":%b,"timeout_ms":%d}'
            % (compact(self.name), compact(self.description), self.input_schema, self.timeout_ms),
        )


class Item(msgspec.Struct, frozen=True):
    """One tool as ``GET …/catalog`` shows it (contract, Addresses), and what a call of it needs."""

    model_name: str
    client_id: str
    tool: str
    native: bool
    notes: tuple[str, ...]
    spec: ToolSpec

    @property
    def timeout_ms(self) -> int:
        """The clock of one call, in milliseconds: what its client asked for, at most 300,000."""
        return tool_timeout_ms(self.spec)


class Catalog(msgspec.Struct, frozen=True):
    """What one session offers at one moment.

    ``items`` are in the order of (registration, place in its list), ``by_name`` finds one by its model name,
    ``descriptors`` are what a child gets: native tools in the order of ``items``, then the gateway's own.
    ``fingerprint`` is equal for lists that need no new child: same names, descriptions, schemas, timeouts;
    ``native_fingerprint`` is that of ``descriptors`` alone. ``names`` goes back in as ``held`` when the list changes.
    """

    items: tuple[Item, ...]
    descriptors: tuple[Descriptor, ...]
    fingerprint: str
    native_fingerprint: str
    names: dict[ToolKey, str]
    by_name: dict[str, Item]


class DescriptorRedaction(msgspec.Struct, frozen=True):
    """How a tool's description and schema become fit for a model: both functions are of ``model/redaction``."""

    text: Callable[[str], ModelText]
    schema: Callable[[bytes], ModelJson]


def tool_timeout_ms(spec: ToolSpec) -> int:
    """What the child's clock gets for one tool: 300,000 unless its client asked for less (bridge 5)."""
    asked = CHILD_TIMEOUT_MAX_MS if spec.timeout_ms is None else spec.timeout_ms
    return min(max(asked, CHILD_TIMEOUT_MIN_MS), CHILD_TIMEOUT_MAX_MS)


def build_catalog(
    registrations: Iterable[Registration],
    *,
    redaction: DescriptorRedaction,
    used: Sequence[str] = (),
    held: Mapping[ToolKey, str] | None = None,
    dynamic_tools: bool = True,
    excluded: Mapping[str, str] | None = None,
) -> Catalog:
    """The catalog of the live ``registrations``.

    ``used`` are model names, the one used last first: they get native slots before the rest, then the tools of the
    clients registered last. ``held`` is an earlier catalog's ``names``. ``excluded`` gives model names that must not be
    native and the note that says why. 29 slots are there, 31 without ``dynamic_tools``; the whole registry has at most
    32,768 bytes with the gateway's own tools.
    """
    ordered = sorted(registrations, key=lambda entry: entry.order)
    names = model_names(ordered, held)
    own = own_descriptors(dynamic_tools=dynamic_tools)
    rank = {name: place for place, name in reversed(list(enumerate(used)))}
    tools = [(entry, tool) for entry in ordered for tool in entry.tools]
    candidates: dict[str, tuple[Descriptor | None, tuple[str, ...]]] = {}
    for entry, tool in tools:
        name = names[entry.client_id, tool.name]
        candidates[name] = _candidate(name, tool, redaction, (excluded or {}).get(name))
    preferred = sorted(
        tools, key=lambda pair: (rank.get(names[pair[0].client_id, pair[1].name], len(rank)), -pair[0].order)
    )
    native = _fill([candidates[names[entry.client_id, tool.name]][0] for entry, tool in preferred], own)
    items: list[Item] = []
    for entry, tool in tools:
        name = names[entry.client_id, tool.name]
        descriptor, notes = candidates[name]
        if descriptor is not None and name not in native:
            notes = (*notes, NO_ROOM)
        items.append(Item(name, entry.client_id, tool.name, name in native, notes, tool))
    descriptors = (*(native[item.model_name] for item in items if item.native), *own)
    return Catalog(
        items=tuple(items),
        descriptors=descriptors,
        fingerprint=_fingerprint(_listed(item.model_name, item.spec) for item in items),
        native_fingerprint=_fingerprint(descriptor.encoded() for descriptor in descriptors),
        names=names,
        by_name={item.model_name: item for item in items},
    )


def prepare(registration: Registration, redaction: DescriptorRedaction) -> None:
    """The dear part of ``build_catalog`` for one registration, done ahead: it is remembered for the last 2,048 schemas.

    A session's whole list (2,048 tools) costs most of a second the first time and a tenth of that afterwards.
    """
    for tool in registration.tools:
        narrow(redaction.schema(tool.parameters))


def list_fingerprint(registrations: Iterable[Registration], held: Mapping[ToolKey, str] | None = None) -> str:
    """The ``fingerprint`` of the catalog that ``build_catalog`` would make: whether the list itself differs."""
    ordered = list(registrations)
    names = model_names(ordered, held)
    return _fingerprint(_listed(names[entry.client_id, tool.name], tool) for entry in ordered for tool in entry.tools)


def own_descriptors(*, dynamic_tools: bool = True) -> tuple[Descriptor, ...]:
    """The gateway's own tools as the child gets them: three, or ``client__more`` alone."""
    return _OWN if dynamic_tools else tuple(descriptor for descriptor in _OWN if descriptor.name == MORE)


def registry_json(descriptors: Iterable[Descriptor]) -> ModelJson:
    """The array ``client_tools`` of ``initialize``, compact."""
    return cast(ModelJson, b"[" + b",".join(descriptor.encoded() for descriptor in descriptors) + b"]")


def _candidate(
    name: str, tool: ToolSpec, redaction: DescriptorRedaction, reason: str | None
) -> tuple[Descriptor | None, tuple[str, ...]]:
    narrowed: Narrowed = narrow(redaction.schema(tool.parameters))
    description, note = child_description(redaction.text(tool.description), tool.name)
    notes = narrowed.notes if note is None else (note, *narrowed.notes)
    if narrowed.schema is None:
        return None, notes
    if reason is not None:
        return None, (*notes, reason)
    return Descriptor(name, description, narrowed.schema, tool_timeout_ms(tool)), notes


def _fill(preferred: Iterable[Descriptor | None], own: Collection[Descriptor]) -> dict[str, Descriptor]:
    """Native descriptors by name: each that still fits, in order of preference. A large one makes way for the next."""
    room = CHILD_REGISTRY_BYTES - len(registry_json(own))
    native: dict[str, Descriptor] = {}
    for descriptor in preferred:
        if len(native) == CHILD_TOOLS - len(own):
            break
        if descriptor is not None and (size := len(descriptor.encoded()) + 1) <= room:
            native[descriptor.name] = descriptor
            room -= size
    return native


def _listed(name: str, spec: ToolSpec) -> bytes:
    timeout = b"%d" % tool_timeout_ms(spec)
    return b"\0".join((name.encode(), spec.description.encode(), _schema_digest(spec.parameters), timeout))


@lru_cache(maxsize=4096)
def _schema_digest(parameters: bytes) -> bytes:
    """The same for schemas that differ in the order of their names only."""
    ordered = msgspec.json.encode(msgspec.json.decode(parameters), order="sorted")
    return hashlib.sha256(ordered).hexdigest().encode()


def _fingerprint(entries: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for entry in sorted(hashlib.sha256(entry).digest() for entry in entries):
        digest.update(entry)
    return digest.hexdigest()


# Texts and schemas of ours hold no secret, so they need no redaction to be fit for a model.
_OWN: Final = tuple(
    Descriptor(name, cast(ModelText, description), cast(ModelJson, compact(schema)), CHILD_TIMEOUT_MAX_MS)
    for name, description, schema in ALL
)
