"""One request as a handler sees it: path, query, headers, body, who speaks. Owns their reading, and no rule of a route.

Whatever is read here is bounded and checked; a refusal names the field, the header or the parameter.
"""

import re
from typing import Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope

from adapters.http.services import HttpServices
from gateway.auth import idempotency
from gateway.auth.principals import Principal
from gateway.bus.sessions import NO_KEY, Idempotency
from gateway.model.errors import Code, Refusal
from gateway.model.limits import IDEMPOTENCY_KEY_CHARS
from gateway.web.bodies import check_json_type, parse_body, read_body, typed
from gateway.web.replies import Headers

T = TypeVar("T")

SEQ_MAX: Final = 2**53 - 1
_CALL_ID: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBER: Final = re.compile(r"[0-9]{1,16}")
_IDEMPOTENCY_KEY: Final = re.compile(rf"[\x20-\x7e]{{1,{IDEMPOTENCY_KEY_CHARS}}}")
_BEARER: Final = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([\x21-\x7e]{1,1024})")
_canonical: Final = msgspec.json.Encoder(order="sorted").encode


def canonical_uuid(text: str) -> str | None:
    """A uuid in its canonical form, None for anything else."""
    return text.lower() if _UUID.fullmatch(text) else None


class Ask:
    """One request. ``session_id`` is empty where the path names none, or none that can exist."""

    __slots__ = (
        "_canonical",
        "_principal",
        "_query",
        "_repeated",
        "cors",
        "headers",
        "http",
        "method",
        "params",
        "receive",
        "scope",
        "session_id",
        "template",
    )

    def __init__(self, http: HttpServices, scope: Scope, receive: Receive, template: str) -> None:
        self.http = http
        self.scope = scope
        self.receive = receive
        self.template = template
        self.method: str = scope["method"]
        self.params: dict[str, str] = scope["path_params"]
        self.session_id = canonical_uuid(self.params.get("sid", "")) or ""
        self.headers: dict[bytes, bytes] = {}
        self._repeated: set[bytes] = set()
        for name, value in scope["headers"]:
            if name in self.headers:
                self._repeated.add(name)
            else:
                self.headers[name] = value
        self.cors: Headers = ()
        self._principal: Principal | None = None
        self._query: dict[str, str] | None = None
        self._canonical: bytes | None = None

    # --- who

    @property
    def principal(self) -> Principal:
        """Who speaks; set before a handler runs."""
        assert self._principal is not None
        return self._principal

    @principal.setter
    def principal(self, principal: Principal) -> None:
        self._principal = principal

    @property
    def address(self) -> str:
        """The address of the peer, empty when it has none (a unix socket)."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    # --- headers

    def header(self, name: bytes) -> str | None:
        """A header's value, None where there is none. Raises Refusal(INVALID_REQUEST) when it came twice."""
        value = self.headers.get(name)
        if value is None:
            return None
        if name in self._repeated:
            raise Refusal(Code.INVALID_REQUEST, f"the header {name.decode('latin-1')} may stand once only")
        return value.decode("latin-1")

    def credential(self) -> str | None:
        """The bearer token, None for any other kind of authorization."""
        found = _BEARER.fullmatch(self.header(b"authorization") or "")
        return found[1] if found else None

    def idempotency(self) -> Idempotency:
        """The request's key and fingerprint; read the body first. Raises Refusal(INVALID_REQUEST)."""
        key = self._idempotency_key()
        if key is None:
            return NO_KEY
        path = self.scope["path"].encode(errors="surrogateescape")
        return idempotency.covering(
            self.principal, self.template, key, self.method.encode(), path, self._canonical or b""
        )

    def input_idempotency(self, text: str) -> Idempotency:
        """As ``idempotency`` for an input: the same as a socket's. Raises Refusal(INVALID_REQUEST)."""
        key = self._idempotency_key()
        if key is None:
            return NO_KEY
        return idempotency.covering_input(self.principal, self.session_id, key, text)

    def _idempotency_key(self) -> str | None:
        key = self.header(b"idempotency-key")
        if key is None:
            return None
        if not _IDEMPOTENCY_KEY.fullmatch(key):
            limit = IDEMPOTENCY_KEY_CHARS
            raise Refusal(Code.INVALID_REQUEST, f"the header idempotency-key must be 1-{limit} ASCII characters")
        return key

    # --- path

    def uuid(self, name: str) -> str:
        """A uuid of the path. Raises Refusal(NOT_FOUND): what has no such form does not exist."""
        found = canonical_uuid(self.params[name])
        if found is None:
            raise Refusal(Code.NOT_FOUND)
        return found

    def call_id(self) -> str:
        """A call's or approval's id of the path; opaque. Raises Refusal(NOT_FOUND)."""
        call_id = self.params["call_id"]
        if not _CALL_ID.fullmatch(call_id):
            raise Refusal(Code.NOT_FOUND)
        return call_id

    # --- query

    def query(self, name: str) -> str | None:
        """A parameter's value. Raises Refusal(INVALID_REQUEST) when one came twice."""
        if self._query is None:
            self._query = {}
            for key, value in parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True):
                if key in self._query and key in _KNOWN:
                    raise Refusal(Code.INVALID_REQUEST, f"{key}: may stand once only")
                self._query[key] = value
        return self._query.get(name)

    def limit(self, default: int, most: int = 200) -> int:
        """``limit``: 1 to ``most``."""
        text = self.query("limit")
        if text is None:
            return default
        if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= most:
            raise Refusal(Code.INVALID_REQUEST, f"limit: expected an integer from 1 to {most}")
        return int(text)

    def seq(self, name: str) -> int | None:
        """A position in a log: ``after_seq``, ``before_seq``."""
        text = self.query(name)
        return None if text is None else position(text, name)

    def order(self) -> bool:
        """``order``: whether it is ``asc``; newest first when it is omitted."""
        text = self.query("order")
        if text not in (None, "asc", "desc"):
            raise Refusal(Code.INVALID_REQUEST, "order: expected asc or desc")
        return text == "asc"

    def uuid_query(self, name: str) -> str | None:
        """A uuid parameter."""
        text = self.query(name)
        if text is None:
            return None
        found = canonical_uuid(text)
        if found is None:
            raise Refusal(Code.INVALID_REQUEST, f"{name}: expected a uuid")
        return found

    # --- body

    async def body(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The body as a struct. Raises Refusal and ClientGone."""
        limit = self.http.settings.limits.body_bytes
        check_json_type(self.headers)
        raw = await read_body(self.receive, self.headers, limit)
        body = parse_body(raw, limit)
        if b"idempotency-key" in self.headers:
            self._canonical = _canonical(body.value)
        return typed(decoder, body.raw)


_KNOWN: Final = frozenset({"limit", "after", "order", "after_seq", "before_seq", "deltas", "state", "cursor"})


def position(text: str, name: str) -> int:
    """A position as text. Raises Refusal(INVALID_REQUEST) for whatever is no integer from 0 up."""
    if not _NUMBER.fullmatch(text) or int(text) > SEQ_MAX:
        raise Refusal(Code.INVALID_REQUEST, f"{name}: expected an integer from 0 up")
    return int(text)
