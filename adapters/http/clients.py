"""Registrations and what clients say of their calls. Owns these routes' answers; most go out as a script wrote them."""

from typing import Final, Literal
from uuid import uuid4

import msgspec
from msgspec import UNSET, Raw, json

from adapters.http import wire
from adapters.http.ask import Ask
from gateway.bus.calls import Record
from gateway.bus.clients import Stored
from gateway.bus.errors import BusUnavailable
from gateway.bus.store import rfc3339
from gateway.model import limits
from gateway.model.call import OPEN, State
from gateway.model.errors import Code, Refusal
from gateway.model.registration import Registration
from gateway.model.tools import parse_tools
from gateway.observe.log import get_logger
from gateway.services.offers import Offer
from gateway.web.replies import NO_CONTENT, Reply, json_reply

log = get_logger("http")

_register: Final = json.Decoder(wire.Register)
_tools: Final = json.Decoder(wire.Tools)
_result: Final = json.Decoder(wire.Result)
_STATES: Final = {state.value: frozenset({state}) for state in State} | {
    "open": OPEN,
    "settled": frozenset(State) - OPEN,
}
_CALLS: Final = 100


# --- registrations


async def register(ask: Ask) -> Reply:
    """``POST …/clients``."""
    wanted = await ask.body(_register)
    tools = parse_tools(wanted.tools) if wanted.tools is not None else ()
    ttl_s = wanted.lifetime.data.seconds if isinstance(wanted.lifetime, wire.Ttl) else 0
    offer = Offer(wanted.name, ttl_s, tools, wanted.key or "")
    answer = await ask.http.offers.register(ask.session_id, str(uuid4()), offer, idempotency=ask.idempotency())
    return Reply(201, answer)


async def replace(ask: Ask) -> Reply:
    """``PUT …/tools``: the ``client_tools_updated`` event."""
    client_id = ask.uuid("cid")
    wanted = await ask.body(_tools)
    return Reply(200, await ask.http.offers.replace(ask.session_id, client_id, parse_tools(wanted.tools)))


async def ping(ask: Ask) -> Reply:
    """``POST …/ping``."""
    return Reply(200, await ask.http.offers.ping(ask.session_id, ask.uuid("cid")))


async def leave(ask: Ask) -> Reply:
    """``DELETE …/clients/{cid}``."""
    await ask.http.offers.leave(ask.session_id, ask.uuid("cid"))
    return NO_CONTENT


async def page(ask: Ask) -> Reply:
    """``GET …/clients``: the live ones, in the order of their coming."""
    await ask.http.sessions.get(ask.session_id)
    now = ask.http.now_ms()
    rows = await ask.http.offers.all(ask.session_id)
    return json_reply(200, wire.ClientPage([_client(registration, stored, now) for registration, stored in rows]))


def _client(registration: Registration, stored: Stored, now_ms: int) -> wire.Client:
    state: Literal["online", "asleep", "gone"] = "online"
    if stored.expires_ms is not None and stored.expires_ms <= now_ms:
        state = "gone"  # its lapse is about to be written
    elif stored.by_socket and not stored.held:
        state = "asleep"
    tools = [
        wire.Tool(tool.name, tool.description, Raw(tool.parameters), tool.timeout_ms, tool.idempotent)
        for tool in registration.tools
    ]
    return wire.Client(
        registration.client_id, registration.name, registration.key, state, wire.instant(stored.expires_ms), tools
    )


async def catalog(ask: Ask) -> Reply:
    """``GET …/catalog``: in the order of registrations and their lists."""
    session = await ask.http.sessions.get(ask.session_id)
    agent = ask.http.agents.get(session.agent_id)
    dynamic_tools = agent is None or agent.dynamic_tools
    generation, items = await ask.http.catalogs.shown(ask.session_id, dynamic_tools=dynamic_tools)
    shown = [
        wire.CatalogItem(item.model_name, item.client_id, item.tool, item.native, list(item.notes)) for item in items
    ]
    return json_reply(200, wire.Catalog(generation, shown))


# --- calls


async def ack(ask: Ask) -> Reply:
    """``POST …/ack``: the ``client_tool_acked`` event, the same one for a repeat."""
    return Reply(200, await ask.http.answers.ack(ask.session_id, ask.uuid("cid"), ask.call_id()))


async def result(ask: Ask) -> Reply:
    """``POST …/result``. An answer that is refused does not use the call up (bridge 6)."""
    session_id, client_id, call_id = ask.session_id, ask.uuid("cid"), ask.call_id()
    try:
        answer = await ask.body(_result)
        structured = _structured(answer.structured)
    except Refusal as refusal:
        await _refuse(ask, client_id, call_id, refusal)
        raise
    await ask.http.answers.answer(
        session_id, client_id, call_id, text=answer.text, is_error=bool(answer.is_error), structured=structured
    )
    return NO_CONTENT


def _structured(raw: Raw | msgspec.UnsetType) -> bytes | None:
    """Compact JSON with its numbers as they came; null is the same as nothing."""
    if raw is UNSET:
        return None
    compact = msgspec.json.format(bytes(raw), indent=-1)
    if compact == b"null":
        return None
    if len(compact) > limits.STRUCTURED_BYTES:
        raise Refusal(Code.INVALID_REQUEST, f"structured: more than {limits.STRUCTURED_BYTES} bytes")
    return compact


async def _refuse(ask: Ask, client_id: str, call_id: str, refusal: Refusal) -> None:
    """Starts the time in which the answer may be corrected; an unknown call is what the client is told then."""
    if refusal.code is Code.REQUEST_TIMEOUT:
        return  # nothing came that could be wrong
    try:
        await ask.http.answers.refuse(ask.session_id, client_id, call_id, refusal)
    except BusUnavailable as error:
        log.warning("a refused answer could not be noted", error=error)


async def calls(ask: Ask) -> Reply:
    """``GET …/calls?state=``: newest first. A page may hold few of a state while its cursor goes on."""
    wanted = _STATES.get(ask.query("state") or "")
    if wanted is None and ask.query("state") is not None:
        raise Refusal(Code.INVALID_REQUEST, f"state: expected one of {', '.join(_STATES)}")
    limit, after = ask.limit(_CALLS), ask.query("after")
    await ask.http.sessions.get(ask.session_id)
    if wanted is not None and wanted <= OPEN:
        found, cursor = await _open_calls(ask), None
    else:
        found, cursor = await ask.http.calls.page(ask.session_id, after, limit)
    items = [_call(record) for record in found if wanted is None or record.state in wanted]
    return json_reply(200, wire.CallPage(items, cursor))


async def _open_calls(ask: Ask) -> list[Record]:
    records = [
        await ask.http.calls.get(ask.session_id, call_id) for call_id in await ask.http.calls.open(ask.session_id)
    ]
    found = [record for record in records if record is not None]
    return sorted(found, key=lambda record: (record.dispatched_ms, record.call_id), reverse=True)


def _call(record: Record) -> wire.Call:
    return msgspec.convert(
        {
            "call_id": record.call_id,
            "client_id": record.client_id,
            "tool": record.tool,
            "model_name": record.model_name,
            "run_id": record.run_id,
            "state": record.state,
            "attempt": record.attempt,
            "outcome": record.outcome,
            "reason": record.reason,
            "delivery": record.delivery,
            "dispatched_at": rfc3339(record.dispatched_ms),
            "due": rfc3339(record.due_ms) if record.state in OPEN else None,
            "deadline": rfc3339(record.deadline_ms),
            "settled_at": wire.instant(record.settled_ms),
        },
        wire.Call,
    )
