"""How long a schema takes to compile, and a value to check by it. Owns upper bounds on that work; does none of it.

Without references a check visits each subschema at most once for each part of a value. References multiply: a chain of
``allOf`` of two references each, twenty deep, is a million visits of one value, and recursion through ``anyOf`` doubles
them with each level of the value. The bound counts visits along one path down a value. A reference that is not known
to lead where the library takes it may lead anywhere, so it counts as more than the bound.
"""

from typing import Any, Final, NamedTuple, cast

from gateway.model.references import References
from gateway.model.schema_words import NAMED, REFERENCES, UNEVALUATED, Schema, walk

VERDICT_VISITS: Final = 1_000_000
"""Visits along one path of a value for which a yes or no still takes some 50 ms."""
NAMING_VISITS: Final = 1_000
"""The same where the error is to be named: the library then keeps what each alternative says (45 us a visit)."""
EXPANDED: Final = 2_000
"""Subschemas that the library compiles for an ``unevaluated…`` keyword: for each way down through references anew."""
_SAME_PLACE: Final = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"}
)
_BELOW: Final = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "items",
        "patternProperties",
        "prefixItems",
        "properties",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_EXCLUSIVE: Final = frozenset({"prefixItems", "properties"})
"""Keywords of which one part at most applies to one part of a value."""


class _Node:
    """One subschema: what else is visited at the same place, and below it (groups of which one part applies)."""

    __slots__ = ("below", "same", "unknown")

    def __init__(self) -> None:
        self.same: list[_Node] = []
        self.below: list[list[_Node]] = []
        self.unknown = False  # it has a reference that is not known


class Depths(NamedTuple):
    """How many levels a value may have for a verdict, and for an error with its path; -1 when not even one."""

    verdict: int
    naming: int


def cheap_depths(root: Schema, references: References, deepest: int) -> Depths:
    """The levels, at most ``deepest``, down to which a check stays within the two bounds on visits."""
    nodes = _nodes(root, references)
    top = nodes[id(root)]
    before: dict[_Node, int] = {}
    naming = deepest
    for depth in range(deepest + 1):
        visits: dict[_Node, int] = {}
        for node in nodes.values():
            _count(node, before, visits)
        if visits[top] > NAMING_VISITS:
            naming = min(naming, depth - 1)
        if visits[top] > VERDICT_VISITS:
            return Depths(depth - 1, naming)
        if visits == before:
            break
        before = visits
    return Depths(deepest, naming)


def unfolds(root: Any, references: References) -> bool:
    """Whether an ``unevaluatedProperties`` or ``unevaluatedItems`` stands over references that multiply: to compile the
    schema could take for ever. ``root`` is looked through whole, as a reference may lead to any place in it."""
    left = EXPANDED
    waiting: list[tuple[Any, Schema]] = [(root, root)]
    while waiting:
        place, base = waiting.pop()
        if isinstance(place, list):
            waiting += [(inner, base) for inner in cast(list[Any], place)]
        elif isinstance(place, dict):
            schema = cast(dict[str, Any], place)
            if references.opens_scope(schema):
                base = schema
            if any(word in schema for word in UNEVALUATED):
                left = _unfold(schema, base, references, left)
                if left < 0:
                    return True
            waiting += [(inner, base) for inner in schema.values()]
    return False


def _unfold(schema: Schema, base: Schema, references: References, left: int) -> int:
    """What is left of ``left`` once every way from ``schema`` at its place has been gone; negative for too many."""
    waiting: list[tuple[Schema, Schema, frozenset[int]]] = [(schema, base, frozenset())]
    while waiting and left >= 0:
        inner, base, gone = waiting.pop()
        if not isinstance(inner, dict) or id(inner) in gone:
            continue
        left -= 1
        gone |= {id(inner)}
        if references.opens_scope(inner):
            base = inner
        for word, value in inner.items():
            if word in REFERENCES and isinstance(value, str):
                found = references.known(value, base)
                if found is None:
                    return -1
                waiting.append((*found, gone))
            elif word in _SAME_PLACE:
                waiting += [(part, base, gone) for part in _schemas(word, value)]
            elif word in _BELOW:
                left -= sum(1 for part in _schemas(word, value) for _ in walk(part))
    return left


def _count(start: _Node, before: dict[_Node, int], visits: dict[_Node, int]) -> None:
    """The visits of ``start`` and of all that is visited with it, the last first: a chain may be a thousand long."""
    open_: set[_Node] = set()
    waiting = [start]
    while waiting:
        node = waiting[-1]
        if node not in visits and node not in open_:
            open_.add(node)
            waiting += [inner for inner in node.same if inner not in visits and inner not in open_]
            if waiting[-1] is not node:
                continue
        waiting.pop()
        if node not in visits:
            # What is open has none yet: the library stops at a reference that comes back without a step down.
            total = 1 + sum(visits.get(inner, 0) for inner in node.same)
            total += sum(max(before.get(inner, 0) for inner in group) for group in node.below)
            visits[node] = VERDICT_VISITS + 1 if node.unknown else min(total, VERDICT_VISITS + 1)


def _nodes(root: Schema, references: References) -> dict[int, _Node]:
    """The object schemas that can be reached from ``root``, by their identity."""
    nodes = {id(root): _Node()}
    waiting: list[tuple[Schema, Schema]] = [(root, root)]

    def node_of(schema: Schema, base: Schema) -> _Node:
        found = nodes.get(id(schema)) if isinstance(schema, dict) else _Node()
        if found is None:
            found = nodes[id(schema)] = _Node()
            waiting.append((schema, base))
        return found

    while waiting:
        schema, base = waiting.pop()
        if not isinstance(schema, dict):
            continue
        node = nodes[id(schema)]
        if references.opens_scope(schema):
            base = schema
        for word in REFERENCES:
            if isinstance(reference := schema.get(word), str):
                found = references.known(reference, base)
                node.unknown |= found is None
                node.same += [] if found is None else [node_of(*found)]
        for word, value in schema.items():
            if word in _SAME_PLACE or word in _BELOW:
                parts = [node_of(inner, base) for inner in _schemas(word, value)]
                if word in _SAME_PLACE:
                    node.same += parts
                elif parts:
                    node.below += [parts] if word in _EXCLUSIVE else [[part] for part in parts]
    return nodes


def _schemas(word: str, value: Any) -> list[dict[str, Any]]:
    """The object schemas that a keyword holds."""
    if isinstance(value, dict):
        held = cast(dict[str, Any], value)
        parts: list[Any] = list(held.values()) if word in NAMED else [held]
    else:
        parts = cast(list[Any], value) if isinstance(value, list) else []
    return [cast(dict[str, Any], part) for part in parts if isinstance(part, dict)]
