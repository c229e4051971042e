"""``/-/openapi.json`` and ``/-/docs``. Owns their routes; both texts are made once, when the first one asks."""

from collections.abc import Callable, Sequence
from typing import Final

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from adapters.http import docs_page, openapi
from adapters.http.resource import Operation
from gateway.web.replies import Reply, method_not_allowed

_METHODS: Final = ("GET", "HEAD")


class _Page:
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


def description_routes(operations: Sequence[Operation]) -> list[Route]:
    """The two pages; they need no credential and say nothing of this deployment."""

    def page() -> Reply:
        policy = (b"content-security-policy", docs_page.POLICY.encode())
        body = docs_page.render(openapi.document(operations))
        return Reply(200, body, (policy,), content_type=b"text/html; charset=utf-8")

    return [
        Route("/-/openapi.json", _Page(lambda: Reply(200, openapi.encoded(operations)))),
        Route("/-/docs", _Page(page)),
    ]
