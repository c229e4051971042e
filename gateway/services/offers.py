"""What clients offer: registrations and their lists of tools. Owns the stored form of a list and what the log shows.

A list is cleaned and redacted before it is stored (known secrets and shapes; a schema's property may be called
``password``), so whatever reads it back is clean. A name cannot be redacted, since calls find their way by it: one that
holds a secret is refused.
"""

from asyncio import Future
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.bus.clients import Clients, Resumed, Stored
from gateway.bus.sessions import NO_KEY, Idempotency
from gateway.model import events
from gateway.model.clean import LogJson
from gateway.model.errors import Code, Refusal
from gateway.model.redaction import RedactionCollision, Redactor
from gateway.model.registration import Registration, ToolSpec
from gateway.model.text import clean_text

_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(tuple[ToolSpec, ...]).decode
_json: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Offer:
    """What a client asks for: ``ttl_s`` 0 is a lifetime of ``never``; ``key`` is the app's own name of this place."""

    name: str
    ttl_s: int
    tools: tuple[ToolSpec, ...]
    key: str = ""


def lifetime_json(ttl_s: int) -> bytes:
    """A lifetime as both directions of the HTTP protocol write it."""
    return b'{"type":"ttl","data":{"seconds":%d}}' % ttl_s if ttl_s else b'{"type":"never"}'


def tools_json(tools: tuple[ToolSpec, ...]) -> LogJson:
    """A stored (so clean) list as the log's events show it."""
    shown: list[dict[str, object]] = []
    for tool in tools:
        item: dict[str, object] = {
            "name": tool.name,
            "description": tool.description,
            "parameters": msgspec.Raw(tool.parameters),
        }
        if tool.timeout_ms is not None:
            item["timeout_ms"] = tool.timeout_ms
        if tool.idempotent:
            item["idempotent"] = True
        shown.append(item)
    return LogJson(_json(shown))


def registration(stored: Stored) -> Registration:
    """A stored record as the catalog reads it."""
    return Registration(
        client_id=stored.client_id,
        name=stored.name,
        order=stored.order,
        tools=_unpack(stored.tools),
        key=stored.key or None,
    )


class Offers:
    """Registrations of all clients, over whatever adapter."""

    def __init__(self, clients: Clients, redactor: Redactor) -> None:
        self._clients = clients
        self._redactor = redactor

    def cleaned(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        """The list as it is stored. Raises Refusal(INVALID_REQUEST)."""
        return tuple(self._clean_tool(index, tool) for index, tool in enumerate(tools))

    def _clean_tool(self, index: int, tool: ToolSpec) -> ToolSpec:
        self._check_name(f"tools[{index}].name", tool.name)
        try:
            parameters = self._redactor.dispatch_json(tool.parameters, by_name=False)
        except RedactionCollision as collision:
            raise Refusal(Code.INVALID_REQUEST, f"tools[{index}].parameters: {collision}") from None
        description = self._redactor.model_text(clean_text(tool.description))
        return msgspec.structs.replace(tool, description=description, parameters=parameters)

    def _check_name(self, what: str, name: str) -> None:
        if self._redactor.finds(name):
            raise Refusal(Code.INVALID_REQUEST, f"{what}: it looks like a secret, and a name is shown to everybody")

    async def register(
        self,
        session_id: str,
        client_id: str,
        offer: Offer,
        *,
        holder: str = "",
        resume_hash: str = "",
        idempotency: Idempotency = NO_KEY,
    ) -> bytes:
        """The answer's JSON ``{id, name, expires_at}``. Raises Refusal(INVALID_REQUEST, CONFLICT, NOT_FOUND)."""
        self._check_name("name", offer.name)
        self._check_name("key", offer.key)
        tools = self.cleaned(offer.tools)
        lifetime = LogJson(lifetime_json(offer.ttl_s))
        return await self._clients.register(
            session_id,
            client_id,
            name=offer.name,
            ttl_s=offer.ttl_s,
            lifetime=lifetime,
            tools=_pack(tools),
            registered=events.client_registered(client_id, lifetime, tools_json(tools)),
            key=offer.key,
            resume_hash=resume_hash,
            holder=holder,
            idempotency=idempotency,
        )

    async def replace(self, session_id: str, client_id: str, tools: tuple[ToolSpec, ...]) -> bytes:
        """The ``client_tools_updated`` event. Raises Refusal(INVALID_REQUEST, NOT_FOUND)."""
        clean = self.cleaned(tools)
        updated = events.client_tools_updated(client_id, tools_json(clean))
        return await self._clients.replace_tools(session_id, client_id, _pack(clean), updated)

    def send_replace(self, session_id: str, client_id: str, tools: tuple[ToolSpec, ...]) -> Future[object]:
        """As ``replace``, enqueued now; ``store.outcome`` reads the answer."""
        clean = self.cleaned(tools)
        updated = events.client_tools_updated(client_id, tools_json(clean))
        return self._clients.send_tools(session_id, client_id, _pack(clean), updated)

    async def ping(self, session_id: str, client_id: str) -> bytes:
        """The answer's JSON ``{expires_at}``. Raises Refusal(NOT_FOUND)."""
        return await self._clients.ping(session_id, client_id)

    async def leave(self, session_id: str, client_id: str) -> None:
        """Raises Refusal(NOT_FOUND)."""
        await self._clients.leave(session_id, client_id)

    def send_leave(self, session_id: str, client_id: str) -> Future[object]:
        """As ``leave``, enqueued now; ``store.outcome`` reads the answer."""
        return self._clients.send_leave(session_id, client_id)

    async def release(self, session_id: str, client_id: str, holder: str) -> None:
        """The socket that held a registration is gone."""
        await self._clients.release(session_id, client_id, holder)

    async def hold(self, session_id: str, client_id: str, holder: str) -> bool:
        """A socket that was out of contact still holds a registration: False when it ended or another took it up."""
        return await self._clients.hold(session_id, client_id, holder)

    async def resume(
        self, session_id: str, client_id: str, resume_hash: str, holder: str, *, only_if_free: bool = False
    ) -> Resumed:
        """A socket takes a registration up, with ``only_if_free`` not from another. Raises Refusal(NOT_FOUND)."""
        return await self._clients.resume(session_id, client_id, resume_hash, holder, only_if_free=only_if_free)

    async def all(self, session_id: str) -> list[tuple[Registration, Stored]]:
        """The live registrations in the order of their coming."""
        return [(registration(stored), stored) for stored in await self._clients.all(session_id)]
