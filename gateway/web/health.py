"""``/healthz``, ``/readyz`` and ``/metrics``. Owns their answers; what readiness means is told to it."""

from collections.abc import Callable
from typing import Final

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.observe import metrics
from gateway.web.replies import Reply, method_not_allowed

Problems = Callable[[], list[str]]
"""Why this node is not ready, in words without a secret; empty when it is."""

_METHODS: Final = ("GET", "HEAD")


class _Get:
    """An ASGI app with one answer for GET and HEAD."""

    def __init__(self, answer: Callable[[], Reply]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        reply = self._answer() if scope["method"] in _METHODS else method_not_allowed(_METHODS)
        await reply.write(send)


def _alive() -> Reply:
    return Reply(200, b'{"status":"ok"}')


def metrics_route(refresh: Callable[[], None]) -> Route:
    """``/metrics``; ``refresh`` sets what is not counted as it happens."""

    def answer() -> Reply:
        refresh()
        return Reply(200, metrics.render(), content_type=metrics.CONTENT_TYPE.encode())

    return Route("/metrics", _Get(answer))


def health_routes(problems: Problems) -> list[Route]:
    """``/healthz``: the process lives. ``/readyz``: 503 with what is in the way, while anything is. They need no
    credential and say nothing that one would guard."""

    def ready() -> Reply:
        found = problems()
        if not found:
            return Reply(200, b'{"status":"ready"}')
        reasons = b",".join(_quoted(reason) for reason in found)
        return Reply(503, b'{"status":"not ready","reasons":[%s]}' % reasons, ((b"retry-after", b"1"),))

    return [Route("/healthz", _Get(_alive)), Route("/readyz", _Get(ready))]


def _quoted(text: str) -> bytes:
    kept = "".join(c for c in text if c.isprintable() and c not in '"\\')
    return b'"%s"' % kept[:200].encode()
