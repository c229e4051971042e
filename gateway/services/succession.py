"""Who owns a session next: placement, and what happens to sessions whose owner is gone (bridge 9, 10).

Owns the choice. That a session changes hands is one script, so whoever races here, one owner comes out of it; an owner
that was replaced is fenced and changes nothing more.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.bus.nodes import Nodes
from gateway.bus.sessions import Owner, Sessions, read_orphans
from gateway.model.errors import Code, Refusal
from gateway.model.redaction import trusted
from gateway.observe.log import get_logger

log = get_logger("succession")

_AT_ONCE: Final = 100  # orphans of one partition and round
_DOUBTS: Final = 10_000
LOST_RUN: Final = trusted("owner_gone: the node that ran it is gone")


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent as sessions need it: ``shared`` is its storage rule (bridge 9)."""

    agent_id: str
    name: str
    shared: bool


class Succession:
    """Chooses owners. ``own`` is this node as one, None without the role."""

    def __init__(
        self, sessions: Sessions, nodes: Nodes, *, agents: Mapping[str, Agent], own: Owner | None, home_wait_s: float
    ) -> None:
        self._sessions = sessions
        self._nodes = nodes
        self._agents = agents
        self._own = own
        self.home_wait_ms: Final = int(home_wait_s * 1000)
        self.may_declare: Callable[[], bool] = lambda: True
        """Whether this node may hold another for dead now; the patrol knows."""
        self._doubts: dict[str, Agent] = {}

    def candidate(self, agent: Agent) -> Owner | None:
        """Who is to own a session that nobody owns: this node, or the one with most free places."""
        if self._own is not None and self._nodes.takes_work(self._own.incarnation):
            return self._own
        node = self._nodes.for_agent(agent.name)
        return Owner(node.info.name, node.incarnation, 0) if node is not None else None

    async def succeed(self, session_id: str, agent: Agent, gone: Owner) -> None:
        """The owner is gone: its successor by the storage rule takes the session over, or it waits for its home.

        What the owner left behind is settled at once, whether there is a successor or not. While this node may hold
        nobody for dead (it was out of contact itself) nothing happens; it looks again when it may.
        """
        if gone.incarnation and not self.may_declare():
            if len(self._doubts) < _DOUBTS:
                self._doubts[session_id] = agent
            else:
                log.error("too many sessions wait for a word on their owners", session_id=session_id)
            return
        heir = self._heir(agent, gone)
        if heir is None and not gone.incarnation:
            return  # it waits already
        epoch = await self._sessions.claim(
            session_id, gone.incarnation, heir, lost_run=LOST_RUN, home_wait_ms=self.home_wait_ms
        )
        if epoch is not None:
            log.info(
                "a session changes hands",
                session_id=session_id,
                home=gone.node_name,
                heir=heir.node_name if heir else None,
            )

    def _heir(self, agent: Agent, gone: Owner) -> Owner | None:
        home = self._nodes.named(gone.node_name) if gone.node_name else None
        if home is not None and agent.name in home.info.agents:
            return Owner(home.info.name, home.incarnation, 0)
        if agent.shared or not gone.node_name:
            return self.candidate(agent)
        return None

    async def give_up(self, session_id: str) -> None:
        """This node goes away and its session is at rest: its successor takes over, or it waits for its home."""
        assert self._own is not None
        session = await self._sessions.get(session_id)
        agent = self._agents.get(session.agent_id)
        node = self._nodes.for_agent(agent.name) if agent is not None and agent.shared else None
        heir = Owner(node.info.name, node.incarnation, 0) if node is not None else None
        await self._sessions.claim(
            session_id, self._own.incarnation, heir, lost_run=None, home_wait_ms=self.home_wait_ms
        )

    async def look_after(self, tags: Sequence[str]) -> None:
        """One round over some partitions: every session there with work and no living owner goes to its successor.

        Raises BusUnavailable. Called only while this node may hold others for dead.
        """
        await self._resolve_doubts()
        gone = self._nodes.gone
        waits = [self._sessions.orphans(tag, gone, _AT_ONCE) for tag in tags]
        for reply in await asyncio.gather(*waits, return_exceptions=True):
            if isinstance(reply, BaseException):
                raise reply
            for session_id, owner in read_orphans(reply):
                await self._look_after_one(session_id, owner)

    async def _resolve_doubts(self) -> None:
        while self._doubts:
            session_id = next(iter(self._doubts))
            try:
                owner = await self._sessions.owner(session_id)
                if not self._nodes.lives(owner.incarnation):
                    await self._look_after_one(session_id, owner)
            except Refusal as refusal:
                if refusal.code is not Code.NOT_FOUND:
                    raise
            del self._doubts[session_id]

    async def _look_after_one(self, session_id: str, owner: Owner) -> None:
        try:
            session = await self._sessions.get(session_id)
            agent = self._agents.get(session.agent_id)
            if agent is not None:
                await self.succeed(session_id, agent, owner)
        except Refusal as refusal:
            if refusal.code is not Code.NOT_FOUND:
                raise
