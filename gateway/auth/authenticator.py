"""From a credential to a principal. Owns the cache of tokens that were found; compares in constant time.

A token that was found is believed without asking again until it expires, is revoked (every node hears of that on the
control channel) or the subscription has a gap (then everything is forgotten). So the path of a call asks Redis nothing
about who speaks.
"""

import hmac
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.auth import tokens
from gateway.auth.principals import ApiKeyHolder, Principal, TokenHolder
from gateway.bus.sessions import Sessions
from gateway.model.errors import Code, Refusal

_CACHED_SESSIONS: Final = 20_000


@dataclass(frozen=True, slots=True)
class KnownKey:
    """An API key of the settings, as its hash."""

    holder: ApiKeyHolder
    digest: str


class Authenticator:
    """Knows the API keys by their hashes, finds session tokens by theirs."""

    def __init__(self, keys: Sequence[KnownKey], sessions: Sessions, now_ms: Callable[[], int]) -> None:
        self._keys = tuple(keys)
        self._sessions = sessions
        self._now_ms = now_ms
        self._found: OrderedDict[str, dict[str, TokenHolder]] = OrderedDict()  # by session, then by hash
        self._by_hash: dict[str, TokenHolder] = {}
        self._forgotten = 0

    async def authenticate(self, credential: str | None) -> Principal:
        """Who speaks. Raises Refusal(UNAUTHORIZED), with one text whatever is wrong."""
        if not credential:
            raise Refusal(Code.UNAUTHORIZED)
        hashed = tokens.digest(credential)
        if (known := self._by_hash.get(hashed)) is not None and known.expires_ms > self._now_ms():
            return known
        read = tokens.read_session_token(credential)
        if read is not None:
            return await self._token(read.session_id, hashed)
        found: ApiKeyHolder | None = None
        for known in self._keys:  # all of them, so that the time does not tell which one was near
            if hmac.compare_digest(known.digest, hashed):
                found = known.holder
        if found is None:
            raise Refusal(Code.UNAUTHORIZED)
        return found

    async def _token(self, session_id: str, hashed: str) -> TokenHolder:
        holder = self._found.get(session_id, {}).get(hashed)
        if holder is None:
            forgotten = self._forgotten
            token = await self._sessions.find_token(session_id, hashed)
            if token is None:
                raise Refusal(Code.UNAUTHORIZED)
            holder = TokenHolder(session_id, token.token_id, token.expires_ms)
            if forgotten == self._forgotten:  # else it may have been revoked behind the look-up
                self._remember(hashed, holder)
        if holder.expires_ms <= self._now_ms():
            self._found.get(session_id, {}).pop(hashed, None)
            self._by_hash.pop(hashed, None)
            raise Refusal(Code.UNAUTHORIZED)
        return holder

    def _remember(self, hashed: str, holder: TokenHolder) -> None:
        self._found.setdefault(holder.session_id, {})[hashed] = holder
        self._by_hash[hashed] = holder
        self._found.move_to_end(holder.session_id)
        if len(self._found) > _CACHED_SESSIONS:
            self._drop(self._found.popitem(last=False)[1])

    def _drop(self, holders: dict[str, TokenHolder] | None) -> None:
        for hashed in holders or ():
            self._by_hash.pop(hashed, None)

    def forget(self, session_id: str) -> None:
        """A token of the session was revoked, or the session deleted: its tokens are looked up again."""
        self._forgotten += 1
        self._drop(self._found.pop(session_id, None))

    def forget_all(self) -> None:
        """A revocation may have been missed."""
        self._forgotten += 1
        self._found.clear()
        self._by_hash.clear()
