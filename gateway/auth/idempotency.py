"""What an idempotency key covers (bridge 8). Owns the two digests, so that every protocol means the same by a key.

A key is one request's: of whoever sent it, on one route. The same input under the same key is one input, whether it
came over HTTP or over a socket.
"""

import hashlib
from typing import Final

from gateway.auth.principals import Principal
from gateway.bus.sessions import Idempotency

_INPUT: Final = "input"


def covering(principal: Principal, route: str, key: str, *request: bytes) -> Idempotency:
    """``key`` on ``route`` by ``principal``, for what ``request`` says. ``key`` was checked: 1 to 255 characters."""
    return Idempotency(_digest(principal.who.encode(), route.encode(), key.encode()), _digest(*request))


def covering_input(principal: Principal, session_id: str, key: str, text: str) -> Idempotency:
    """``key`` for an input of a session: its text alone is the request."""
    return covering(principal, _INPUT, key, session_id.encode(), text.encode(errors="surrogatepass"))


def _digest(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(b"%d:" % len(part))
        whole.update(part)
    return whole.hexdigest()
