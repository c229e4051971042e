"""The shape of a JSON text: how deep it is, whether a name stands twice. Owns no protocol; must never build values.

A decoder that meets 200,000 brackets dies, and one that meets a name twice keeps the last in silence; so both are seen
before anything is decoded. Sources: stdio protocol, Framing (32 containers; duplicate fields are refused).
"""

import json

import msgspec

from gateway.model.strictjson import occurrences, outside_strings

_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def deeper_than(text: bytes, limit: int) -> bool:
    """Whether ``text`` nests more than ``limit`` containers. Linear; needs no valid JSON."""
    if occurrences(text, b"{") + occurrences(text, b"[") <= limit:
        return False
    depth = 0
    for byte in outside_strings(text).translate(None, _NOT_BRACKETS):
        if byte in b"{[":
            depth += 1
            if depth > limit:
                return True
        else:
            depth -= 1
    return False


def members(text: bytes) -> int:
    """How many members all objects of ``text`` have together, each spelling of a name counted."""
    return outside_strings(text).count(b":")


class _RepeatedError(Exception):
    """A name stands twice in one object."""


def _once(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise _RepeatedError


def repeats_a_name(text: bytes) -> bool:
    """Whether an object in ``text``, at any level, has a name twice, however it is spelled.

    ``text`` must be valid JSON, no deeper than the interpreter likes (see ``deeper_than``).
    """
    if text.count(b":") < 2:
        return False
    try:  # a name that stands twice is kept once, so what is decoded and encoded again has fewer members
        again = msgspec.json.encode(msgspec.json.decode(text))
        if b"\\u" not in text and again.count(b":") == text.count(b":"):
            return False
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        pass  # not for this decoder: the slow way decides
    try:
        # Numbers stay text: 4,000 digits cost nothing, and no int limit is met.
        json.loads(text, object_pairs_hook=_once, parse_int=str, parse_float=str)
    except _RepeatedError:
        return True
    return False
