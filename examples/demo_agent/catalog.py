"""The demo models, and lists that are read page by page. Pure; no model is behind any of them."""

import hashlib
import re
import uuid
from typing import Any, Final

from frames import Fields, Refused, compact, fields, is_id, is_id_or_null, is_integer

PROVIDER: Final = "demo"
MODELS: Final = {
    "rules": ["default"],
    "echo": ["default"],
    "rules-deep": ["default", "low", "medium", "high"],
}
"""Model name to the efforts that it takes. ``echo`` repeats every plain prompt; the others follow the rules."""
EFFORTS: Final = frozenset({"low", "medium", "high", "xhigh", "max"})
PAGE_BYTES: Final = 32_768
_SAFE = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")

PROVIDER_STATUS: Final = {
    "provider": PROVIDER,
    "catalog_status": "available",
    "authentication": "ready",
    "relevant": True,
    "recovery": "none",
}


def page_params(params: Any) -> "Page":
    """``revision``, ``cursor`` and ``limit`` of a listing: both of the first two, or neither."""

    def count(value: Any) -> bool:
        return is_integer(value, 1, 100)

    value = fields(params, {}, {"revision": is_id_or_null, "cursor": is_id_or_null, "limit": count})
    revision, cursor = value.get("revision"), value.get("cursor")
    if (revision is None) != (cursor is None):
        raise Refused("invalid_params")
    return revision, cursor, value.get("limit", 100)


Page = tuple[str | None, str | None, int]
"""Revision, cursor and limit of a listing."""


class Pager:
    """One snapshot of a list. A fresh first page replaces it; ``stale`` is the code for a page of another one."""

    def __init__(self, key: str, stale: str) -> None:
        self.key = key
        self.stale = stale
        self.revision: str | None = None
        self.items: list[dict[str, Any]] = []

    def fresh(self, items: list[dict[str, Any]]) -> str:
        """Take a new snapshot; its revision."""
        self.revision, self.items = str(uuid.uuid4()), items
        return self.revision

    def page(self, revision: str | None, cursor: str | None, limit: int) -> dict[str, Any]:
        """One page; the first without a cursor, after ``fresh``."""
        prefix, _, offset = (cursor or f"{self.revision}.0").rpartition(".")
        known = revision in (None, self.revision) and prefix == self.revision and offset.isdecimal()
        if not known or not 0 <= (start := int(offset)) <= len(self.items):
            raise Refused(self.stale)
        taken: list[dict[str, Any]] = []
        room = PAGE_BYTES - 1_024
        for item in self.items[start : start + limit]:
            room -= len(compact(item)) + 1
            if taken and room < 0:
                break
            taken.append(item)
        end = start + len(taken)
        done = end == len(self.items)
        return {
            "revision": self.revision,
            self.key: taken,
            "next_cursor": None if done else f"{self.revision}.{end}",
            "complete": done,
        }


def choices() -> list[dict[str, Any]]:
    """The models as ``model.catalog`` lists them, by name."""
    return [
        {
            "selection_id": hashlib.sha256(f"{PROVIDER}/{model}".encode()).hexdigest(),
            "provider": PROVIDER,
            "model": model,
            "provider_name": "Demo",
            "model_name": None,
            "availability": "available",
            "effort_support": "supported" if len(efforts) > 1 else "unsupported",
            "permitted_efforts": efforts,
        }
        for model, efforts in sorted(MODELS.items())
    ]


def selection(model: str, effort: str = "default") -> dict[str, Any]:
    """The selection as ``status`` shows it, with a fresh revision."""
    efforts = MODELS[model]
    supported = len(efforts) > 1
    return {
        "revision": str(uuid.uuid4()),
        "provider": PROVIDER,
        "model": model,
        "requested_effort": effort,
        "effective_effort": effort if supported else None,
        "effort_support": "supported" if supported else "unsupported",
        "permitted_efforts": efforts,
    }


def is_provider(value: Any) -> bool:
    """The one provider that there is."""
    return value == PROVIDER


def _effort(value: Any) -> bool:
    if not isinstance(value, Fields) or value.repeated:
        return False
    if value.get("mode") == "set":
        return value.keys() == {"mode", "value"} and isinstance(value["value"], str) and value["value"] in EFFORTS
    return value.keys() == {"mode"} and value["mode"] in ("keep", "default")


def _name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.encode()) <= 256 and _SAFE.fullmatch(value) is not None


SELECTION_FIELDS: Final = {
    **dict.fromkeys(("session_id", "selection_revision", "catalog_revision"), is_id),
    **dict.fromkeys(("provider", "model"), _name),
}
SELECTION_OPTIONAL: Final = {"effort": _effort}


def choose(current: dict[str, Any], params: Fields) -> dict[str, Any]:
    """The selection that ``selection.set`` makes: ``selection_invalid`` or ``effort_unsupported``."""
    model = params["model"]
    if params["provider"] != PROVIDER or model not in MODELS:
        raise Refused("selection_invalid")
    effort = params.get("effort", {"mode": "keep"})
    wanted = {"keep": current["requested_effort"], "default": "default"}.get(effort["mode"], effort.get("value"))
    if wanted not in MODELS[model]:
        raise Refused("effort_unsupported")
    return selection(model, wanted)
