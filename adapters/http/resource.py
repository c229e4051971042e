"""One path with its methods, as an ASGI app. Owns the order of every request's checks and the answer to each failure.

The order: origin, credential, reach, rate, then the handler. Whatever goes wrong is answered in the envelope, with the
CORS headers that a good answer would have had; an unforeseen exception is logged by its type and answers 500.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Literal, Protocol

from prometheus_client import Counter
from starlette.types import Receive, Scope, Send

from adapters.http.ask import Ask
from adapters.http.cors import answer_headers, origin_allowed, preflight_headers
from adapters.http.services import HttpServices
from gateway.auth.principals import ApiKeyHolder, TokenHolder, may_reach_agent, require_api_key, require_session
from gateway.bus.errors import BusUnavailable
from gateway.model.errors import Code, Refusal
from gateway.observe import metrics
from gateway.observe.log import get_logger
from gateway.web.bodies import ClientGone
from gateway.web.replies import Headers, Reply, method_not_allowed, refused

log = get_logger("http")

Needs = Literal["token", "key", "approve"]
"""Who may: the session's token or an API key; an API key alone; as the agent's ``tokens_may_approve`` says."""


class Answer(Protocol):
    """What a handler gives back: a whole reply, or a stream."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    async def write(self, send: Send, more: Headers = ()) -> None:
        """Sends it with further headers."""
        ...


Handler = Callable[[Ask], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. ``request`` and ``answers`` (by status: a struct, or None without a body) are what the
    description of the interface is made from; ``key`` says that an ``Idempotency-Key`` is understood."""

    method: str
    path: str
    name: str
    handler: Handler
    summary: str
    answers: Mapping[int, object]
    _: KW_ONLY
    needs: Needs = "token"
    request: object = None
    query: Sequence[str] = ()
    key: bool = False
    errors: Sequence[int] = field(default=())


class Resource:
    """A path's operations."""

    def __init__(self, http: HttpServices, template: str, operations: Sequence[Operation]) -> None:
        self._http = http
        self._template = template
        self._operations: Final = {operation.method: operation for operation in operations}
        self._below_session = "{sid}" in template
        self._counters: dict[int, Counter] = {}
        self._seconds = metrics.REQUEST_SECONDS.labels(template)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        ask = Ask(self._http, scope, receive, self._template)
        answer = await self._answer(ask)
        if answer is None:
            return
        self._seconds.observe(time.perf_counter() - began)
        self._count(answer.status)
        await answer.write(send, ask.cors)

    def _count(self, status: int) -> None:
        counter = self._counters.get(status)
        if counter is None:
            counter = self._counters[status] = metrics.REQUESTS.labels(self._template, str(status))
        counter.inc()

    async def _answer(self, ask: Ask) -> Answer | None:
        """The answer, None when its client has gone."""
        try:
            if ask.method == "OPTIONS":
                return await self._options(ask)
            operation = self._operations.get(ask.method)
            await self._admit_origin(ask, operation)
            if operation is None:
                return self._no_operation()
            await self._admit(ask, operation)
            return await operation.handler(ask)
        except Refusal as refusal:
            return refused(refusal)
        except ClientGone:
            return None
        except BusUnavailable as error:
            log.warning("the bus failed a request", route=self._template, error=error)
            return refused(Refusal(Code.BUS_UNAVAILABLE))
        except Exception as error:
            log.error("a request failed", route=self._template, error=error)
            return refused(Refusal(Code.INTERNAL))

    def _no_operation(self) -> Reply:
        if not self._operations:
            return refused(Refusal(Code.NOT_FOUND))
        return method_not_allowed((*self._operations, "OPTIONS"))

    # --- origins

    async def _agent(self, ask: Ask) -> str | None:
        return await self._http.session_agents.find(ask.session_id) if ask.session_id else None

    async def _agent_or_none(self, ask: Ask) -> str | None:
        """The session's agent; while the bus is away a session is like an unknown one, so that a page sees the 503."""
        try:
            return await self._agent(ask)
        except BusUnavailable:
            return None

    async def _admit_origin(self, ask: Ask, operation: Operation | None) -> None:
        origin = ask.header(b"origin")
        if origin is None:
            return
        agent_id = await self._agent_or_none(ask)
        if not origin_allowed(self._http, origin, agent_id, ask.header(b"host") or ""):
            metrics.REFUSED.labels("origin").inc()
            raise Refusal(Code.ORIGIN_FORBIDDEN)
        if self._below_session and (operation is None or self._open_to_tokens(operation, agent_id)):
            ask.cors = answer_headers(origin)

    def _open_to_tokens(self, operation: Operation, agent_id: str | None) -> bool:
        if operation.needs != "approve":
            return operation.needs == "token"
        agents = self._http.agents
        if agent_id is None:
            return any(agent.tokens_may_approve for agent in agents.values())
        return agent_id in agents and agents[agent_id].tokens_may_approve

    async def _options(self, ask: Ask) -> Answer:
        origin = ask.header(b"origin")
        wanted = ask.header(b"access-control-request-method")
        if origin is None or wanted is None:
            if not self._operations:
                return self._no_operation()
            return Reply(204, headers=((b"allow", ", ".join(sorted((*self._operations, "OPTIONS"))).encode()),))
        if not self._below_session:
            raise Refusal(Code.ORIGIN_FORBIDDEN)
        agent_id = await self._agent_or_none(ask)
        open_ = [name for name, op in self._operations.items() if self._open_to_tokens(op, agent_id)]
        if wanted not in open_ or not origin_allowed(self._http, origin, agent_id, ask.header(b"host") or ""):
            raise Refusal(Code.ORIGIN_FORBIDDEN)
        private = ask.header(b"access-control-request-private-network") == "true"
        return Reply(204, headers=preflight_headers(origin, open_, private_network=private))

    # --- credentials

    async def _admit(self, ask: Ask, operation: Operation) -> None:
        principal = await self._authenticate(ask)
        ask.principal = principal
        self._http.rates.take(principal.who)
        if self._below_session:
            if not ask.session_id:
                raise Refusal(Code.NOT_FOUND)
            require_session(principal, ask.session_id)
            if isinstance(principal, ApiKeyHolder) and principal.agent_ids is not None:
                agent_id = await self._agent(ask)
                if agent_id is None or not may_reach_agent(principal, agent_id):
                    raise Refusal(Code.NOT_FOUND)
        if operation.needs == "key":
            require_api_key(principal)
        elif operation.needs == "approve" and not isinstance(principal, ApiKeyHolder):
            agent_id = await self._agent(ask)
            if agent_id is None or not self._open_to_tokens(operation, agent_id):
                raise Refusal(Code.FORBIDDEN, "this needs an API key")

    async def _authenticate(self, ask: Ask) -> ApiKeyHolder | TokenHolder:
        credential = ask.credential()
        try:
            return await self._http.authenticator.authenticate(credential)
        except Refusal:
            # Whoever has a good credential is let in, from whatever address: behind a proxy all have the same.
            if credential is not None:
                self._http.failures.take(ask.address)
            raise
