"""Where references inside one schema lead. Owns resolution within the document; it never leaves it.

Plain rules only: ``#``, JSON pointers, one ``$anchor``, and an ``$id`` of this very document written the same way.
Whoever meets a reference beyond them has to go on without its target.
"""

from typing import Any, cast
from urllib.parse import unquote

from gateway.model.schema_words import Dialect, Schema, objects, walk


class References:
    """The references of the document ``root``."""

    def __init__(self, root: Schema, dialect: Dialect) -> None:
        self._dialect = dialect
        self._id_word = "id" if dialect is Dialect.DRAFT4 else "$id"
        self._ids: dict[str, dict[str, Any]] = {}
        self._anchors: dict[str, list[dict[str, Any]]] = {}
        self._plain = not any(inner is not root and self.opens_scope(inner) for inner in objects(root))
        for _, inner in walk(root):
            identity: object = inner.get(self._id_word)
            if isinstance(identity, str) and identity.startswith("#"):
                self._anchors.setdefault(identity[1:], []).append(inner)
            elif isinstance(identity, str):
                self._ids[identity.removesuffix("#")] = inner
            if isinstance(anchor := inner.get("$anchor"), str):
                self._anchors.setdefault(anchor, []).append(inner)

    def local(self, reference: str) -> bool:
        """Whether ``reference`` stays inside the document: it starts with ``#`` or with an ``$id`` of it."""
        return reference.startswith("#") or reference.partition("#")[0] in self._ids

    def opens_scope(self, schema: dict[str, Any]) -> bool:
        """Whether references below ``schema`` start from it."""
        if self._dialect.ref_stands_alone and "$ref" in schema:
            return False
        identity: object = schema.get(self._id_word)
        return isinstance(identity, str) and not identity.startswith("#")

    def known(self, reference: str, base: Schema) -> tuple[Schema, Schema] | None:
        """As ``resolve``, where it is certain that every library resolves it so: a document with an ``$id`` inside has
        rules of addresses that are not followed here."""
        return self.resolve(reference, base) if self._plain else None

    def resolve(self, reference: str, base: Schema) -> tuple[Schema, Schema] | None:
        """The schema that ``reference`` means where references start from ``base``, and where its own start from."""
        identity, _, fragment = reference.partition("#")
        if identity:
            known = self._ids.get(identity)
            if known is None:
                return None
            base = known
        fragment = unquote(fragment)
        if fragment == "":
            return base, base
        if fragment.startswith("/"):
            return self._point(fragment, base)
        anchored = self._anchors.get(fragment, [])
        return (anchored[0], base) if len(anchored) == 1 and not self._ids else None

    def _point(self, pointer: str, base: Schema) -> tuple[Schema, Schema] | None:
        place: Any = base
        for step in pointer[1:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(place, dict):
                place = cast(dict[str, Any], place).get(name)
            elif isinstance(place, list) and name.isdecimal() and int(name) < len(cast(list[Any], place)):
                place = cast(list[Any], place)[int(name)]
            else:
                return None
            if isinstance(place, dict) and self.opens_scope(cast(dict[str, Any], place)):
                base = cast(dict[str, Any], place)
        return (cast(Schema, place), base) if isinstance(place, (dict, bool)) else None
