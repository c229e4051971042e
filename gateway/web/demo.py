"""``/demo``: the example page, and sessions for whoever was shown its address. Owns the one-time code and the page's
headers; what a session is, it is told.

A session is made only for the code in the fragment of the printed address (``/demo#CODE``): a fragment is sent to no
server and stands in no log, so whoever has it can read this process' terminal. A code works once. The page keeps its
session in ``sessionStorage``, which a reload keeps and no other tab or origin reads; for another tab the next address
is printed as soon as one was used. A cookie that lets a used code in again would be sent to every port of this host,
so to every other program that serves something here.
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from gateway.auth.origins import own_origin
from gateway.bus.errors import BusUnavailable
from gateway.config.dev import DEMO_AGENT
from gateway.config.examples import example_folder
from gateway.config.settings import Settings
from gateway.model.errors import Code, Refusal
from gateway.observe import metrics
from gateway.observe.log import get_logger
from gateway.web.bodies import ClientGone, check_json_type, parse_body, read_body, typed
from gateway.web.rates import Rates
from gateway.web.replies import Reply, json_reply, refused

log = get_logger("demo")

PATH: Final = "/demo"
LABEL: Final = "demo page"
"""As whose the page's sessions are listed."""

BODY_BYTES: Final = 1024

CONTENT_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""What may be served; a file with another suffix is not."""

HEADERS: Final = {
    # The page loads its own files alone, runs nothing that stands in the HTML, and fits in no frame.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    # Kept, but asked for again each time: after an update nobody sees yesterday's script beside today's page.
    "cache-control": "no-cache",
}


OpenSession = Callable[[str, str], Awaitable[tuple[str, str]]]
"""``(agent's name, label)`` to a new session's id and token. Raises Refusal, BusUnavailable."""


class _Opening(msgspec.Struct):
    code: Annotated[str, Meta(max_length=64)]


class _Opened(msgspec.Struct):
    session_id: str
    token: str


class OneTimeCode:
    """The one code that is good now: 128 random bits; the next is made when it is spent."""

    def __init__(self) -> None:
        self.current = secrets.token_urlsafe(16)

    def spend(self, given: str) -> bool:
        """Whether it was the code; then it is no more."""
        if not hmac.compare_digest(given.encode(), self.current.encode()):
            return False
        self.current = secrets.token_urlsafe(16)
        return True

    def give_back(self, code: str) -> None:
        """What it was spent for did not come about. Nobody has seen the next one yet."""
        self.current = code


class Demo:
    """The page of one process. ``say`` prints a line where the person who started it reads it."""

    def __init__(self, settings: Settings, say: Callable[[str], None], *, agent_name: str = DEMO_AGENT) -> None:
        self.agent_name: Final = agent_name
        self._public_url: Final = settings.server.public_url
        self._say = say
        self._code = OneTimeCode()
        self._address = ""

    def routes(self, open_session: OpenSession, failures: Rates) -> list[BaseRoute]:
        """The page, its files, and ``POST /demo/session``. ``failures`` counts wrong codes by peer's address."""
        files = _read(example_folder("demo"))
        index = _file(files.pop("index.html"), CONTENT_TYPES[".html"])
        return [
            Route(PATH, index),
            Route(f"{PATH}/", index),
            Route(f"{PATH}/session", _Sessions(self._open, open_session, failures), methods=["POST"]),
            *(
                Route(f"{PATH}/{name}", _file(content, CONTENT_TYPES[Path(name).suffix]))
                for name, content in files.items()
            ),
        ]

    def lines(self, address: str, *, demo: bool) -> list[str]:
        """What a person is told once the page is served at ``address``."""
        self._address = address
        if not demo:
            return [f"Demo page (the address works once): {self._url()}"]
        return [
            "",
            "Open this address in a browser. It works once; the next one is printed here then.",
            "",
            f"    {self._url()}",
            "",
            "Try: type “highlight row 3” beside the table, and the agent asks your tab to highlight row 3.",
            "Ctrl-C ends all of it, and nothing stays.",
        ]

    def _url(self) -> str:
        return f"{self._address}{PATH}#{self._code.current}"

    async def _open(self, scope: Scope, receive: Receive, open_session: OpenSession, failures: Rates) -> Reply:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        # Only a browser sends this, and always: a request without it is none of the page's.
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin != own_origin(self._public_url, headers[b"host"].decode("latin-1")):
            metrics.REFUSED.labels("origin").inc()
            raise Refusal(Code.ORIGIN_FORBIDDEN)
        check_json_type(headers)
        raw = await read_body(receive, headers, BODY_BYTES)
        code = typed(_decoder, parse_body(raw, BODY_BYTES).raw).code
        if not self._code.spend(code):
            failures.take(str((scope.get("client") or ("",))[0]))
            raise Refusal(Code.FORBIDDEN, "code: is not the one that is good now")
        try:
            session_id, token = await open_session(self.agent_name, LABEL)
        except BaseException:
            self._code.give_back(code)
            raise
        self._say(f"The page was opened. The next address, for another tab: {self._url()}")
        return json_reply(201, _Opened(session_id, token))


_decoder: Final = msgspec.json.Decoder(_Opening)


class _Sessions:
    """``POST /demo/session`` as an ASGI app: the errors of the catalogue, and no other."""

    def __init__(self, handler: Callable[..., Awaitable[Reply]], open_session: OpenSession, failures: Rates) -> None:
        self._handler = handler
        self._open_session = open_session
        self._failures = failures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await self._handler(scope, receive, self._open_session, self._failures)
        except Refusal as refusal:
            reply = refused(refusal)
        except ClientGone:
            return
        except BusUnavailable as error:
            log.warning("the bus failed a request", route=f"{PATH}/session", error=error)
            reply = refused(Refusal(Code.BUS_UNAVAILABLE))
        await reply.write(send)


def _read(folder: Path) -> dict[str, bytes]:
    """The page's files by their paths, read once: what a request names is looked up here and never on the disk."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in CONTENT_TYPES
    }


def _file(content: bytes, content_type: str) -> Callable[[Request], Awaitable[Response]]:
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**HEADERS, "etag": etag}

    async def serve(request: Request) -> Response:
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=content_type)

    return serve
