"""What a reader of a session's log is given beside events. Owns the shapes alone."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signal:
    """What ends or changes a reader's right to read: ``deleted``, ``token <id>``, ``taken <holder> <client>``; ``gap``:
    such a signal may have been missed, so whoever stands on a token looks at it again."""

    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """An unlogged piece of a message, as JSON ``{message_id, part, text}``. It stays between the events between which
    it came: a message's pieces before the message."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What was asked for is no longer kept: what follows begins at ``oldest``."""

    oldest: int
