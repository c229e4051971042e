"""What a model is told when the gateway answers a call itself. Owns the words; a model sees no status, only the text.

Each text begins with what it is and ends with what became of the work (bridge 6, 7): ``done``, ``not_started`` (it may
be called again) or ``unknown`` (not to be repeated blindly). Reasons of failed dispatches have their texts beside the
call's state machine; these are the refusals before a dispatch and the answers that could not be handed on.
"""

from enum import Enum
from typing import Final

from gateway.model.limits import REFUSED_ANSWER_MS
from gateway.model.names import MORE, TOOLS, USE

_WORK: Final = {
    "done": "Outcome done: the client has answered; do not call again for the same work.",
    "not_started": "Outcome not_started: nothing was done; the call may be made again.",
    "unknown": "Outcome unknown: the work may or may not have been done; check before calling again.",
}


class CallError(Enum):
    """(code, what it says, outcome). ``{detail}`` is a path and a reason, a limit or a name that was checked."""

    TOOL_GONE = ("tool_gone", f"this tool is no longer offered; {TOOLS} lists what is.", "not_started")
    TOOL_UNKNOWN = (
        "tool_unknown",
        f"no client offers a tool of this name; {TOOLS} lists what is there.",
        "not_started",
    )
    INVALID_ARGUMENTS = ("invalid_arguments", "{detail}.", "not_started")
    ARGUMENTS_TOO_DEEP = ("invalid_arguments", "the arguments are nested too deep.", "not_started")
    NOT_DELEGATED = ("not_delegated", f"this task may not call that tool with {USE}.", "not_started")
    NO_SUCH_PART = (
        "no_such_part",
        f"{MORE} knows no such call or part; long results are kept for one turn.",
        "not_started",
    )
    REFUSED_ANSWER = (
        "refused_answer",
        f"the client's answer was not valid ({{detail}}), and none that was came within {REFUSED_ANSWER_MS // 1000} s.",
        "unknown",
    )
    UNDELIVERABLE = ("undeliverable", "the answer could not be handed on ({detail}).", "done")
    REDACTION_COLLIDES = ("undeliverable", "two names in the answer are one once secrets are removed.", "done")
    BUS_LOST = ("bus_lost", "the gateway lost its bus during this call.", "unknown")
    REQUEST_LIMIT = ("request_limit", "this run has made as many calls as its agent can take.", "not_started")


def error_text(error: CallError, detail: str = "") -> str:
    """The text of one error result: ``Error tool_gone: … Outcome not_started: …``."""
    code, says, outcome = error.value
    return f"Error {code}: {says.replace('{detail}', detail)} {_WORK[outcome]}"
