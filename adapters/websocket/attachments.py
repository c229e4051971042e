"""What one socket is to the sessions: attachments, and registrations that it holds. Owns their beginning and end.

A registration is held while its session is attached: it has no lapse time. When the attachment ends, or the socket, its
lifetime counts from then (websocket protocol, "Presence"). An attachment that lost its token keeps its place and what
it held for the ``attach`` that may follow.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Final

from adapters.websocket import protocol, wire
from adapters.websocket.outbound import Attachment, Outbound
from adapters.websocket.protocol import Held
from adapters.websocket.services import SocketServices
from gateway.auth.principals import Principal, TokenHolder
from gateway.bus.errors import BusUnavailable
from gateway.model import limits
from gateway.model.errors import Code, Refusal
from gateway.observe import metrics
from gateway.observe.log import get_logger
from gateway.services.feeds import Reader
from gateway.services.pushes import Signal

log = get_logger("websocket")

HELD: Final = 2_048
"""Registrations that one socket may hold: 32 of each of its sessions would be four times as many."""

_RELEASE_TRIES: Final = 60
_RELEASE_WAIT_S: Final = 1.0


class Attachments:
    """Of one socket, ``number`` on this node."""

    __slots__ = (
        "_generations",
        "_holder",
        "_looking",
        "_lost",
        "_number",
        "_outbound",
        "_places",
        "_services",
        "by_session",
        "closed",
        "held",
    )

    def __init__(self, services: SocketServices, outbound: Outbound, number: int) -> None:
        self.by_session: Final[dict[str, Attachment]] = {}
        self.held: Final[dict[str, Held]] = {}
        self.closed = False
        self._services = services
        self._outbound = outbound
        self._number = number
        self._generations = count(1)
        self._holder = self._next_holder()
        self._places: dict[str, int] = {}  # of attachments that lost their token
        self._lost: dict[str, list[Held]] = {}  # what those held
        self._looking: dict[Attachment, None] = {}  # an empty set takes three times what an empty dict does

    def _next_holder(self) -> str:
        # A new name each time that something is given up: a release that comes late must not undo what came after it.
        return f"{self._services.incarnation}:{self._number}.{next(self._generations)}"

    @property
    def holder(self) -> str:
        """Under what name this socket holds registrations from now on."""
        return self._holder

    # --- attachments

    async def attach(self, session_id: str, principal: Principal, credential: str, after: int | None) -> Attachment:
        """The attachment, not started unless it was there. Raises Refusal, BusUnavailable."""
        there = self.by_session.get(session_id)
        if there is not None and after is None:
            there.principal, there.credential = principal, credential
            self._watch(there)
            return there
        if there is None and len(self.by_session) >= limits.SOCKET_SESSIONS:
            raise Refusal(
                Code.CONFLICT, f"this socket is attached to as many sessions as it may ({limits.SOCKET_SESSIONS})"
            )
        attachment = Attachment(session_id, principal, credential)
        start = after if after is not None else self._places.get(session_id)
        attachment.reader = reader = await self._services.feeds.open(
            session_id, start, deltas=True, on_ready=partial(self._outbound.ready, attachment)
        )
        try:
            await self._check_place(reader)
            again = await self._take_up_lost(session_id)
        except BaseException:
            reader.close()
            raise
        if self.closed:
            reader.close()
            self.release_soon(again)
            raise Refusal(Code.DRAINING)
        if there is not None:
            self._close(there)
        attachment.sent = reader.position
        self._places.pop(session_id, None)
        self._lost.pop(session_id, None)
        self.by_session[session_id] = attachment
        self.held.update((held.client_id, held) for held in again)
        metrics.READERS.labels("websocket").inc()
        self._watch(attachment)
        return attachment

    async def _check_place(self, reader: Reader) -> None:
        if reader.position > reader.head:
            await self._services.feeds.refresh(reader.session_id)
        if reader.position > reader.head:
            raise Refusal(Code.INVALID_REQUEST, "after_seq: above the last event of the log")

    def _watch(self, attachment: Attachment) -> None:
        """The token's end is kept by this node's timers."""
        key = self._timer(attachment.session_id)
        if isinstance(attachment.principal, TokenHolder):
            left_ms = attachment.principal.expires_ms - self._services.now_ms()
            at = asyncio.get_running_loop().time() + left_ms / 1000
            self._services.timers.arm(key, at, partial(self._expired, attachment))
        else:
            self._services.timers.disarm(key)

    def _timer(self, session_id: str) -> str:
        return f"socket {self._number} {session_id}"

    def _expired(self, attachment: Attachment, _: str) -> None:
        if not attachment.closed:
            self.end(attachment, "token_expired")

    def on_signal(self, attachment: Attachment, signal: Signal) -> None:
        """A reader was told something that is no event."""
        match signal.kind:
            case "deleted":
                self.end(attachment, "deleted")
            case "token":
                if isinstance(attachment.principal, TokenHolder) and attachment.principal.token_id == signal.detail:
                    self.end(attachment, "token_revoked")
            case "taken":
                holder, _, client_id = signal.detail.partition(" ")
                held = self.held.get(client_id)
                if held is not None and held.holder == holder:
                    self._lose(attachment.session_id, held)
            case "gap":
                if attachment not in self._looking:
                    self._looking[attachment] = None
                    self._services.tasks.spawn("websocket.look", self._look_again(attachment))
            case _:
                log.warning("a signal of an unknown kind", session_id=attachment.session_id)

    def end(self, attachment: Attachment, reason: wire.CloseReason | None = None) -> None:
        """Ends an attachment: with a reason the client is told it, without one the client asked for it."""
        session_id = attachment.session_id
        self._close(attachment)
        held = [held for held in self.held.values() if held.session_id == session_id]
        for one in held:
            del self.held[one.client_id]
        if reason in ("token_expired", "token_revoked"):
            self._places[session_id] = attachment.sent
            if held:
                self._lost[session_id] = held
        if held and reason != "deleted":
            self.release_soon(held)
        if reason is not None:
            self._outbound.answer(protocol.closed(session_id, reason))

    def _close(self, attachment: Attachment) -> None:
        """Takes an attachment away; the registrations of its session stay as they are."""
        session_id = attachment.session_id
        if attachment.reader is not None and not attachment.reader.closed:
            attachment.reader.close()
            metrics.READERS.labels("websocket").dec()
        self._outbound.forget(attachment)
        self._services.timers.disarm(self._timer(session_id))
        if self.by_session.get(session_id) is attachment:
            del self.by_session[session_id]

    async def _look_again(self, attachment: Attachment) -> None:
        """Signals may have been missed: is the token still good, and does this socket hold what it held?"""
        session_id = attachment.session_id
        try:
            if isinstance(attachment.principal, TokenHolder):
                await self._services.authenticator.authenticate(attachment.credential)
            for held in [held for held in self.held.values() if held.session_id == session_id]:
                if not await self._services.offers.hold(session_id, held.client_id, held.holder):
                    self._lose(session_id, held)
                elif self.held.get(held.client_id) is not held:  # given up while it was asked about
                    self.release_soon([held])
        except Refusal:
            if not attachment.closed:
                self.end(attachment, "token_revoked")
        except BusUnavailable as error:  # the next gap asks again, and one comes once the bus is back
            log.warning("an attachment could not be looked at again", session_id=session_id, error=error)
        finally:
            self._looking.pop(attachment, None)

    def _lose(self, session_id: str, held: Held) -> None:
        """Another socket has a registration by now, or it has ended."""
        if self.held.get(held.client_id) is held:
            del self.held[held.client_id]
            self._outbound.answer(protocol.closed(session_id, "taken_over", held.client_id))

    # --- registrations

    def hold(self, held: Held) -> None:
        """This socket made or resumed a registration. Where it has ended meanwhile, the lifetime counts at once."""
        if self.closed or held.session_id not in self.by_session:
            self.release_soon([held])
        else:
            self.held[held.client_id] = held

    def let_go(self, client_id: str) -> None:
        """A registration has left."""
        self.held.pop(client_id, None)

    async def _take_up_lost(self, session_id: str) -> list[Held]:
        """What an earlier attachment held when its token ended, unless it lapsed or another socket has it by now."""
        again: list[Held] = []
        try:
            for lost in self._lost.get(session_id, ()):
                holder = self._holder
                try:
                    await self._services.offers.resume(
                        session_id, lost.client_id, lost.resume_hash, holder, only_if_free=True
                    )
                except Refusal:
                    continue
                again.append(Held(lost.client_id, session_id, lost.resume_hash, holder))
        except BaseException:
            self.release_soon(again)
            raise
        return again

    def release_soon(self, held: Sequence[Held]) -> None:
        """Lets the lifetimes of these count, in the background."""
        self._holder = self._next_holder()
        if held:
            self._services.tasks.spawn("websocket.release", self._release(list(held)))

    async def _release(self, held: list[Held]) -> None:
        """Tries for a minute; what Redis has not heard by then is held until this node's lease has ended."""
        for _ in range(_RELEASE_TRIES):
            sent = [self._services.offers.release(one.session_id, one.client_id, one.holder) for one in held]
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
            held = [one for one, outcome in zip(held, outcomes, strict=True) if isinstance(outcome, BusUnavailable)]
            for outcome in outcomes:
                if isinstance(outcome, BaseException) and not isinstance(outcome, (BusUnavailable, Refusal)):
                    log.error("a registration could not be released", error=outcome)
            if not held:
                return
            await asyncio.sleep(_RELEASE_WAIT_S)
        log.error("registrations were not released: the bus was away", count=len(held))

    def close(self) -> None:
        """The socket is gone: everything that it had begins to end. Idempotent."""
        if self.closed:
            return
        self.closed = True
        for attachment in list(self.by_session.values()):
            self._close(attachment)
        held = list(self.held.values())
        self.held.clear()
        self.release_soon(held)
