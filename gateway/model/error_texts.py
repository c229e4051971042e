"""What a model is told when a call does not bring its client's result. Owns all of these words; ids and bodies never
stand in them.

A model sees no status, only the text (bridge 6, 7). So each text begins with what it is, and ends with what became of
the work: ``done``, ``not_started`` (it may be called again) or ``unknown`` (not to be repeated blindly). Failed
dispatches are ``FAILURES``, by reason and outcome; everything else is a ``CallError``.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, LiteralString, overload

from gateway.model.call import Outcome, Reason
from gateway.model.limits import REFUSED_ANSWER_MS
from gateway.model.names import MORE, TOOLS, USE

_WORK: Final[Mapping[Outcome, LiteralString]] = {
    Outcome.DONE: "Outcome done: the client has answered; do not call again for the same work.",
    Outcome.NOT_STARTED: "Outcome not_started: the work was not begun, so the call may be made again.",
    Outcome.UNKNOWN: "Outcome unknown: the work may or may not have been done; check before you call again.",
}

_WHAT: Final[Mapping[Reason, LiteralString]] = {
    Reason.CLIENT_GONE: "Error client_gone: the client that offers this tool went away before it answered.",
    Reason.ACK_TIMEOUT: "Error ack_timeout: the client did not take this call up in time.",
    Reason.RESULT_TIMEOUT: "Error result_timeout: the client did not answer this call in time.",
    Reason.RUN_GONE: "Error run_gone: the run ended before this call was answered.",
}

FAILURES: Final[Mapping[tuple[Reason, Outcome], LiteralString]] = {
    (reason, outcome): f"{what} {_WORK[outcome]}"
    for reason, what in _WHAT.items()
    for outcome in (Outcome.NOT_STARTED, Outcome.UNKNOWN)
}
"""The text for each reason and outcome of a failed dispatch."""

_REFUSED_S: Final[LiteralString] = "10"
assert int(_REFUSED_S) * 1000 == REFUSED_ANSWER_MS


class CallError(Enum):
    """(code, what it says, outcome). ``{detail}`` is a name that was checked, a path with a reason, or a limit."""

    _value_: tuple[LiteralString, LiteralString, Outcome]

    TOOL_GONE = ("tool_gone", f"no client offers {{detail}} now; {TOOLS} lists what is offered.", Outcome.NOT_STARTED)
    INVALID_ARGUMENTS = ("invalid_arguments", "{detail}.", Outcome.NOT_STARTED)
    ARGUMENTS_COLLIDE = (
        "invalid_arguments",
        "two names in the arguments became one when secrets were hidden.",
        Outcome.NOT_STARTED,
    )
    USE_ARGUMENTS = ("invalid_arguments", f"{USE} takes {{tool: string, arguments: object}}.", Outcome.NOT_STARTED)
    MORE_ARGUMENTS = ("invalid_arguments", f"{MORE} takes {{call_id: string, part: integer}}.", Outcome.NOT_STARTED)
    NOT_PERMITTED = (
        "not_permitted",
        f"a delegated task may not reach this tool by {USE}.",
        Outcome.NOT_STARTED,
    )
    NO_SUCH_RESULT = (
        "no_such_result",
        "there is no result of that call to read on in; long results are kept for one turn.",
        Outcome.NOT_STARTED,
    )
    NO_SUCH_PART = ("no_such_part", "the result has {detail} parts.", Outcome.NOT_STARTED)
    REFUSED_ANSWER = (
        "refused_answer",
        f"the client's answer was not valid ({{detail}}), and none that was came within {_REFUSED_S} s.",
        Outcome.UNKNOWN,
    )
    RESULT_REFUSED = ("result_refused", "the agent did not take the tool's result as it was.", Outcome.DONE)
    RESULT_COLLIDES = (
        "result_refused",
        "two names in the structured result became one when secrets were hidden.",
        Outcome.DONE,
    )
    RUN_ENDS = ("run_gone", "the run is being ended.", Outcome.UNKNOWN)


@overload
def error_text(error: CallError, detail: LiteralString = "") -> LiteralString: ...
@overload
def error_text(error: CallError, detail: str) -> str: ...
def error_text(error: CallError, detail: str = "") -> str:
    """The text of one error result: ``Error tool_gone: … Outcome not_started: …``."""
    code, says, outcome = error.value
    return f"Error {code}: {says.replace('{detail}', detail)} {_WORK[outcome]}"


def client_says(text: str) -> str:
    """A client's own error result, begun with what it is; one that says so already stays as it is."""
    if text.startswith("Error"):
        return text
    return f"Error tool_failed: {text}" if text.strip() else "Error tool_failed: the client says no more."
