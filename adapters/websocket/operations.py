"""What each op does. Owns who may do it and the body of its answer; knows nothing of frames, order or the socket.

``begin`` is for what goes to Redis at once and is answered by a callback, so that a call costs no task: the lists,
acks, answers and leaves of clients, in the order in which they came. ``perform`` is for everything else.
"""

from asyncio import Future
from dataclasses import dataclass
from typing import Final, cast
from uuid import uuid4

import msgspec

from adapters.websocket import protocol, wire
from adapters.websocket.attachments import HELD, Attachments
from adapters.websocket.protocol import BadAnswer, Command, Held
from adapters.websocket.services import SocketServices
from gateway.auth import origins, tokens
from gateway.auth.idempotency import covering_input
from gateway.auth.principals import ApiKeyHolder, Principal, may_reach_agent, require_session
from gateway.bus.errors import BusUnavailable
from gateway.bus.sessions import NO_KEY, Session
from gateway.bus.store import rfc3339
from gateway.model.errors import Code, Refusal
from gateway.model.tools import parse_tools
from gateway.services.offers import Offer

DIRECT: Final = (wire.ReplaceTools, wire.Ack, wire.Result, wire.Leave)
TALK: Final = (wire.Input, wire.Cancel, wire.Approve)
"""Ops that speak to the agent: in their order among themselves, and never in the way of answers."""


@dataclass(frozen=True, slots=True)
class Peer:
    """What the handshake said. ``host`` has passed the check of hosts; ``address`` is empty when there is none."""

    credential: str | None
    origin: str | None
    host: str
    address: str


class _Offered(msgspec.Struct):
    name: str
    expires_at: str | None


_read_offered: Final = msgspec.json.Decoder(_Offered).decode


class Operations:
    """Of one socket."""

    __slots__ = ("_attachments", "_peer", "_services")

    def __init__(self, services: SocketServices, attachments: Attachments, peer: Peer) -> None:
        self._services = services
        self._attachments = attachments
        self._peer = peer

    # --- at once

    def begin(self, command: Command) -> Future[object]:
        """Sends a client's op now. Raises Refusal."""
        op, session_id = command.op, command.session_id
        self._attached(session_id)
        match op:
            case wire.Ack():
                return self._services.answers.send_ack(session_id, op.client_id, op.call_id)
            case wire.Result():
                return self._services.answers.send_answer(
                    session_id,
                    op.client_id,
                    op.call_id,
                    text=op.text,
                    is_error=bool(op.is_error),
                    structured=command.structured,
                )
            case wire.ReplaceTools():
                return self._services.offers.send_replace(session_id, op.client_id, parse_tools(op.tools))
            case wire.Leave():
                return self._services.offers.send_leave(session_id, op.client_id)
            case _:
                raise TypeError("this op is performed")

    def settled(self, command: Command, reply: object) -> bytes:
        """The body of the answer to an op that ``begin`` sent, from what Redis said."""
        match command.op:
            case wire.Ack() | wire.ReplaceTools():
                return cast("bytes", reply)
            case wire.Leave():
                self._attachments.let_go(command.op.client_id)
                return protocol.EMPTY
            case _:
                return protocol.EMPTY

    # --- with several steps

    async def perform(self, what: Command | BadAnswer) -> bytes | msgspec.Struct:
        """Does it: the body of the answer. Raises Refusal, BusUnavailable."""
        if isinstance(what, BadAnswer):
            return await self._refuse(what)
        op, session_id = what.op, what.session_id
        if isinstance(op, wire.Ping):
            return wire.Time(rfc3339(self._services.now_ms()))
        if isinstance(op, wire.Detach):
            there = self._attachments.by_session.get(session_id)
            if there is not None:
                self._attachments.end(there)
            return protocol.EMPTY
        principal = self._attached(session_id)
        match op:
            case wire.Register():
                return await self._register(session_id, op)
            case wire.Resume():
                return await self._resume(session_id, op)
            case wire.Input():
                return await self._input(session_id, op, principal)
            case wire.Cancel():
                return wire.Cancelled(await self._services.conversations.cancel(session_id, NO_KEY))
            case wire.Approve():
                return await self._approve(session_id, op, principal)
            case _:
                return await self._patiently(what)

    async def _patiently(self, command: Command) -> bytes:
        """An op that ``begin`` could not bring to Redis: it waits until the bus is back, as over HTTP."""
        op, session_id, services = command.op, command.session_id, self._services
        match op:
            case wire.Ack():
                return await services.answers.ack(session_id, op.client_id, op.call_id)
            case wire.Result():
                await services.answers.answer(
                    session_id,
                    op.client_id,
                    op.call_id,
                    text=op.text,
                    is_error=bool(op.is_error),
                    structured=command.structured,
                )
            case wire.ReplaceTools():
                return await services.offers.replace(session_id, op.client_id, parse_tools(op.tools))
            case wire.Leave():
                try:
                    await services.offers.leave(session_id, op.client_id)
                except Refusal as why:
                    if why.code is not Code.NOT_FOUND:  # it has left: the first try may have come through
                        raise
                self._attachments.let_go(op.client_id)
            case _:
                raise TypeError("this op is not of a client")
        return protocol.EMPTY

    def _attached(self, session_id: str) -> Principal:
        attachment = self._attachments.by_session.get(session_id)
        if attachment is None:
            raise Refusal(Code.NOT_FOUND, "session_id: this socket is not attached to such a session")
        return attachment.principal

    async def attach(self, op: wire.Attach, session_id: str) -> tuple[wire.Attached, str]:
        """Attaches: the answer's body and the session, whose events follow once it is answered.

        Raises Refusal(NOT_FOUND) alike for a session that there is not and for a credential that does not reach it,
        Refusal(TOO_MANY_REQUESTS) once an address has been refused too often, Refusal(ORIGIN_FORBIDDEN),
        BusUnavailable.
        """
        credential = op.token if op.token is not None else self._peer.credential
        try:
            principal = await self._services.authenticator.authenticate(credential)
        except Refusal:
            # As over HTTP: counted together, and whoever has a good credential is let in from whatever address.
            if credential:
                self._services.failures.take(self._peer.address)
            raise Refusal(Code.NOT_FOUND) from None
        try:
            require_session(principal, session_id)
            session = await self._services.conversations.get(session_id)
        except Refusal:
            raise Refusal(Code.NOT_FOUND) from None
        if not may_reach_agent(principal, session.agent_id):
            raise Refusal(Code.NOT_FOUND)
        self._check_origin(session)
        attachment = await self._attachments.attach(session_id, principal, credential or "", op.after_seq)
        return wire.Attached(attachment.sent, "active" if session.active else "idle"), session_id

    def _check_origin(self, session: Session) -> None:
        settings, peer = self._services.settings, self._peer
        agent = settings.agent(session.agent_id)
        if not origins.allowed(
            peer.origin,
            agent.allowed_origins if agent is not None else (),
            own=origins.own_origin(settings.server.public_url, peer.host),
            demo_agent=session.agent_id == self._services.demo_agent_id,
        ):
            raise Refusal(Code.ORIGIN_FORBIDDEN)

    async def _register(self, session_id: str, op: wire.Register) -> wire.Registered:
        if len(self._attachments.held) >= HELD:
            raise Refusal(Code.CONFLICT, f"this socket holds as many registrations as it may ({HELD})")
        ttl_s = op.lifetime.data.seconds if isinstance(op.lifetime, wire.Ttl) else 0
        offer = Offer(op.name, ttl_s, parse_tools(op.tools) if op.tools is not None else (), op.key or "")
        resume_key = tokens.mint_resume_key()
        held = Held(str(uuid4()), session_id, tokens.digest(resume_key), self._attachments.holder)
        try:
            reply = await self._services.offers.register(
                session_id, held.client_id, offer, holder=held.holder, resume_hash=held.resume_hash
            )
        except BusUnavailable as error:
            if error.maybe_applied:  # nobody will ever know its id: its lifetime counts from now
                self._attachments.release_soon([held])
            raise
        self._attachments.hold(held)
        offered = _read_offered(reply)
        return wire.Registered(held.client_id, offered.name, offered.expires_at, resume_key)

    async def _resume(self, session_id: str, op: wire.Resume) -> wire.Resumed:
        resume_hash = tokens.digest(op.resume_key)
        held = Held(op.client_id, session_id, resume_hash, self._attachments.holder)
        try:
            resumed = await self._services.offers.resume(session_id, op.client_id, resume_hash, held.holder)
        except BusUnavailable as error:
            if error.maybe_applied:
                self._attachments.release_soon([held])
            raise
        self._attachments.hold(held)
        return wire.Resumed(resumed.name, None, [msgspec.Raw(call) for call in resumed.calls])

    async def _refuse(self, bad: BadAnswer) -> bytes:
        self._attached(bad.session_id)
        await self._services.answers.refuse(bad.session_id, bad.client_id, bad.call_id, bad.why)
        raise bad.why

    async def _input(self, session_id: str, op: wire.Input, principal: Principal) -> wire.Submitted:
        key = NO_KEY
        if op.idempotency_key is not None:
            key = covering_input(principal, session_id, op.idempotency_key, op.text)
        return wire.Submitted("new_run", await self._services.conversations.submit(session_id, op.text, key))

    async def _approve(self, session_id: str, op: wire.Approve, principal: Principal) -> bytes:
        if op.decision == "allow" and op.message is not None:
            raise Refusal(Code.INVALID_REQUEST, "message: goes with deny alone")
        if not isinstance(principal, ApiKeyHolder):
            session = await self._services.conversations.get(session_id)
            agent = self._services.settings.agent(session.agent_id)
            if agent is None or not agent.tokens_may_approve:
                raise Refusal(Code.FORBIDDEN, "approving needs an API key")
        by = principal.label if isinstance(principal, ApiKeyHolder) else "session token"
        return await self._services.conversations.approve(session_id, op.call_id, op.decision, op.message, by, NO_KEY)
