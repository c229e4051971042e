"""The socket's protocol without a socket: bytes in, commands or answers or a close out; builders of every frame.

Owns what is malformed, what a frame may hold before the first attach, the rate, which session a frame is for, and the
close codes. It never waits, asks or sends, and it never decodes an event: events are spliced in as they were encoded.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, cast

import msgspec

from adapters.websocket import wire
from gateway.model import limits
from gateway.model.errors import Code, Refusal
from gateway.model.strictjson import parse_json, replace_surrogates


class Close(Enum):
    """Why a socket is closed: (code, reason). One table for all (websocket protocol, "Pressure")."""

    MALFORMED = (4400, "malformed frame")
    NO_TOKEN = (4401, "no token in time")
    ORIGIN = (4403, "origin not allowed")
    REFUSED = (4404, "attach refused")
    NO_PONG = (4408, "no pong")
    TOO_LARGE = (4413, "frame too large")
    TOO_MANY = (4429, "too many frames")
    FAILURES = (4429, "too many refused credentials")
    GOING_AWAY = (1012, "this node is going away")

    @property
    def code(self) -> int:
        """The close code."""
        return self.value[0]

    @property
    def reason(self) -> str:
        """The close frame's text."""
        return self.value[1]


class Closing(Exception):
    """The socket has to be closed with this code."""

    def __init__(self, close: Close) -> None:
        super().__init__(close.reason)
        self.close = close


@dataclass(frozen=True, slots=True)
class Command:
    """A frame that is to be done. ``session_id`` is empty for a ping alone; ``size`` is the frame's, in bytes."""

    op: wire.Op
    session_id: str
    size: int
    structured: bytes | None = None  # a result's, compact


@dataclass(frozen=True, slots=True)
class BadAnswer:
    """A result that was not valid: it does not use its call up (bridge 6)."""

    id: int
    session_id: str
    client_id: str
    call_id: str
    why: Refusal
    size: int


@dataclass(slots=True)
class Rate:
    """A bucket of frames: ``burst`` at once, ``per_second`` on average. Times are in seconds of one clock."""

    per_second: float
    burst: float
    _left: float = field(init=False)
    _seen: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._left = self.burst

    def take(self, now: float) -> bool:
        """Whether one more frame may come."""
        self._left = min(self.burst, self._left + (now - self._seen) * self.per_second)
        self._seen = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


@dataclass(frozen=True, slots=True)
class Held:
    """A registration that this socket made or resumed, under the name ``holder``; ``resume_hash`` takes it up again."""

    client_id: str
    session_id: str
    resume_hash: str
    holder: str


_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

BEFORE_ATTACH: Final = 32
"""Frames that a socket may send before its first attach has succeeded."""


class Machine:
    """One socket. ``attached`` (by session) and ``held`` (by client) are kept by whoever does the attaching."""

    __slots__ = ("_before", "_rate", "attached", "held", "open")

    def __init__(self, attached: Mapping[str, object], held: Mapping[str, Held], rate: Rate) -> None:
        self.attached: Final = attached
        self.held: Final = held
        self.open = False  # the first attach has succeeded
        self._before = 0
        self._rate = rate

    def receive(self, raw: bytes, now: float) -> Command | BadAnswer | bytes:
        """One text frame: what is to be done, or the error answer to it. Raises Closing."""
        if len(raw) > (limits.SOCKET_FRAME_BYTES if self.open else limits.SOCKET_FRAME_BYTES_BEFORE_ATTACH):
            raise Closing(Close.TOO_LARGE)
        if not self._rate.take(now) or not self._count():
            raise Closing(Close.TOO_MANY)
        raw, value = _strict(raw)
        number = value["id"]
        try:
            op = _typed(value)
            session_id = self._session(op)
            structured = _structured(raw) if isinstance(op, wire.Result) and op.structured is not None else None
        except Refusal as why:
            return self._bad_answer(value, why, len(raw)) or error(number, why)
        return Command(op, session_id, len(raw), structured)

    def _count(self) -> bool:
        self._before += not self.open
        return self.open or self._before <= BEFORE_ATTACH

    def _session(self, op: wire.Op) -> str:
        if isinstance(op, wire.Ping):
            return ""
        if not self.open and not isinstance(op, wire.Attach):
            raise Refusal(Code.UNAUTHORIZED, "attach to a session first")
        session_id = op.session_id if op.session_id is not None else self._implied(op.client_id)
        session_id = session_id.lower()
        if not _UUID.fullmatch(session_id):
            if not self.open:
                raise Closing(Close.REFUSED)
            raise Refusal(Code.NOT_FOUND)
        return session_id

    def _implied(self, client_id: str) -> str:
        held = self.held.get(client_id)
        if held is not None:
            return held.session_id
        if len(self.attached) == 1:
            return next(iter(self.attached))
        raise Refusal(Code.INVALID_REQUEST, "session_id: needed, since this socket holds no such client")

    def _bad_answer(self, value: dict[str, Any], why: Refusal, size: int) -> BadAnswer | None:
        """The call of a result that is not valid, where the frame says which it is."""
        if value["op"] != "result" or why.code not in {Code.INVALID_REQUEST, Code.TOO_LARGE}:
            return None
        try:
            named = msgspec.convert(value, _Named)
            session_id = (named.session_id or self._implied(named.client_id)).lower()
        except (msgspec.ValidationError, Refusal):
            return None
        if not self.open or not _UUID.fullmatch(session_id):
            return None
        return BadAnswer(value["id"], session_id, named.client_id, named.call_id, why, size)


class _Named(msgspec.Struct, frozen=True):
    client_id: wire.ClientId
    call_id: wire.CallId
    session_id: wire.SessionId | None = None


class _Structured(msgspec.Struct, frozen=True):
    structured: msgspec.Raw


def _strict(raw: bytes) -> tuple[bytes, dict[str, Any]]:
    """The frame, its lone surrogates mended (bridge 6), and what it says. Raises Closing."""
    try:
        value = parse_json(raw, max_bytes=limits.SOCKET_FRAME_BYTES * 2)  # mending may have made it longer
    except Refusal:
        mended = replace_surrogates(raw)
        if mended == raw:
            raise Closing(Close.MALFORMED) from None
        return _strict(mended)
    if not isinstance(value, dict):
        raise Closing(Close.MALFORMED)
    frame = cast("dict[str, Any]", value)
    number = frame.get("id")
    if not isinstance(frame.get("op"), str) or not isinstance(number, int) or isinstance(number, bool):
        raise Closing(Close.MALFORMED)
    return raw, frame


def _typed(value: dict[str, Any]) -> wire.Op:
    kind = wire.BY_NAME.get(value["op"])
    if kind is None:
        raise Refusal(Code.INVALID_REQUEST, "op: there is no such op")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Refusal(Code.INVALID_REQUEST, _problem(str(error))) from None


def _problem(text: str) -> str:
    """What is wrong, without the value that was sent."""
    what, _, path = text.partition(" - at `$")
    where = path.rstrip("`").lstrip(".")
    if what.startswith("Invalid"):
        what = "not one of the values that it may have"
    if "matching regex" in what:
        what = "not in the alphabet or length that it may have"
    return f"{where}: {what}" if where else what


def _structured(raw: bytes) -> bytes:
    """The structured result as it was written, without its white space: no number changes."""
    compact = msgspec.json.format(bytes(msgspec.json.decode(raw, type=_Structured).structured), indent=-1)
    if len(compact) > limits.STRUCTURED_BYTES:
        raise Refusal(Code.TOO_LARGE, f"structured: more than {limits.STRUCTURED_BYTES} bytes, compact")
    return compact


# --- frames to the client

_encode: Final = msgspec.json.Encoder().encode
EMPTY: Final = b"{}"


def ok(number: int, body: bytes | msgspec.Struct) -> bytes:
    """An answer; ``body`` may be encoded already."""
    return b'{"id":%d,"ok":%b}' % (number, body if isinstance(body, bytes) else _encode(body))


def error(number: int, why: Refusal) -> bytes:
    """A refusal."""
    return _encode(wire.Error(number, wire.ErrorBody(why.envelope_code, why.message)))


def push_head(session_id: str) -> bytes:
    """What every push of a session begins with; a canonical uuid needs no escape."""
    return b'{"session_id":"%b",' % session_id.encode()


def event(head: bytes, encoded: bytes) -> bytes:
    """An event of the log, as it stands there."""
    return b'%b"event":%b}' % (head, encoded)


def delta(head: bytes, encoded: bytes) -> bytes:
    """A delta, as its owner published it."""
    return b'%b"delta":%b}' % (head, encoded)


def reset(head: bytes, seq: int) -> bytes:
    """The reader's place is now ``seq``."""
    return b'%b"reset":{"seq":%d}}' % (head, seq)


def closed(session_id: str, reason: wire.CloseReason, client_id: str | None = None) -> bytes:
    """An attachment, or one registration's hold, has ended."""
    return _encode(wire.ClosedPush(session_id, wire.ClosedData(reason, client_id)))


def keepalive(time: str) -> bytes:
    """The push that keeps a service worker awake."""
    return _encode(wire.KeepalivePush(time))
