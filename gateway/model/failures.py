"""What the model is told when a call fails. Owns the texts; ids and bodies never stand in them.

A model sees no status, only the text, so each begins with what it is; each says which of the three outcomes the work
had (bridge 6, 7).
"""

from collections.abc import Mapping
from typing import Final, LiteralString

from gateway.model.call import Outcome, Reason

_WHAT: Final[Mapping[Reason, LiteralString]] = {
    Reason.CLIENT_GONE: "Error client_gone: the client that offers this tool went away before it answered.",
    Reason.ACK_TIMEOUT: "Error ack_timeout: the client did not take this call up in time.",
    Reason.RESULT_TIMEOUT: "Error result_timeout: the client did not answer this call in time.",
    Reason.RUN_GONE: "Error run_gone: the run ended before this call was answered.",
}

_WORK: Final[Mapping[Outcome, LiteralString]] = {
    Outcome.NOT_STARTED: "Outcome not_started: the work was not begun, so the call may be made again.",
    Outcome.UNKNOWN: "Outcome unknown: the work may or may not have been done; check before you call again.",
}

FAILURES: Final[Mapping[tuple[Reason, Outcome], LiteralString]] = {
    (reason, outcome): f"{what} {work}" for reason, what in _WHAT.items() for outcome, work in _WORK.items()
}
"""The text for each reason and outcome of a failed call."""
