"""Request bodies: read with a bound in bytes and in time, then typed. Owns both; quotes nothing of what came.

The order is: measure, check as strict JSON, decode into a struct. Fields that a struct does not have are ignored, as
clients of the original may send more.
"""

import asyncio
import re
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from starlette.types import Receive

from gateway.model.errors import Code, Refusal
from gateway.model.strictjson import parse_json, replace_surrogates

T = TypeVar("T")

BODY_S: Final = 30.0
"""How long a client may take to send its body."""

LINGER_S: Final = 5.0
"""How long the rest of a body that is too large is thrown away before the refusal: most clients read no answer until
they have sent everything, and a connection that is closed over unread bytes is reset, the answer lost."""

_PLACE: Final = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
_EXPECTED: Final = re.compile(r"Expected `[^`]*`(?: of length [<>=]+ \d+| [<>=]+ -?\d+(?:\.\d+)?)?(?:, got `\w+`)?")
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9_.\[\]]{1,200}")


class ClientGone(Exception):
    """The client went away before its request was whole; nobody reads an answer."""


class Body(NamedTuple):
    """A body that was read: ``raw`` as typed decoders may read it, ``value`` its JSON value."""

    raw: bytes
    value: Any


async def read_body(receive: Receive, headers: dict[bytes, bytes], limit: int, *, timeout_s: float = BODY_S) -> bytes:
    """The body's bytes. Raises Refusal (TOO_LARGE, UNSUPPORTED_MEDIA, REQUEST_TIMEOUT) and ClientGone."""
    if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"identity", b""):
        raise Refusal(Code.UNSUPPORTED_MEDIA, "a body with a content encoding is not accepted")
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and (len(declared) > 18 or int(declared) > limit):
        if b"expect" not in headers:  # that client waits for the word to send
            await _discard(receive)
        raise Refusal(Code.TOO_LARGE, f"the body has more than {limit} bytes")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientGone
                part = message.get("body", b"")
                size += len(part)
                if size > limit:
                    if message.get("more_body", False):
                        await _discard(receive)
                    raise Refusal(Code.TOO_LARGE, f"the body has more than {limit} bytes")
                parts.append(part)
                if not message.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError:
        raise Refusal(Code.REQUEST_TIMEOUT) from None


async def _discard(receive: Receive) -> None:
    """Reads on and keeps nothing, until the body ends or ``LINGER_S`` is over. Raises ClientGone."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while (message := await receive()).get("more_body", False):
                pass
            if message["type"] != "http.request":
                raise ClientGone


def check_json_type(headers: dict[bytes, bytes]) -> None:
    """Raises Refusal(UNSUPPORTED_MEDIA) for a body that is not declared as JSON."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
        raise Refusal(Code.UNSUPPORTED_MEDIA, "the body's content type must be application/json")


def parse_body(raw: bytes, limit: int) -> Body:
    """The body as strict JSON; an escaped lone surrogate becomes U+FFFD. Raises Refusal."""
    value = parse_json(raw, max_bytes=limit, mend_surrogates=True)
    if not isinstance(value, dict):
        raise Refusal(Code.INVALID_REQUEST, "the body must be a JSON object")
    return Body(replace_surrogates(raw), value)


def typed(decoder: msgspec.json.Decoder[T], raw: bytes) -> T:
    """A checked body as a struct. Raises Refusal(INVALID_REQUEST) that names the field's path."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise Refusal(Code.INVALID_REQUEST, field_problem(error)) from None


def field_problem(error: msgspec.ValidationError) -> str:
    """``path: what is wrong``, with nothing of the value."""
    text = str(error)
    found = _PLACE.search(text)
    path = found[1] if found else ""
    if path and not _PLAIN_PATH.fullmatch(path):
        path = "a field"
    what = text[: found.start()] if found else text
    if missing := _MISSING.fullmatch(what):
        path = f"{path}.{missing[1]}" if path else missing[1]
        return f"{path}: is required"
    if not _EXPECTED.fullmatch(what):
        what = "is not one of the values that may stand here" if what.startswith("Invalid value") else "is not valid"
    return f"{path or 'the body'}: {what.replace('Expected', 'expected', 1)}"
