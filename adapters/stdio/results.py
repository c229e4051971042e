"""What a child answers: the result of each method, typed. Owns their shapes; must never hold state.

Source: stdio protocol, Methods; the base protocol's pages of history, models and sessions. Further fields are ignored:
version 1 may gain optional ones.
"""

from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from adapters.stdio.frames import Id


class Status(Struct, frozen=True):
    """``status``, and the ``status`` of ``initialize``. ``readiness`` is ``ready`` or the code of a failed start."""

    state: Literal["starting", "idle", "running", "failed"]
    readiness: str
    provider: str | None = None
    model: str | None = None
    context_id: str | None = None
    session_id: str | None = None
    run_id: str | None = None
    selection: "Selection | None" = None


class RegisteredTools(Struct, frozen=True):
    """``client_tools`` of ``initialize``: the names in the order of their registration, and the child's bounds."""

    tools: list[str]
    limits: dict[str, int]


class Initialized(Struct, frozen=True):
    """The child is ready."""

    capabilities: list[str]
    limits: dict[str, int]
    status: Status
    client_tools: RegisteredTools | None = None
    extensions: dict[str, Raw] = msgspec.field(default_factory=dict[str, Raw])


class Attached(Struct, frozen=True):
    """``session.create``, ``session.open``."""

    session_id: Id
    durable: bool
    revision: str
    notices: list[str]


class Admitted(Struct, frozen=True):
    """``turn.start``: admitted, no more."""

    run_id: Id
    accepted: Literal[True]


class CancelRequested(Struct, frozen=True):
    """``turn.cancel``."""

    cancellation_requested: bool


class ApprovalRecorded(Struct, frozen=True):
    """``approval.answer``: this answer was the one that counts."""

    recorded: bool


class ResultAccepted(Struct, frozen=True):
    """``client.tool.result``: the broker took it."""

    accepted: Literal[True]


class Stopping(Struct, frozen=True):
    """``shutdown``."""

    state: str


class HistoryEntry(Struct, frozen=True):
    """One part of one entry of the child's own history."""

    message_id: str
    kind: Literal["user", "assistant", "reasoning_summary", "activity", "compaction", "diagnostic"]
    text: str
    partial: bool
    part: int
    last_part: bool


class HistoryPage(Struct, frozen=True):
    """``history.page``."""

    session_id: str
    revision: str
    entries: list[HistoryEntry]
    next_cursor: str | None
    complete: bool


class ModelChoice(Struct, frozen=True):
    """One model of ``model.catalog``."""

    selection_id: str
    provider: str
    model: str
    provider_name: str | None
    model_name: str | None
    availability: str
    effort_support: str
    permitted_efforts: list[str]


class ModelPage(Struct, frozen=True):
    """``model.catalog``: a page of one snapshot, which ``revision`` names."""

    revision: str
    choices: list[ModelChoice]
    next_cursor: str | None
    complete: bool
    notices: list[str]


class Selection(Struct, frozen=True):
    """The model of the turns to come. ``effective_effort`` is None where the model takes none."""

    revision: str
    provider: str
    model: str
    requested_effort: str
    effective_effort: str | None
    effort_support: str
    permitted_efforts: list[str]


class Selected(Struct, frozen=True):
    """``selection.set``: on disk, and in effect from the next turn on. ``history_revision`` replaces the session's."""

    session_id: Id
    selection: Selection
    catalog_revision: str
    durable: bool
    history_revision: str
    notices: list[str]


class SessionEntry(Struct, frozen=True):
    """One session of ``session.list``."""

    session_id: str
    title: str | None
    updated_at: str | None
    eligibility: str
    notices: list[str]


class SessionPage(Struct, frozen=True):
    """``session.list``: sessions of this working folder."""

    revision: str
    sessions: list[SessionEntry]
    next_cursor: str | None
    complete: bool
    notices: list[str]


Result: TypeAlias = (
    Initialized
    | Status
    | Attached
    | Admitted
    | CancelRequested
    | ApprovalRecorded
    | ResultAccepted
    | Stopping
    | HistoryPage
    | ModelPage
    | Selected
    | SessionPage
)

Method: TypeAlias = Literal[
    "initialize",
    "status",
    "shutdown",
    "session.create",
    "session.open",
    "session.list",
    "history.page",
    "model.catalog",
    "selection.set",
    "turn.start",
    "turn.cancel",
    "approval.answer",
    "client.tool.result",
]

RESULTS: Final[dict[Method, type[Result]]] = {
    "initialize": Initialized,
    "status": Status,
    "shutdown": Stopping,
    "session.create": Attached,
    "session.open": Attached,
    "session.list": SessionPage,
    "history.page": HistoryPage,
    "model.catalog": ModelPage,
    "selection.set": Selected,
    "turn.start": Admitted,
    "turn.cancel": CancelRequested,
    "approval.answer": ApprovalRecorded,
    "client.tool.result": ResultAccepted,
}
