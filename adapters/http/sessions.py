"""Sessions, their tokens, and the agents that they may have. Owns these routes' answers."""

from typing import Final
from uuid import uuid4

from msgspec import json

from adapters.http import wire
from adapters.http.ask import Ask
from adapters.http.services import HttpServices
from gateway.auth.origins import allowed, own_origin
from gateway.auth.principals import ApiKeyHolder, may_reach_agent
from gateway.auth.tokens import digest, mint_session_token
from gateway.bus.sessions import NO_KEY, Session
from gateway.bus.store import rfc3339
from gateway.config.settings import WORKSPACE_ID
from gateway.model.errors import Code, Refusal
from gateway.services.sessions import session_id_for
from gateway.web.replies import NO_CONTENT, Reply, json_reply

_create: Final = json.Decoder(wire.CreateSession)
_PAGE: Final = 50


def session_body(session: Session, *, with_creator: bool) -> wire.Session:
    """A session on the wire; the answers to its creation have no ``created_by``."""
    body = wire.Session(
        id=session.session_id,
        agent_id=session.agent_id,
        agent_version_id=wire.agent_version_id(session.agent_id),
        workspace_id=WORKSPACE_ID,
        display_name=session.display_name,
        status="active" if session.active else "idle",
        created_at=rfc3339(session.created_ms),
    )
    if with_creator:
        body.created_by = wire.CreatedBy(wire.api_key_id(session.label), session.label)
    return body


async def create(ask: Ask) -> Reply:
    """``POST /v1/sessions``: 201 with the token; 200 without it for a replayed key."""
    http = ask.http
    holder = _key_holder(ask)
    wanted = await ask.body(_create)
    agent_id = str(wanted.agent_id)
    agent = http.agents.get(agent_id)
    if agent is None or not may_reach_agent(holder, agent_id):
        raise Refusal(Code.NOT_FOUND, "agent_id: there is no such agent")
    origin = ask.header(b"origin")
    own = own_origin(http.settings.server.public_url, ask.header(b"host") or "")
    if not allowed(origin, agent.allowed_origins, own=own, demo_agent=bool(agent.name == http.demo_agent)):
        raise Refusal(Code.ORIGIN_FORBIDDEN)
    idempotency = ask.idempotency()
    session_id = session_id_for(idempotency)
    if http.draining():
        raise Refusal(Code.DRAINING)
    await _check_room(http, session_id)
    token = mint_session_token(session_id)
    created = await http.conversations.create(
        session_id,
        agent_id=agent_id,
        agent_version=wire.agent_version_id(agent_id),
        display_name=wanted.display_name or "",
        label=holder.label,
        token_hash=digest(token),
        token_ttl_ms=http.settings.auth.session_token_ttl_s * 1000,
        idempotency=idempotency,
    )
    http.session_agents.remember(session_id, agent_id)
    body = session_body(await http.conversations.get(session_id), with_creator=False)
    body.session_token_expires_at = rfc3339(created.token_expires_ms)
    if created.replayed:
        body.session_token_id = created.token_id
        return json_reply(200, body)
    body.session_token = token
    return json_reply(201, body)


async def open_session(http: HttpServices, agent_name: str, label: str) -> tuple[str, str]:
    """A session for a page that this gateway serves itself, without an API key: its id and its token.

    Raises Refusal(NOT_FOUND, TOO_MANY_REQUESTS, DRAINING), BusUnavailable.
    """
    agent = next((agent for agent in http.agents.values() if agent.name == agent_name), None)
    if agent is None:
        raise Refusal(Code.NOT_FOUND, "there is no such agent")
    if http.draining():
        raise Refusal(Code.DRAINING)
    session_id = session_id_for(NO_KEY)
    await _check_room(http, session_id)
    token = mint_session_token(session_id)
    await http.conversations.create(
        session_id,
        agent_id=agent.id,
        agent_version=wire.agent_version_id(agent.id),
        display_name="",
        label=label,
        token_hash=digest(token),
        token_ttl_ms=http.settings.auth.session_token_ttl_s * 1000,
        idempotency=NO_KEY,
    )
    http.session_agents.remember(session_id, agent.id)
    return session_id, token


async def _check_room(http: HttpServices, session_id: str) -> None:
    """Raises Refusal(TOO_MANY_REQUESTS) when there are as many sessions as may be; a replay makes none."""
    most = http.settings.limits.max_sessions
    if await http.sessions.index.has_room(list(http.agents), most):
        return
    if await http.session_agents.find(session_id) is None:
        raise Refusal(Code.TOO_MANY_REQUESTS, f"there are as many sessions as there may be ({most})", retry_after_s=60)


def _key_holder(ask: Ask) -> ApiKeyHolder:
    assert isinstance(ask.principal, ApiKeyHolder)  # the operation needs a key
    return ask.principal


async def page(ask: Ask) -> Reply:
    """``GET /v1/sessions``: those of the agents that the key reaches."""
    http, holder = ask.http, _key_holder(ask)
    limit, after, ascending = ask.limit(_PAGE), ask.uuid_query("after"), ask.order()
    agents = [agent_id for agent_id in http.agents if may_reach_agent(holder, agent_id)]
    sessions, cursor = await http.sessions.index.page(agents, after=after, ascending=ascending, count=limit)
    return json_reply(200, wire.SessionPage([session_body(s, with_creator=True) for s in sessions], cursor))


async def get(ask: Ask) -> Reply:
    """``GET /v1/sessions/{sid}``."""
    return json_reply(200, session_body(await ask.http.conversations.get(ask.session_id), with_creator=True))


async def delete(ask: Ask) -> Reply:
    """``DELETE /v1/sessions/{sid}``: 404 where there is none, so that a wrong id does not look like success."""
    await ask.http.conversations.get(ask.session_id)
    await ask.http.conversations.delete(ask.session_id)
    ask.http.authenticator.forget(ask.session_id)
    ask.http.session_agents.forget(ask.session_id)
    return NO_CONTENT


async def mint(ask: Ask) -> Reply:
    """``POST …/tokens``: 201 with the token; 200 without it for a replayed key."""
    token = mint_session_token(ask.session_id)
    replayed, made = await ask.http.sessions.add_token(
        ask.session_id,
        digest(token),
        str(uuid4()),
        ask.http.settings.auth.session_token_ttl_s * 1000,
        ask.idempotency(),
    )
    expires = rfc3339(made.expires_ms)
    if replayed:
        return json_reply(200, wire.TokenReceipt(made.token_id, ask.session_id, expires))
    return json_reply(201, wire.NewToken(token, expires))


async def revoke(ask: Ask) -> Reply:
    """``DELETE …/tokens/{token_id}``: streams and sockets that stand on it end within a second."""
    if not await ask.http.sessions.revoke_token(ask.session_id, ask.uuid("token_id")):
        raise Refusal(Code.NOT_FOUND)
    ask.http.authenticator.forget(ask.session_id)
    return NO_CONTENT


async def agents(ask: Ask) -> Reply:
    """``GET /v1/agents``: those that the key reaches, in the order of the configuration."""
    holder, limit, after = _key_holder(ask), ask.limit(200), ask.uuid_query("after")
    ascending = ask.order()
    found = [a for a in ask.http.agents.values() if may_reach_agent(holder, a.id)]
    if ascending:
        found.reverse()
    start = 0
    if after is not None:
        start = next((place for place, agent in enumerate(found, 1) if agent.id == after), -1)
        if start < 0:
            raise Refusal(Code.INVALID_REQUEST, "after: names no agent")
    part = found[start : start + limit]
    items = [wire.Agent(agent.id, agent.name, WORKSPACE_ID, wire.AGENTS_SINCE) for agent in part]
    return json_reply(200, wire.AgentPage(items, items[-1].id if start + limit < len(found) else None))
