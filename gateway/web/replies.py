"""Answers as ASGI messages, and the error envelope. Owns the headers that every answer has; knows no route."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from gateway.model.errors import Code, Refusal

Headers = Sequence[tuple[bytes, bytes]]

_encode: Final = msgspec.json.Encoder().encode
_JSON: Final = (b"content-type", b"application/json")
_COMMON: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class Detail(msgspec.Struct):
    """What went wrong: a code to act on, and a text for people."""

    code: str
    message: str


class Envelope(msgspec.Struct):
    """Every error's body."""

    error: Detail


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole answer. ``body`` is JSON unless ``content_type`` says otherwise; 204 has none."""

    status: int
    body: bytes = b""
    headers: Headers = ()
    content_type: bytes | None = None

    async def write(self, send: Send, more: Headers = ()) -> None:
        """Sends it, with the headers that every answer has and ``more``."""
        headers = [*_COMMON, *self.headers, *more]
        if self.status != 204:
            kind = _JSON if self.content_type is None else (b"content-type", self.content_type)
            headers += (kind, (b"content-length", b"%d" % len(self.body)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def json_reply(status: int, value: msgspec.Struct, headers: Headers = ()) -> Reply:
    """An answer with an encoded struct."""
    return Reply(status, _encode(value), headers)


NO_CONTENT: Final = Reply(204)


def envelope(refusal: Refusal) -> bytes:
    """The error body of a refusal."""
    return _encode(Envelope(Detail(refusal.envelope_code, refusal.message)))


def refused(refusal: Refusal, headers: Headers = ()) -> Reply:
    """The answer for a refusal: the envelope, and ``Retry-After`` where waiting helps."""
    more = list(headers)
    if refusal.retry_after_s is not None:
        more.append((b"retry-after", b"%d" % refusal.retry_after_s))
    if refusal.code is Code.UNAUTHORIZED:
        more.append((b"www-authenticate", b"Bearer"))
    return Reply(refusal.status, envelope(refusal), more)


def method_not_allowed(allowed: Iterable[str]) -> Reply:
    """405 with the methods that there are."""
    allow = ", ".join(sorted(allowed)).encode()
    return refused(Refusal(Code.METHOD_NOT_ALLOWED), ((b"allow", allow),))


def on_http_exception(_request: Request, error: Exception) -> Response:
    """Starlette's handler for what the framework itself refuses (an unknown route, a wrong method)."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    code = {404: Code.NOT_FOUND, 405: Code.METHOD_NOT_ALLOWED}.get(status)
    if code is None:
        code = Code.INVALID_REQUEST if 400 <= status < 500 else Code.INTERNAL
    allow = error.headers if isinstance(error, HTTPException) else None
    return Response(
        envelope(Refusal(code)),
        status_code=status,
        media_type="application/json",
        headers={**(allow or {}), "cache-control": "no-store"},
    )
