"""Questions to a session's agent from any node. Owns who waits for which reply, and for how long.

The owner's side is ``owners.py``. A question that gets lost on its way costs its asker a bounded wait and nothing else.
"""

import asyncio
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

import msgspec
from msgspec import UNSET

from gateway.bus.enquiries import EnquiryBus
from gateway.bus.nodes import Nodes
from gateway.bus.sessions import Sessions
from gateway.model.enquiries import Question, Reply, read_reply
from gateway.model.errors import Code, Refusal
from gateway.model.redaction import Redactor
from gateway.services.succession import Agent, Succession

ENQUIRY_S: Final = 30.0
"""How long an asker waits, the start of an agent included."""
WAITING: Final = 256
"""Questions of this node that wait at once; the next one is refused."""

_encode: Final = msgspec.json.Encoder().encode


class Enquiries:
    """The questions of one node."""

    def __init__(
        self,
        bus: EnquiryBus,
        sessions: Sessions,
        nodes: Nodes,
        succession: Succession,
        redactor: Redactor,
        *,
        agents: Mapping[str, Agent],
        wait_s: float = ENQUIRY_S,
    ) -> None:
        self._bus = bus
        self._sessions = sessions
        self._nodes = nodes
        self._succession = succession
        self._redactor = redactor
        self._agents = agents
        self.wait_s = wait_s
        self._waiting: dict[str, asyncio.Future[Reply]] = {}

    async def ask(self, session_id: str, question: Question) -> bytes:
        """The agent's answer as JSON (``model.enquiries``); with no agent running one is started.

        Raises Refusal(NOT_FOUND), Refusal(CONFLICT) while a run is active, Refusal(INVALID_REQUEST) for what the agent
        does not know, Refusal(NO_CAPACITY, CHILD_TIMEOUT) with the time after which to try again, BusUnavailable.
        """
        self._check(question)
        if len(self._waiting) >= WAITING:
            raise Refusal(Code.NO_CAPACITY, "too many questions to agents are waiting here")
        session = await self._sessions.get(session_id)
        agent = self._agents.get(session.agent_id)
        if agent is None:
            raise Refusal(Code.CONFLICT, "the session's agent is not configured any more")
        ask_id = uuid4().hex
        coming = self._waiting[ask_id] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self.wait_s):
                epoch = await self._sent(session_id, agent, ask_id, _encode(question))
                reply = await coming
        except TimeoutError:
            raise Refusal(Code.CHILD_TIMEOUT) from None
        finally:
            del self._waiting[ask_id]
        if reply.epoch < epoch:
            raise Refusal(Code.NO_CAPACITY, "the session has changed hands meanwhile", retry_after_s=1)
        if reply.refused is not None:
            refused = reply.refused
            raise Refusal(Code[refused.code], refused.message, retry_after_s=refused.retry_after_s)
        assert reply.answer is not UNSET, "a reply is an answer or a refusal"
        return bytes(reply.answer)

    def _check(self, question: Question) -> None:
        """Names and cursors are the agent's own and cannot be changed on their way to it, so what is no such thing and
        holds a secret goes no further."""
        for field, value in zip(question.__struct_fields__, msgspec.structs.astuple(question), strict=True):
            if isinstance(value, str) and self._redactor.finds(value):
                raise Refusal(Code.INVALID_REQUEST, f"{field}: it looks like a secret")

    async def _sent(self, session_id: str, agent: Agent, ask_id: str, question: bytes) -> int:
        """Sends it to an owner that lives: that owner's epoch."""
        for _ in range(2):
            candidate = self._succession.candidate(agent)
            owner = await self._bus.ask(session_id, ask_id, question, candidate, shared=agent.shared)
            if self._nodes.lives(owner.incarnation):
                return owner.epoch
            await self._succession.succeed(session_id, agent, owner)
        raise Refusal(Code.NO_CAPACITY, "the node that keeps this session's work is away")

    def came(self, ask_id: str, reply: bytes) -> None:
        """A reply from an owner; one that nobody waits for any more is dropped."""
        coming = self._waiting.get(ask_id)
        if coming is not None and not coming.done():
            coming.set_result(read_reply(reply))
