"""What the machine of a child's frames tells its owner. Owns the events that are no frame of their own."""

from dataclasses import dataclass
from typing import TypeAlias

from adapters.stdio.frames import RunEvent, ToolCall
from adapters.stdio.reading import NoiseKind, ViolationReason
from adapters.stdio.results import Method, Result


@dataclass(frozen=True, slots=True)
class InFlight:
    """A request that was made and has no response yet. ``size`` is its line's, without the LF."""

    id: str
    method: Method
    size: int
    call_id: str | None


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to one request: exactly one of ``result`` and ``error`` (a code of ``ERROR_CODES``) is set."""

    request: InFlight
    result: Result | None
    error: str | None


@dataclass(frozen=True, slots=True)
class LostRequest:
    """An error without an id: one of ``suspects`` is lost and will have no answer. Oldest first; those that the code
    cannot mean are left out."""

    code: str
    suspects: tuple[InFlight, ...]


@dataclass(frozen=True, slots=True)
class Noise:
    """Output that is no frame. Told when a kind's ``count`` is a power of two, so a flood of it costs little."""

    kind: NoiseKind
    count: int


@dataclass(frozen=True, slots=True)
class LateEvent:
    """An event of the run that has just finished, or of a call that is long over. It changes nothing."""

    event: str


@dataclass(frozen=True, slots=True)
class Violation:
    """The child broke the protocol. Nothing more comes out of the machine: stop the child, fail its run."""

    reason: ViolationReason
    detail: str


@dataclass(frozen=True, slots=True)
class EndOfOutput:
    """stdout has ended. ``torn`` bytes of an unfinished line were left; what was in flight or open is lost."""

    torn: int
    in_flight: tuple[InFlight, ...]
    open_calls: tuple[ToolCall, ...]


ProtocolEvent: TypeAlias = RunEvent | Response | LostRequest | Noise | LateEvent | Violation | EndOfOutput
