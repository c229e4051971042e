"""``/healthz``, ``/readyz`` and ``/metrics``. Owns their answers; what readiness means is told to it."""

from collections.abc import Callable
from typing import Final

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

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


def _metrics() -> Reply:
    return Reply(200, metrics.render(), content_type=metrics.CONTENT_TYPE.encode())


def metrics_app() -> ASGIApp:
    """``/metrics`` alone, for a port of its own."""
    return _Get(_metrics)


def health_routes(problems: Problems, *, with_metrics: bool) -> list[Route]:
    """``/healthz``: the process lives. ``/readyz``: 503 with what is in the way, while anything is. They need no
    credential and say nothing that one would guard."""

    def ready() -> Reply:
        found = problems()
        if not found:
            return Reply(200, b'{"status":"ready"}')
        reasons = b",".join(_quoted(reason) for reason in found)
        return Reply(503, b'{"status":"not ready","reasons":[%s]}' % reasons, ((b"retry-after", b"1"),))

    routes = [Route("/healthz", _Get(_alive)), Route("/readyz", _Get(ready))]
    if with_metrics:
        routes.append(Route("/metrics", _Get(_metrics)))
    return routes


def _quoted(text: str) -> bytes:
    kept = "".join(c for c in text if c.isprintable() and c not in '"\\')
    return b'"%s"' % kept[:200].encode()
