"""Pages that are made once and never change while the process lives. Owns their methods; what they say is others'."""

from collections.abc import Callable
from typing import Final

from starlette.types import Receive, Scope, Send

from gateway.web.replies import Reply, method_not_allowed

_METHODS: Final = ("GET", "HEAD")


class Page:
    """An ASGI app: the reply that ``make`` gives when the first one asks. It needs no credential."""

    def __init__(self, make: Callable[[], Reply]) -> None:
        self._make = make
        self._made: Reply | None = None

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["method"] not in _METHODS:
            await method_not_allowed(_METHODS).write(send)
            return
        if self._made is None:
            self._made = self._make()
        await self._made.write(send)
