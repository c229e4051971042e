"""What ``initialize`` negotiates. Pure: capabilities, limits, extensions and the check of its params."""

from dataclasses import dataclass, field
from typing import Any, Final

import cards
import registry
from frames import Refused, as_list, fields, is_id

BASE: Final = (
    "initialize",
    "status",
    "shutdown",
    "session.create",
    "session.open",
    "session.list",
    "model.catalog",
    "selection.set",
    "history.page",
    "turn.start",
    "turn.cancel",
    "approval.answer",
    "session.discover",
    "model.catalog.status",
    "model.refresh",
    "operation.cancel",
)
ON_REQUEST: Final = frozenset({"session.discover", "model.catalog.status", "model.refresh", "operation.cancel"})
"""Listed always, but ``unsupported_capability`` for whoever did not require them."""
CLIENT_TOOLS: Final = "client.tools"
TOOL_CARDS: Final = "tool.cards"
REQUIRED: Final = 16
REQUIRED_WITH_TOOLS: Final = 18

LIMITS: Final = {
    "catalog_file_bytes": 1_048_576,
    "catalog_models": 2_048,
    "catalog_page_bytes": 32_768,
    "catalog_page_entries": 100,
    "catalog_providers": 32,
    "catalog_scan_bytes": 8_388_608,
    "catalog_scan_ms": 2_000,
    "catalog_snapshot_bytes": 1_048_576,
    "catalog_string_bytes": 256,
    "content_chunk_bytes": 16_384,
    "discovery_directory_entries": 4_096,
    "discovery_page_bytes": 32_768,
    "discovery_page_entries": 100,
    "discovery_scan_bytes": 67_108_864,
    "discovery_scan_lines": 100_000,
    "discovery_scan_ms": 2_000,
    "discovery_session_bytes": 8_388_608,
    "discovery_session_lines": 10_000,
    "discovery_sessions": 256,
    "discovery_title_bytes": 256,
    "frame_bytes": 65_536,
    "history_page_bytes": 32_768,
    "history_page_entries": 100,
    "id_bytes": 64,
    "json_depth": 32,
    "output_deadline_ms": 2_000,
    "pending_responses": 32,
    "prompt_bytes": 16_384,
    "requests_per_child": 4_096,
    "selection_append_bytes": 4_096,
}
EXTENSIONS: Final[dict[str, dict[str, Any]]] = {
    "session.discover": {
        "consistency": "provisional_until_complete",
        "ordering": "directory",
        "step_directory_entries": 256,
        "step_lines": 10_000,
        "step_bytes": 8_388_608,
        "record_bytes": 8_388_608,
        "step_ms": 2_000,
        "page_entries": 100,
        "page_bytes": 32_768,
    },
    "model.refresh": {
        "providers_per_request": 1,
        "cache_bytes": 1_048_576,
        "models": 2_048,
        "preferences": "unchanged",
    },
}


@dataclass(frozen=True)
class Negotiated:
    """What this child and its client agreed on. ``tools`` is None without ``client.tools``."""

    required: frozenset[str] = frozenset()
    tools: dict[str, registry.Tool] | None = field(default=None)

    def offers(self, method: str) -> bool:
        """Whether a method that must be required was."""
        return method not in ON_REQUEST or method in self.required

    @property
    def cards(self) -> bool:
        """Whether cards were asked for."""
        return TOOL_CARDS in self.required

    def result(self, status: dict[str, Any]) -> dict[str, Any]:
        """The result of ``initialize``."""
        answer: dict[str, Any] = {"capabilities": list(BASE), "limits": LIMITS, "status": status}
        extensions = {name: EXTENSIONS[name] for name in EXTENSIONS if name in self.required}
        if self.cards:
            answer["capabilities"].append(TOOL_CARDS)
            extensions[TOOL_CARDS] = cards.EXTENSION
        if self.tools is not None:
            offered = {"tools": list(self.tools), "limits": registry.LIMITS}
            answer["capabilities"].append(CLIENT_TOOLS)
            answer["client_tools"] = offered
            extensions[CLIENT_TOOLS] = {"schema_version": 1, "registration": "startup_only", **offered}
        if extensions:
            answer["extensions"] = extensions
        return answer


def negotiate(params: Any) -> Negotiated:
    """Check all before anything starts: ``invalid_params`` or ``unsupported_capability``, and both may be retried."""

    def required_names(value: Any) -> bool:
        names = as_list(value)
        return names is not None and all(map(is_id, names))

    def array(value: Any) -> bool:
        return as_list(value) is not None

    value = fields(params, {"required_capabilities": required_names}, {"client_tools": array})
    names: list[str] = value["required_capabilities"]
    wants_tools = CLIENT_TOOLS in names
    if len(names) > (REQUIRED_WITH_TOOLS if wants_tools else REQUIRED):
        raise Refused("invalid_params")
    given = value.get("client_tools")
    tools = None if given is None else registry.read(given)
    if not set(names) <= {*BASE, CLIENT_TOOLS, TOOL_CARDS}:
        raise Refused("unsupported_capability")
    if wants_tools != (tools is not None):
        raise Refused("invalid_params")
    return Negotiated(frozenset(names), tools)
