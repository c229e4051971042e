"""Redaction inside encoded JSON. Owns which tokens are written anew; must never change a byte of what is not removed.

Numbers, key order, duplicate keys and escapes stay as they came: only the tokens that lose something are written anew.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.model.redaction.places import Places


class RedactionCollision(Exception):
    """Two keys of one object would become one. Says nothing about the keys."""

    def __init__(self) -> None:
        super().__init__("two keys of one object are the same after redaction")


@dataclass(slots=True)
class Changes:
    """What one JSON value needs. ``new``: tokens by where the old ones begin and end in the plain text, in any order;
    ``renamed``: keys, as they were and as they are."""

    new: dict[int, tuple[int, bytes]] = field(default_factory=dict[int, tuple[int, bytes]])
    renamed: dict[str, str] = field(default_factory=dict[str, str])


def look(places: Places, text: Callable[[str], str], marks: Iterable[int], changes: Changes) -> None:
    """Look through the strings that need it. ``marks``: where in the plain text a match may begin, in order; only what
    has one of them inside is decoded. A known secret may stand as a number too: that becomes a string.
    Raises ValueError for a string that is not closed."""
    reached = 0  # up to here all is done
    for mark in marks:
        if mark < reached:
            continue
        if string := places.string_at(mark):
            start, reached = string
            old = places.decoded(start, reached)
            if (new := text(old)) != old:
                changes.new[start - 1] = reached + 1, encoded(new)
                if places.is_key(reached):
                    changes.renamed[old] = new
        elif scalar := places.scalar_at(mark, reached):
            start, reached = scalar
            old = places.decoded(start, reached)
            if (new := text(old)) != old:
                changes.new[start] = reached, encoded(new)


def encoded(text: str) -> bytes:
    """A string as JSON."""
    try:
        return json.dumps(text, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate can only be written as an escape
        return json.dumps(text).encode()


def applied(raw: bytes, places: Places, changes: Changes) -> bytes:
    """``raw`` with new tokens in the places of old ones. Raises ``RedactionCollision``, and ValueError for what is not
    JSON."""
    _check(raw, changes.renamed)
    pieces: list[bytes] = []
    copied = 0
    for start, (end, new) in sorted(changes.new.items()):
        pieces += (raw[copied : places.in_value(start)], new)
        copied = places.in_value(end - 1) + 1
    return b"".join((*pieces, raw[copied:]))


def _check(raw: bytes, renamed: dict[str, str]) -> None:
    try:
        text = raw.decode("utf-8", "surrogatepass")
    except ValueError:
        raise ValueError("not JSON: not UTF-8") from None
    if not renamed and _is_json(raw):
        return

    def closed(pairs: list[tuple[str, Any]]) -> None:
        keys = {key for key, _ in pairs}
        if len({renamed.get(key, key) for key in keys}) < len(keys):
            raise RedactionCollision

    try:  # a number's value is of no interest, and may be too long to have one
        json.loads(text, object_pairs_hook=closed, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        raise ValueError("not JSON, or nested too deep") from None


def _is_json(raw: bytes) -> bool:
    """Ten times as quick as to read it. A lone surrogate's escape is refused here, though it is JSON."""
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
    except (ValueError, RecursionError):
        return False
    return True
