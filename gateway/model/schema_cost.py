"""How long checking a value by a schema can take. Owns an upper bound on the work; runs no check.

Without references a check visits each subschema at most once for each part of a value. References multiply: a chain of
``allOf`` of two references each, twenty deep, is a million visits of one value, and recursion through ``anyOf`` doubles
them with each level of the value. The bound counts visits along one path down a value.
"""

from typing import Any, Final, NamedTuple, cast

from gateway.model.references import References
from gateway.model.schema_words import NAMED, REFERENCES, Schema

VERDICT_VISITS: Final = 1_000_000
"""Visits along one path of a value for which a yes or no still takes some 50 ms."""
NAMING_VISITS: Final = 1_000
"""The same where the error is to be named: the library then keeps what each alternative says (45 us a visit)."""
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

    __slots__ = ("below", "same")

    def __init__(self) -> None:
        self.same: list[_Node] = []
        self.below: list[list[_Node]] = []


class Depths(NamedTuple):
    """How many levels a value may have for a verdict, and for an error with its path; -1 when not even one."""

    verdict: int
    naming: int


def cheap_depths(root: Schema, references: References, deepest: int) -> Depths:
    """The levels, at most ``deepest``, down to which a check stays within the two bounds on visits."""
    nodes: dict[int, _Node] = {}
    top = _node(root, root, references, nodes)
    before: dict[_Node, int] = {}
    naming = deepest
    for depth in range(deepest + 1):
        visits: dict[_Node, int] = {}
        for node in nodes.values():
            _count(node, before, visits, set())
        if visits[top] > NAMING_VISITS:
            naming = min(naming, depth - 1)
        if visits[top] > VERDICT_VISITS:
            return Depths(depth - 1, naming)
        if visits == before:
            break
        before = visits
    return Depths(deepest, naming)


def _count(node: _Node, before: dict[_Node, int], visits: dict[_Node, int], open_: set[_Node]) -> int:
    if node in visits:
        return visits[node]
    if node in open_:
        return 0  # the library stops at a reference that comes back without a step down
    open_.add(node)
    total = 1 + sum(_count(inner, before, visits, open_) for inner in node.same)
    total += sum(max(before.get(inner, 0) for inner in group) for group in node.below)
    open_.discard(node)
    visits[node] = min(total, VERDICT_VISITS + 1)
    return visits[node]


def _node(schema: Schema, base: Schema, references: References, nodes: dict[int, _Node]) -> _Node:
    if not isinstance(schema, dict):
        return _Node()
    if id(schema) in nodes:
        return nodes[id(schema)]
    node = nodes[id(schema)] = _Node()
    if references.opens_scope(schema):
        base = schema
    for word in REFERENCES:
        reference: object = schema.get(word)
        found = references.resolve(reference, base) if isinstance(reference, str) else None
        if found is not None:
            node.same.append(_node(*found, references, nodes))
    for word, value in schema.items():
        if word in _SAME_PLACE or word in _BELOW:
            parts = [_node(inner, base, references, nodes) for inner in _schemas(word, value)]
            if word in _SAME_PLACE:
                node.same += parts
            elif parts:
                node.below += [parts] if word in _EXCLUSIVE else [[part] for part in parts]
    return node


def _schemas(word: str, value: Any) -> list[dict[str, Any]]:
    """The object schemas that a keyword holds."""
    if isinstance(value, dict):
        held = cast(dict[str, Any], value)
        parts: list[Any] = list(held.values()) if word in NAMED else [held]
    else:
        parts = cast(list[Any], value) if isinstance(value, list) else []
    return [cast(dict[str, Any], part) for part in parts if isinstance(part, dict)]
