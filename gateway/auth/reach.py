"""From a session to its agent, and from there to who may reach it. Owns a bounded cache; reads no header.

A session's agent never changes, so what was found is believed until the session is deleted. An unknown session is not
remembered: it may be made a moment later.
"""

from collections import OrderedDict
from typing import Final

from gateway.bus.sessions import Sessions
from gateway.model.errors import Refusal

_CACHED: Final = 50_000


class SessionAgents:
    """The agent of each session."""

    def __init__(self, sessions: Sessions, *, bound: int = _CACHED) -> None:
        self._sessions = sessions
        self._bound = bound
        self._found: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    async def find(self, session_id: str) -> str | None:
        """The id of the session's agent, None for an unknown session. Raises BusUnavailable."""
        agent_id = self._found.get(session_id)
        if agent_id is None:
            try:
                agent_id = (await self._sessions.get(session_id)).agent_id
            except Refusal:
                return None
            self.remember(session_id, agent_id)
        return agent_id

    def remember(self, session_id: str, agent_id: str) -> None:
        """A session was made here."""
        self._found[session_id] = agent_id
        if len(self._found) > self._bound:
            self._found.popitem(last=False)

    def forget(self, session_id: str) -> None:
        """The session was deleted."""
        self._found.pop(session_id, None)
