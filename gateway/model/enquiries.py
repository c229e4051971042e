"""What may be asked of a session's agent beside runs, and what it says. Owns these shapes; knows no child and no bus.

A question is asked on any node and answered by the session's owner, so both are JSON between nodes. What an answer
holds was redacted by the owner, before it left.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from gateway.model.clean import LogText

CURSOR_CHARS: Final = 256
NAME_CHARS: Final = 256

Effort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
Cursor: TypeAlias = Annotated[str, Meta(max_length=CURSOR_CHARS)]


class AskHistory(Struct, frozen=True, tag_field="ask", tag="history"):
    """A page of the agent's own history; from its beginning without a cursor."""

    cursor: Cursor | None = None


class AskModels(Struct, frozen=True, tag_field="ask", tag="models"):
    """A page of the models that may be selected."""

    cursor: Cursor | None = None


class SelectModel(Struct, frozen=True, tag_field="ask", tag="select_model"):
    """Another model from the next run on."""

    provider: str
    model: str
    effort: Effort | None = None


Question: TypeAlias = AskHistory | AskModels | SelectModel


class HistoryPart(Struct, frozen=True):
    """One part of one entry; the parts of a ``message_id`` joined are its text."""

    message_id: str
    kind: Literal["user", "assistant", "reasoning_summary", "activity", "compaction", "diagnostic"]
    text: LogText
    partial: bool
    part: int
    last_part: bool


class History(Struct, frozen=True):
    """A page of the agent's own history, oldest first; the cursor goes on as ``cursor``. ``complete`` says that the
    agent knows no more than this and the pages before."""

    items: list[HistoryPart]
    next_cursor: str | None
    complete: bool


class Model(Struct, frozen=True):
    """A model that may be selected."""

    provider: LogText
    model: LogText
    provider_name: LogText | None
    model_name: LogText | None
    availability: LogText
    effort_support: LogText
    permitted_efforts: list[LogText]


class Selection(Struct, frozen=True):
    """The model of the runs to come. ``effective_effort`` is null where the model takes none."""

    provider: LogText
    model: LogText
    requested_effort: LogText
    effective_effort: LogText | None
    effort_support: LogText
    permitted_efforts: list[LogText]


class Models(Struct, frozen=True):
    """A page of the models, and the one in use; the cursor goes on as ``cursor``."""

    items: list[Model]
    next_cursor: str | None
    selection: Selection | None


class Selected(Struct, frozen=True):
    """What is in effect from the next run on. ``durable`` says that the agent keeps it beyond its process."""

    selection: Selection
    durable: bool


Answer: TypeAlias = History | Models | Selected


class Refused(Struct, frozen=True, omit_defaults=True):
    """A refusal between nodes: the name of a row of the error catalogue, and its message."""

    code: str
    message: str
    retry_after_s: int | None = None


class Reply(Struct, frozen=True, omit_defaults=True):
    """An owner's reply: ``answer`` or ``refused``. ``epoch`` is the one under which the owner gave it."""

    epoch: int
    answer: Raw | UnsetType = UNSET
    refused: Refused | None = None


read_question: Final = msgspec.json.Decoder(Question).decode
read_reply: Final = msgspec.json.Decoder(Reply).decode
