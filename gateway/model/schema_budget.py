"""The budgets of a schema that goes to the child (stdio protocol, Bounds and schemas). Owns what goes first when a
schema is over them; it takes annotations only, so what the schema accepts never changes."""

from typing import Any, Final

from gateway.model.limits import CHILD_SCHEMA_BYTES, CHILD_SCHEMA_DEPTH
from gateway.model.schema_words import walk
from gateway.model.strictjson import compact, json_depth

_ORDER: Final = ("examples", "title", "description", "default")
"""What a model misses least goes first."""
_DATA: Final = ("examples", "default")


def fit_schema(schema: dict[str, Any]) -> tuple[bytes | None, tuple[str, ...]]:
    """``schema`` in at most 8,192 bytes and 16 levels, and the keywords that were dropped for it; ``None`` if no
    dropping is enough. ``schema`` loses those keywords, deepest first."""
    encoded = compact(schema)
    places = sorted(walk(schema), key=lambda place: -len(place[0]))
    dropped: dict[str, None] = {}
    if json_depth(encoded) > CHILD_SCHEMA_DEPTH:
        for steps, inner in places:
            for word in _DATA:
                if word in inner and len(steps) + 1 + json_depth(compact(inner[word])) > CHILD_SCHEMA_DEPTH:
                    del inner[word]
                    dropped[word] = None
    over = len(compact(schema)) - CHILD_SCHEMA_BYTES
    for word in _ORDER:
        for _, inner in places:
            if over <= 0:
                break
            if word in inner:
                over -= len(compact({word: inner.pop(word)})) - 2 + bool(inner)
                dropped[word] = None
    encoded = compact(schema)
    fits = len(encoded) <= CHILD_SCHEMA_BYTES and json_depth(encoded) <= CHILD_SCHEMA_DEPTH
    return (encoded if fits else None), tuple(dropped)
