"""Frames of the stdio protocol: JSON lines in, JSON lines out. Pure; it must never read, write or keep anything.

Every refusal is a :class:`Refused` with a code of the protocol ("Framing", "Bounds and failure policy").
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, cast

PROTOCOL: Final = "magi-code.local-agent"
VERSION: Final = 1

FRAME_BYTES: Final = 65_536  # input without its LF, output with it
JSON_DEPTH: Final = 32
REQUESTS: Final = 4_096  # ids in one life; rejected ones count
PENDING_FRAMES: Final = 32
OUTPUT_DEADLINE_S: Final = 2.0
PROMPT_BYTES: Final = 16_384

ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ENVELOPE: Final = frozenset({"protocol", "version", "id", "method", "params"})


class Refused(Exception):
    """A request that is answered with an error code. ``close``: the connection ends after the answer."""

    def __init__(self, code: str, request_id: str | None = None, *, close: bool = False) -> None:
        super().__init__(code)
        self.code = code
        self.request_id = request_id
        self.close = close


class Fields(dict[str, Any]):
    """A JSON object that remembers whether one of its names came twice."""

    repeated: bool = False


@dataclass(frozen=True)
class Request:
    """One well-formed request."""

    id: str
    method: str
    params: Any


def _object(pairs: list[tuple[str, Any]]) -> Fields:
    fields = Fields(pairs)
    fields.repeated = len(fields) != len(pairs)
    return fields


def _integer(digits: str) -> int | float:
    """As the real child counts: beyond 64 bits, and for ``-0``, a number is no integer any more."""
    if len(digits) > 20 or digits == "-0":
        return float(digits)
    number = int(digits)
    return number if -(2**63) <= number < 2**64 else float(digits)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and the infinities are no JSON


def well_nested(line: bytes) -> bool:
    """Whether the brackets outside of strings close, and stand at most 32 deep; which closes which is not looked at."""
    rest = _STRING.sub(b"", line)
    if b'"' in rest:
        return False  # a string that never ends
    depth = 0
    for byte in re.findall(rb"[][{}]", rest):
        depth += 1 if byte in (b"{", b"[") else -1
        if not 0 <= depth <= JSON_DEPTH:
            return False
    return depth == 0


def parse_request(line: bytes) -> Request:
    """One line without its LF. An identity that cannot be trusted is answered with ``id: null``."""
    if not well_nested(line):
        raise Refused("invalid_frame")
    try:
        frame = json.loads(line.decode(), object_pairs_hook=_object, parse_int=_integer, parse_constant=_no_constant)
    except ValueError:  # not UTF-8, or not JSON
        raise Refused("invalid_request") from None
    if not isinstance(frame, Fields) or frame.repeated or frame.keys() != _ENVELOPE:
        raise Refused("invalid_request")
    protocol, version, request_id, method = (frame[k] for k in ("protocol", "version", "id", "method"))
    names = (request_id, method)
    if not all(isinstance(name, str) and ID.fullmatch(name) for name in names):
        raise Refused("invalid_request")
    if not isinstance(protocol, str) or type(version) is not int or version < 0:
        raise Refused("invalid_request")
    if (protocol, version) != (PROTOCOL, VERSION):
        raise Refused("protocol_mismatch", request_id, close=True)
    return Request(request_id, method, frame["params"])


def compact(value: Any) -> bytes:
    """The bytes that every bound counts: no spaces, sorted names, UTF-8 unescaped.

    ValueError (UnicodeEncodeError among them) for what has no such form: a lone surrogate, an infinity.
    """
    return _ENCODER.encode(value).encode()


def encode(frame: dict[str, Any]) -> bytes:
    """An output frame with its LF. ValueError when it is beyond the bound."""
    line = compact(frame) + b"\n"
    if len(line) > FRAME_BYTES:
        raise ValueError("output frame too large")
    return line


def readable(value: Any) -> bool:
    """Whether a value can be taken as data: JSON escapes can spell lone surrogates and infinite numbers."""
    try:
        compact(value)
    except ValueError:
        return False
    return True


Check = Callable[[Any], bool]


def fields(value: Any, required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Fields:
    """An object with exactly these names, each accepted by its check; ``invalid_params`` otherwise.

    ``required`` and ``optional`` map a name to a function of its value. Missing optional names are left out.
    """
    checks = {**required, **(optional or {})}
    if not isinstance(value, Fields) or value.repeated or not readable(value):
        raise Refused("invalid_params")
    if not required.keys() <= value.keys() <= checks.keys():
        raise Refused("invalid_params")
    if not all(checks[name](item) for name, item in value.items()):
        raise Refused("invalid_params")
    return value


def anything(_value: Any) -> bool:
    """Whatever it is, null too."""
    return True


def is_text(value: Any) -> bool:
    """Any string."""
    return isinstance(value, str)


def is_id(value: Any) -> bool:
    """An id of the 64-byte grammar."""
    return isinstance(value, str) and ID.fullmatch(value) is not None


def is_id_or_null(value: Any) -> bool:
    """An id, or null."""
    return value is None or is_id(value)


def is_session_id(value: Any) -> bool:
    """As an id, but without a dot: it names a file."""
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", value) is not None


def is_bool(value: Any) -> bool:
    """True or false."""
    return isinstance(value, bool)


def is_integer(value: Any, low: int, high: int) -> bool:
    """An integer without a fraction or an exponent (``1.0`` is none)."""
    return type(value) is int and low <= value <= high


def as_list(value: Any) -> list[Any] | None:
    """The value if it is an array."""
    return cast("list[Any]", value) if isinstance(value, list) else None
