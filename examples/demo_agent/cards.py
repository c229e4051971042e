"""Display cards of tool activities, for whoever required ``tool.cards``. Pure: snapshots, never events.

A card is a whole snapshot with a rising ``revision``: at the start it knows nothing, then the tool's name, at the end
the outcome. Arguments and results never stand in one (stdio protocol, "Execute and reply").
"""

from typing import Any, Final

EXTENSION: Final[dict[str, Any]] = {
    "blocks_per_card": 16,
    "card_bytes": 16_384,
    "cards_per_run": 4_096,
    "children_depth": 8,
    "children_per_block": 32,
    "core_bytes": 2_048,
    "diff_lines_per_block": 128,
    "event": "tool.card",
    "history_field": "tool_card",
    "metadata_bytes": 512,
    "preview_bytes": 4_096,
    "retained_card_bytes": 8_388_608,
    "rows_per_block": 32,
    "run_snapshot_bytes": 33_554_432,
    "schema_version": 1,
    "snapshot_parts": 1,
    "snapshots_per_run": 16_384,
    "string_bytes": 1_024,
    "title_bytes": 256,
}
"""What ``initialize`` says of cards."""

_NO_DETAIL: Final = {"format": "plain", "language": None, "rows": None, "text": "Detail unavailable for this tool"}


def snapshot(
    activity_id: str, revision: int, name: str | None, *, task_id: str | None = None, outcome: str | None = None
) -> dict[str, Any]:
    """One snapshot: without a ``name`` the first of its card, with an ``outcome`` the last."""
    missing, subject = ("missing_source", "blocks") if name is None else ("unsupported_source", "text")
    return {
        "activity_id": activity_id,
        "blocks": [] if name is None else [{**_NO_DETAIL, "type": "text"}],
        "card_id": activity_id,
        "changes": "unknown",
        "detail": {"availability": "unavailable" if name is None else "truncated", "reason": missing},
        "metadata": {
            "public_protection": {"decision": "not_reported", "summary": None},
            "resource_path": None,
            "tool_name": name,
            "working_directory": None,
        },
        "omissions": [{"omitted_count": None, "reason": missing, "subject": subject}],
        "origin": "live",
        "outcome": outcome,
        "parent_activity_id": None,
        "parent_state": "root" if task_id is None else "unavailable",
        "revision": revision,
        "schema_version": 1,
        "state": "running" if outcome is None else "finished",
        "task_id": task_id,
        "title": name or "Tool",
        "tool_kind": "other",
    }
