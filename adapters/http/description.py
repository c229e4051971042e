"""``/-/openapi.json`` and ``/-/docs``. Owns their routes."""

from collections.abc import Sequence

from starlette.routing import Route

from adapters.http import docs_page, openapi
from adapters.http.resource import Operation
from gateway.web.pages import Page
from gateway.web.replies import Reply


def description_routes(operations: Sequence[Operation]) -> list[Route]:
    """The two pages; they need no credential and say nothing of this deployment."""

    def page() -> Reply:
        policy = (b"content-security-policy", docs_page.POLICY.encode())
        body = docs_page.render(openapi.document(operations))
        return Reply(200, body, (policy,), content_type=b"text/html; charset=utf-8")

    return [
        Route("/-/openapi.json", Page(lambda: Reply(200, openapi.encoded(operations)))),
        Route("/-/docs", Page(page)),
    ]
