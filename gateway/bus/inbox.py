"""A node incarnation's inbox: what its sessions are told. Owns the messages' form; each is only a hurry-up.

Whatever a message says stands in the session's keys too, so after a gap of the subscription the owner reads those
(redis.md: no event depends on a push). Questions and replies alone stand nowhere else: whoever asks waits within a
bound. A restarted node has a new incarnation and never reads its predecessor's mail.
"""

from collections.abc import Callable
from typing import Final, Protocol

from gateway.bus.enquiries import Asked, read_asked
from gateway.bus.replies import all_answered
from gateway.bus.store import Store

_SID_END: Final = 37  # a kind's letter and a canonical UUID


class OwnerCalls(Protocol):
    """Who is told. Each call returns at once."""

    def input_waiting(self, session_id: str) -> None:
        """An input was queued, or the session was given to this node."""
        ...

    def clients_changed(self, session_id: str) -> None:
        """A registration came, went, or has another list."""
        ...

    def answered(self, session_id: str, call_id: str, answer: bytes) -> None:
        """A call was answered; ``answer`` is what was given to ``Calls.answer``."""
        ...

    def failed(self, session_id: str, call_id: str, reason: str, outcome: str, said: bytes) -> None:
        """A call failed by somebody else's step (or by this owner's own). ``said``: what the model is told, as a JSON
        string, where that is more than reason and outcome say; else empty."""
        ...

    def due_changed(self, session_id: str, call_id: str, due_ms: int) -> None:
        """A call waits for an earlier instant now: its answer was refused and may be corrected until then."""
        ...

    def cancel(self, session_id: str, run_id: str) -> None:
        """Somebody wants the run to end."""
        ...

    def approval_answered(self, session_id: str, approval_id: str, decision: str) -> None:
        """An approval was allowed or denied."""
        ...

    def asked(self, session_id: str, asked: Asked) -> None:
        """Somebody has a question to the session's agent and waits for the reply."""
        ...

    def deleted(self, session_id: str) -> None:
        """The session is gone."""
        ...


class Inbox:
    """Subscribes this incarnation in every partition and hands on what comes. ``credentials_changed`` is told of a
    session whose tokens must be looked up again, ``replied`` of the reply to a question (its id, the reply)."""

    def __init__(
        self,
        store: Store,
        incarnation: str,
        owner: OwnerCalls,
        credentials_changed: Callable[[str], None],
        replied: Callable[[str, bytes], None],
    ) -> None:
        self._store = store
        self._incarnation = incarnation
        self._owner = owner
        self._credentials_changed = credentials_changed
        self._replied = replied

    async def open(self) -> None:
        """Returns when every subscription is confirmed."""
        keys, topology = self._store.keys, self._store.topology
        waits = [topology.subscribe(keys.inbox(tag, self._incarnation), self._receive) for tag in keys.tags]
        waits += [topology.subscribe(keys.all_nodes(tag), self._receive) for tag in keys.tags]
        await all_answered(waits)

    def _receive(self, message: bytes) -> None:
        session_id = message[1:_SID_END].decode()
        body = message[_SID_END + 1 :]
        owner = self._owner
        match message[:1]:
            case b"R":
                call_id, _, answer = body.partition(b" ")
                owner.answered(session_id, call_id.decode(), answer)
            case b"I":
                owner.input_waiting(session_id)
            case b"C":
                owner.clients_changed(session_id)
            case b"F":
                call_id, reason, outcome, *said = body.split(b" ", 3)
                owner.failed(session_id, call_id.decode(), reason.decode(), outcome.decode(), b"".join(said))
            case b"D":
                call_id, due = body.decode().split(" ")
                owner.due_changed(session_id, call_id, int(due))
            case b"K":
                owner.cancel(session_id, body.decode())
            case b"A":
                approval_id, decision = body.decode().split(" ")
                owner.approval_answered(session_id, approval_id, decision)
            case b"Q":
                owner.asked(session_id, read_asked(body))
            case b"W":
                ask_id, _, reply = body.partition(b" ")
                self._replied(ask_id.decode(), reply)
            case b"X":
                owner.deleted(session_id)
            case b"T":
                self._credentials_changed(session_id)
            case _:
                raise ValueError("a message of an unknown kind came to the inbox")
