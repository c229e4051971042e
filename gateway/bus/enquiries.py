"""Questions to a session's owner and its replies, between nodes. Owns their way; knows no question and keeps nothing.

Both are messages alone: whoever asks waits within a bound, and asks again when one was lost.
"""

from dataclasses import dataclass
from typing import Final, cast

from gateway.bus.sessions import Owner
from gateway.bus.store import Store


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as its owner gets it. ``asker`` is the incarnation that waits, ``epoch`` the owner's when it was
    asked."""

    ask_id: str
    asker: str
    epoch: int
    question: bytes


def read_asked(body: bytes) -> Asked:
    """Of an inbox message: ``epoch ask_id asker question``."""
    epoch, ask_id, asker, question = body.split(b" ", 3)
    return Asked(ask_id.decode(), asker.decode(), int(epoch), question)


class EnquiryBus:
    """One node's questions and replies."""

    def __init__(self, store: Store, incarnation: str) -> None:
        self._store: Final = store
        self._incarnation: Final = incarnation

    async def ask(
        self, session_id: str, ask_id: str, question: bytes, candidate: Owner | None, *, shared: bool
    ) -> Owner:
        """Sends a question to the session's owner; where nobody owns it ``candidate`` does from now on, if it may.

        Raises Refusal(NOT_FOUND), Refusal(CONFLICT) while a run is active or waits, Refusal(NO_CAPACITY) where no node
        may own the session now, BusUnavailable.
        """
        reply = await self._store.run(
            session_id,
            self._store.scripts.enquire,
            candidate.node_name if candidate else "",
            candidate.incarnation if candidate else "",
            int(shared),
            b"%s %s %s" % (ask_id.encode(), self._incarnation.encode(), question),
            again=True,
        )
        incarnation, name, epoch = cast("list[bytes]", reply)
        return Owner(name.decode(), incarnation.decode(), int(epoch))

    async def reply(self, session_id: str, asked: Asked, reply: bytes) -> None:
        """Sends a reply to whoever asked. Raises BusUnavailable."""
        keys, topology = self._store.keys, self._store.topology
        tag = keys.session(session_id).tag
        message = b"W%s %s %s" % (session_id.encode(), asked.ask_id.encode(), reply)
        publish = "SPUBLISH" if topology.sharded else "PUBLISH"
        await topology.for_partition(tag).call(publish, keys.inbox(tag, asked.asker), message)
