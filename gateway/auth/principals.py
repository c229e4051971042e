"""Who speaks, and what they may do (HTTP protocol, "Tokens"). Owns the rules; never reads a header or a store."""

from dataclasses import dataclass

from gateway.model.errors import Code, Refusal


@dataclass(frozen=True, slots=True)
class ApiKeyHolder:
    """A backend. ``agent_ids`` narrows what it reaches; None reaches everything."""

    label: str
    key_id: str
    agent_ids: frozenset[str] | None

    @property
    def who(self) -> str:
        """Under what its idempotency keys and its rate are counted."""
        return f"key:{self.key_id}"


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """A browser or a worker: one session, until ``expires_ms`` (bus clock) or revocation."""

    session_id: str
    token_id: str
    expires_ms: int

    @property
    def who(self) -> str:
        """Under what its idempotency keys and its rate are counted: the session is one trust domain (bridge 1)."""
        return f"session:{self.session_id}"


Principal = ApiKeyHolder | TokenHolder


def may_reach_agent(principal: Principal, agent_id: str) -> bool:
    """Whether an API key's agents include this one; a token's session decides for itself."""
    return not isinstance(principal, ApiKeyHolder) or principal.agent_ids is None or agent_id in principal.agent_ids


def require_api_key(principal: Principal) -> ApiKeyHolder:
    """For what a stolen token must not do: mint, revoke, delete, choose a model. Raises Refusal(FORBIDDEN)."""
    if not isinstance(principal, ApiKeyHolder):
        raise Refusal(Code.FORBIDDEN, "this needs an API key")
    return principal


def require_session(principal: Principal, session_id: str) -> None:
    """A token opens its own session and no other: another looks as if it did not exist. Raises Refusal(NOT_FOUND)."""
    if isinstance(principal, TokenHolder) and principal.session_id != session_id:
        raise Refusal(Code.NOT_FOUND)
