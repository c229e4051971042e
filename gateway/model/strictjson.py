"""Strict JSON: what a peer sends is measured before it is parsed. Owns that gate; must never loop over single bytes.

The gate holds for every side: UTF-8 without exception, no byte order mark, a bound on bytes and on nesting, no NaN or
Infinity and no number that would become one (1e400), no name twice in an object. Nesting is counted on the bytes with
the strings taken out, since a parser that recurses is no place to find out (msgspec raises RecursionError). A name
twice shows as a colon more in what came than in what its value encodes to. Both cost a few passes in C.
"""

import re
import sys
from itertools import accumulate, count
from operator import sub
from typing import Any, Final, cast

import msgspec

from gateway.model.errors import Code, Refusal
from gateway.model.limits import BODY_BYTES, REQUEST_JSON_DEPTH

CONTAINERS: Final = 100_000
"""Objects and lists in one JSON value; each costs a parser some 100 bytes and its garbage collector a visit."""
_KEPT: Final = b"[]{}:"
_DROPPED: Final = bytes(byte for byte in range(256) if byte not in _KEPT)
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_TWICE_OPEN: Final = bytes(2 if byte == ord("[") else 0 for byte in range(256))
_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_LARGEST: Final = int(sys.float_info.max)
_LARGEST_DIGITS: Final = 308
_HUGE: Final = b"0" * (_LARGEST_DIGITS + 1)
"""An integer with that many digits may be Infinity to a peer that reads doubles, and an error to the child."""
_ROUNDS: Final = 8
_LONG: Final = 2_048  # bytes from which on a few quotes are quicker found one by one
_FEW_QUOTES: Final = 128
_ESCAPED_COLON: Final = rb"\u003"  # a or A, and some others
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


def check_json(raw: bytes, *, max_depth: int = REQUEST_JSON_DEPTH, max_bytes: int = BODY_BYTES) -> None:
    """Refuse what is not one strict JSON value of at most ``max_bytes`` bytes and ``max_depth`` containers deep.

    Raises ``Refusal``: TOO_LARGE for the bytes, INVALID_REQUEST for everything else. Neither quotes ``raw``.
    """
    parse_json(raw, max_depth=max_depth, max_bytes=max_bytes)


def parse_json(
    raw: bytes, *, max_depth: int = REQUEST_JSON_DEPTH, max_bytes: int = BODY_BYTES, mend_surrogates: bool = False
) -> Any:
    """As ``check_json``, and the value. ``mend_surrogates`` turns escaped lone surrogates into U+FFFD (bridge 6);
    without it they are refused."""
    if len(raw) > max_bytes:
        raise Refusal(Code.TOO_LARGE, f"the JSON has more than {max_bytes} bytes")
    if occurrences(raw, b"[") + occurrences(raw, b"{") > max_depth:
        brackets = _brackets(raw)
        if brackets.count(b"[") > CONTAINERS:
            raise Refusal(Code.INVALID_REQUEST, f"the JSON has more than {CONTAINERS} objects and lists")
        if _depth(brackets) > max_depth:
            raise Refusal(Code.INVALID_REQUEST, f"the JSON is nested more than {max_depth} deep")
    try:
        value = _decode(raw)
    except msgspec.DecodeError as error:
        if mend_surrogates and (mended := replace_surrogates(raw)) != raw:
            return parse_json(mended, max_depth=max_depth, max_bytes=max_bytes + len(mended) - len(raw))
        raise Refusal(Code.INVALID_REQUEST, f"not valid JSON: {_reason(error)}") from None
    if len(raw) > _LARGEST_DIGITS and _has_long_number(raw) and _has_huge_integer(value):
        raise Refusal(Code.INVALID_REQUEST, "not valid JSON: a number is out of range")
    if _has_name_twice(raw, value):
        raise Refusal(Code.INVALID_REQUEST, "an object in the JSON has the same name twice")
    return value


def occurrences(raw: bytes, byte: bytes) -> int:
    """How often one byte stands in ``raw``. What is rare in a long text is found far quicker so than by ``count``."""
    return raw.count(byte) if len(raw) < _LONG else len(raw) - len(raw.replace(byte, b""))


def outside_strings(raw: bytes) -> bytes:
    """``raw`` without its strings: what is left has brackets, colons and commas as structure only.

    Of text that is no JSON it is right up to where a decoder stops.
    """
    if len(raw) < _LONG or occurrences(raw, b'"') > _FEW_QUOTES:
        # Without escaped backslashes and quotes, every other piece between quotes is a string.
        if b"\\" in raw:
            raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
        return b"".join(raw.split(b'"')[::2])
    pieces: list[bytes] = []
    end = -1
    while (begin := raw.find(b'"', end + 1)) >= 0:
        pieces.append(raw[end + 1 : begin])
        if (end := _string_end(raw, begin)) < 0:
            return b"".join(pieces)
    return b"".join((*pieces, raw[end + 1 :]))


def _string_end(raw: bytes, begin: int) -> int:
    """Where the string that begins at ``begin`` has its closing quote: one behind an even number of backslashes."""
    start = begin + 1
    while (end := raw.find(b'"', start)) >= 0:
        before = raw[start:end]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            return end
        start = end + 1
    return -1


def json_depth(raw: bytes) -> int:
    """How many containers deep ``raw`` is nested; 0 for a bare string or number. ``raw`` is one JSON value."""
    return _depth(_brackets(raw))


def _brackets(raw: bytes) -> bytes:
    """The brackets outside strings, braces as square ones."""
    return _marks(raw).replace(b":", b"").translate(_ONE_KIND)


def _depth(brackets: bytes) -> int:
    # Each round takes the innermost level away, so real documents are done after a few; what is left is counted.
    taken = 0
    while taken < _ROUNDS and brackets:
        brackets = brackets.replace(b"[]", b"")
        taken += 1
    # The level behind the n-th bracket is twice the number of opening ones less n.
    return taken + max(map(sub, accumulate(brackets.translate(_TWICE_OPEN)), count(1)), default=0)


def replace_surrogates(raw: bytes) -> bytes:
    """JSON text with each escaped lone surrogate turned into an escaped U+FFFD; pairs and everything else stay."""
    if b"\\ud" not in raw and b"\\uD" not in raw:
        return raw
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], raw)


def compact(value: Any) -> bytes:
    """A JSON value in its shortest encoding, raw UTF-8, the names in the order they have."""
    return _encode(value)


def _marks(raw: bytes) -> bytes:
    """The brackets and colons of ``raw`` that stand outside its strings."""
    return outside_strings(raw).translate(None, _DROPPED)


def _has_name_twice(raw: bytes, value: Any) -> bool:
    # The value keeps one of two members, so its encoding has a colon less. Colons in strings are on both sides, unless
    # one was written as an escape.
    came = occurrences(raw, b":")
    kept = _colons(value) if len(raw) >= _LONG else _encode(value).count(b":")
    if kept < came or (kept == came and _ESCAPED_COLON not in raw):
        return kept < came
    return occurrences(_marks(raw), b":") != occurrences(_marks(_encode(value)), b":")


def _colons(value: Any) -> int:
    """The colons in the encoding of ``value``. A large text in an object is not encoded for that."""
    if not isinstance(value, dict):
        return occurrences(_encode(value), b":")
    members = cast(dict[str, Any], value)
    return len(members) + sum(
        name.count(":") + (occurrences(item.encode(), b":") if isinstance(item, str) else _colons_of(item))
        for name, item in members.items()
    )


def _colons_of(item: Any) -> int:
    return occurrences(_encode(item), b":") if isinstance(item, dict | list) else 0


def _has_long_number(raw: bytes) -> bool:
    """Whether there is a run of more digits than a double's largest integer has; one has three of the samples."""
    return b"000" in raw[:: _LARGEST_DIGITS // 3].translate(_ZEROS) and _HUGE in raw.translate(_ZEROS)


def _has_huge_integer(value: Any) -> bool:
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            waiting += cast(dict[str, Any], inner).values()
        elif isinstance(inner, list):
            waiting += cast(list[Any], inner)
        elif isinstance(inner, int) and abs(inner) > _LARGEST:
            return True
    return False


def _reason(error: msgspec.DecodeError) -> str:
    text = str(error)
    if isinstance(error, msgspec.ValidationError):
        return "a number is out of range"
    if "surrogate" in text or "truncated" in text:
        return "it ends early, or holds half of a surrogate pair" if "truncated" in text else "a lone surrogate"
    return text.removeprefix("JSON is malformed: ")
