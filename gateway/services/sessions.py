"""Conversations as their clients drive them: create, speak, cancel, approve, end. Owns what is checked before Redis.

It decides who owns a session where nobody does; how its owner runs it is the owner's affair (``owners.py``).
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Literal
from uuid import UUID, uuid4, uuid5

from gateway.bus.errors import BusUnavailable
from gateway.bus.nodes import Nodes
from gateway.bus.sessions import Created, Idempotency, Session, Sessions
from gateway.model import events, limits
from gateway.model.clean import ModelText
from gateway.model.errors import Code, Refusal
from gateway.model.redaction import Redactor, trusted
from gateway.model.text import clean_text, escaped_bytes
from gateway.observe.log import get_logger
from gateway.services.feeds import Feeds, Reader
from gateway.services.pushes import Signal
from gateway.services.succession import Agent, Succession

log = get_logger("sessions")

CANCEL_S: Final = 10.0
"""How long a cancel waits for the run's end before it answers all the same (bridge 8)."""

# Room for a frame's envelope, method and session id around the prompt.
_PROMPT_FRAME_BYTES: Final = limits.CHILD_INPUT_FRAME_BYTES - 512
_ENDS: Final = (b'"type":"run_completed"', b'"type":"run_cancelled"', b'"type":"run_failed"')
_SESSIONS_OF_KEYS: Final = UUID("6f1d1a52-8a0f-5d0b-9d0e-2f3d2a6c9b41")


def session_id_for(idempotency: Idempotency) -> str:
    """The id of a session: made from the idempotency key where there is one, so that a race of one key on two nodes
    meets in one partition, and its second script finds what the first one did."""
    return str(uuid5(_SESSIONS_OF_KEYS, idempotency.key)) if idempotency.key else str(uuid4())


def checked_prompt(text: str, redactor: Redactor) -> ModelText:
    """A prompt as the child takes it. Raises Refusal(INVALID_REQUEST) for a blank one or one over the child's bounds,
    before anything is written (bridge 8)."""
    if not text.strip():
        raise Refusal(Code.INVALID_REQUEST, "text: must not be blank")
    if len(text.encode(errors="surrogatepass")) > limits.CHILD_PROMPT_BYTES:
        raise Refusal(Code.INVALID_REQUEST, f"text: more than {limits.CHILD_PROMPT_BYTES} bytes of UTF-8")
    prompt = redactor.model_text(clean_text(text))
    if not prompt.strip():
        raise Refusal(Code.INVALID_REQUEST, "text: holds nothing but control characters")
    if len(prompt.encode()) > limits.CHILD_PROMPT_BYTES or escaped_bytes(prompt) > _PROMPT_FRAME_BYTES:
        raise Refusal(Code.INVALID_REQUEST, "text: too large for the agent once it is encoded")
    return prompt


class Conversations:
    """All sessions, as their clients see them."""

    def __init__(
        self,
        sessions: Sessions,
        feeds: Feeds,
        nodes: Nodes,
        redactor: Redactor,
        *,
        agents: Mapping[str, Agent],
        succession: Succession,
    ) -> None:
        self._sessions = sessions
        self._feeds = feeds
        self._nodes = nodes
        self._redactor = redactor
        self._agents = agents
        self._succession = succession

    def agent(self, agent_id: str) -> Agent | None:
        """The configured agent of that id."""
        return self._agents.get(agent_id)

    async def create(
        self,
        session_id: str,
        *,
        agent_id: str,
        agent_version: str,
        display_name: str,
        label: str,
        token_hash: str,
        token_ttl_ms: int,
        idempotency: Idempotency,
    ) -> Created:
        """Makes a session with its first token. Raises Refusal(NOT_FOUND) for an agent that is not configured."""
        if agent_id not in self._agents:
            raise Refusal(Code.NOT_FOUND, "agent_id: there is no such agent")
        return await self._sessions.create(
            session_id,
            agent_id=agent_id,
            display_name=self._redactor.log_text(clean_text(display_name)),
            label=label,
            created=events.session_created(agent_id, agent_version),
            token_hash=token_hash,
            token_id=str(uuid4()),
            token_ttl_ms=token_ttl_ms,
            idempotency=idempotency,
        )

    async def get(self, session_id: str) -> Session:
        """Raises Refusal(NOT_FOUND)."""
        return await self._sessions.get(session_id)

    async def submit(self, session_id: str, text: str, idempotency: Idempotency) -> str:
        """Queues an input: its run's id. Raises Refusal(INVALID_REQUEST, QUEUE_FULL, NO_CAPACITY, NOT_FOUND)."""
        prompt = checked_prompt(text, self._redactor)
        session = await self._sessions.get(session_id)
        agent = self._agents.get(session.agent_id)
        if agent is None:
            raise Refusal(Code.CONFLICT, "the session's agent is not configured any more")
        run_id = str(uuid4())
        run_id, owner = await self._sessions.submit(
            session_id,
            run_id,
            prompt,
            events.run_queued(run_id),
            self._succession.candidate(agent),
            idempotency,
            shared=agent.shared,
            home_wait_ms=self._succession.home_wait_ms,
        )
        if not self._nodes.lives(owner.incarnation):
            await self._succession.succeed(session_id, agent, owner)
        return run_id

    async def cancel(self, session_id: str, idempotency: Idempotency) -> str | None:
        """Ends the active run, or the oldest that waits: its id, None where there was none.

        Answers when the run has ended, after ten seconds at most.
        """
        reader = await self._feeds.open(session_id, None)
        try:
            run_id, kind = await self._sessions.cancel(session_id, idempotency)
            if kind == "active" and run_id is not None and (await self._sessions.get(session_id)).run_id == run_id:
                try:
                    async with asyncio.timeout(CANCEL_S):
                        await _ended(reader, run_id)
                except TimeoutError:
                    log.warning("a run did not end in time after its cancel", session_id=session_id, run_id=run_id)
            return run_id
        finally:
            reader.close()

    async def approve(
        self,
        session_id: str,
        approval_id: str,
        decision: Literal["allow", "deny"],
        message: str | None,
        resolved_by: str,
        idempotency: Idempotency,
    ) -> bytes:
        """The ``approval_resolved`` event. Raises Refusal(NOT_FOUND, CONFLICT)."""
        shown = self._redactor.log_text(clean_text(message)) if message is not None else None
        resolved = events.approval_resolved(approval_id, decision, shown, resolved_by)
        result = events.tool_result(
            approval_id, trusted("allowed" if decision == "allow" else "denied"), is_error=decision == "deny"
        )
        return await self._sessions.approve(session_id, approval_id, decision, resolved, result, idempotency)

    async def delete(self, session_id: str) -> None:
        """Removes all of a session."""
        await self._sessions.delete(session_id)


async def _ended(reader: Reader, run_id: str) -> None:
    mark = run_id.encode()
    while True:
        try:
            what = await reader.next()
        except BusUnavailable:
            await asyncio.sleep(0.1)
            continue
        if isinstance(what, Signal) and what.kind == "deleted":
            return
        if isinstance(what, list) and any(
            mark in entry.event and any(end in entry.event for end in _ENDS) for entry in what
        ):
            return
