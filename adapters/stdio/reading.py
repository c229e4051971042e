"""From one line of stdout to one typed frame. Owns the judgement what a line is; must never hold state between lines.

Three verdicts (stdio protocol, Framing; bridge 9):

* a **frame**: an object that names the protocol and keeps all its rules;
* a **violation**: it names the protocol and breaks a rule. Reading on would mean guessing, so it fails closed;
* **noise**: anything else (a banner, colours, blank lines, a library's log line). It is counted and harmless.
"""

import functools
import re
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET

from adapters.stdio.frames import (
    ERROR_CODES,
    PROTOCOL,
    PROTOCOL_MARKER,
    RUN_EVENTS,
    VERSION,
    CardHead,
    Envelope,
    RunEvent,
    RunFinished,
    ToolCall,
    ToolCard,
)
from adapters.stdio.results import RESULTS, Method, Result
from adapters.stdio.shape import deeper_than, members, repeats_a_name
from gateway.model.limits import CHILD_JSON_DEPTH

NoiseKind: TypeAlias = Literal["blank", "bom", "ansi", "not_json", "not_a_frame", "overlong"]

ViolationReason: TypeAlias = Literal[
    "frame_too_large",
    "frame_too_deep",
    "malformed_frame",
    "missing_field",
    "unknown_field",
    "duplicate_field",
    "unknown_value",
    "protocol_mismatch",
    "unknown_frame_type",
    "unknown_event",
    "unknown_error_code",
    "not_negotiated",
    "seq_not_rising",
    "instance_changed",
    "unknown_response",
    "unknown_run",
    "run_finished_twice",
    "unknown_tool",
    "call_id_reused",
    "too_many_calls",
    "identity_mismatch",
    "capability_missing",
    "registry_mismatch",
    "limits_lowered",
]


class FrameError(Exception):
    """A line that names the protocol and breaks it. ``detail`` is ours: it quotes nothing of the line."""

    def __init__(self, reason: ViolationReason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason: ViolationReason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Reading:
    """One line, read: its ``envelope`` and ``text`` if it is a frame, and what noise stood on it."""

    envelope: Envelope | None
    noise: tuple[NoiseKind, ...] = ()
    text: bytes = b""


_BOM: Final = b"\xef\xbb\xbf"
# CSI sequences (colours, erase, cursor) and OSC ones (titles), as a banner or a wrapper leaves them around a line.
_ANSI: Final = re.compile(rb"(?:\x1b\[[0-?]*+[ -/]*+[@-~]|\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\))++")
_ANSI_AT_END: Final = re.compile(rb"\x1b\[[0-9;]*+[A-Za-z][\s]*+\Z")
_ENVELOPE: Final = msgspec.json.Decoder(Envelope)
_EVENT_MEMBERS: Final = 7  # of an event's envelope
_CARD: Final = msgspec.json.Decoder(CardHead)
_BLANK: Final = Reading(None, ("blank",))
_NOT_JSON: Final = Reading(None, ("not_json",))
_NOT_A_FRAME: Final = Reading(None, ("not_a_frame",))


def read_line(line: bytes) -> Reading:
    """Judge one line, LF removed. Raises FrameError."""
    noise: list[NoiseKind] = []
    text = line
    if text[:1] != b"{" or text[-1:] != b"}":
        text = _bare(text, noise)
    if not text:
        return Reading(None, tuple(noise)) if noise else _BLANK
    if text[:1] != b"{":
        return Reading(None, (*noise, "not_json")) if noise else _NOT_JSON
    if PROTOCOL_MARKER not in text:
        found = _other_object(text)
        return replace(found, noise=(*noise, *found.noise)) if noise else found
    return Reading(_envelope(text), tuple(noise), text)


def _bare(line: bytes, noise: list[NoiseKind]) -> bytes:
    """The line without spaces, byte order mark and escape sequences around it."""
    text = line.strip(b" \t\r")
    if text.startswith(_BOM):
        noise.append("bom")
        text = text[len(_BOM) :].lstrip(b" \t\r")
    if text[:1] == b"\x1b" and (found := _ANSI.match(text)):
        noise.append("ansi")
        text = text[found.end() :].lstrip(b" \t\r")
    while b"\x1b" in text[-16:] and (found := _ANSI_AT_END.search(text, max(0, len(text) - 16))):
        if "ansi" not in noise:
            noise.append("ansi")
        text = text[: found.start()].rstrip(b" \t\r")
    return text


def _other_object(text: bytes) -> Reading:
    """An object that does not name the protocol as a frame does: another protocol's frame, a log line, a torn line."""
    if deeper_than(text, CHILD_JSON_DEPTH):
        return _NOT_JSON
    try:
        claim = msgspec.json.decode(text, type=_Claim)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _NOT_JSON
    if UNSET in (claim.protocol, claim.version, claim.type):
        return _NOT_A_FRAME
    if claim.protocol == PROTOCOL:  # spelled with escapes: still a frame
        return Reading(_envelope(text), (), text)
    raise FrameError("protocol_mismatch", "another protocol")


class _Claim(msgspec.Struct):
    protocol: object = UNSET
    version: object = UNSET
    type: object = UNSET


def _envelope(text: bytes) -> Envelope:
    if deeper_than(text, CHILD_JSON_DEPTH):
        raise FrameError("frame_too_deep", f"more than {CHILD_JSON_DEPTH} containers")
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            raise FrameError("malformed_frame", "not UTF-8") from None
    try:
        envelope = _ENVELOPE.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _violation(error) from None
    if envelope.protocol != PROTOCOL or envelope.version != VERSION:
        raise FrameError("protocol_mismatch", "another protocol or version")
    match envelope.type:
        case "event":
            _check_event(envelope)
        case "response":
            _check_response(envelope, text)
        case _:
            raise FrameError("unknown_frame_type")
    return envelope


def _check_event(envelope: Envelope) -> None:
    if envelope.event is UNSET or not bytes(envelope.data):
        raise FrameError("missing_field", "event, data")
    if envelope.id is not UNSET or envelope.error is not UNSET or bytes(envelope.result):
        raise FrameError("unknown_field", "an event with a response's fields")


def _check_response(envelope: Envelope, text: bytes) -> None:
    if envelope.event is not UNSET or bytes(envelope.data):
        raise FrameError("unknown_field", "a response with an event's fields")
    if envelope.id is UNSET:
        raise FrameError("missing_field", "id")
    if (envelope.error is UNSET) == (not bytes(envelope.result)):
        raise FrameError("malformed_frame", "exactly one of result and error")
    if envelope.error is not UNSET and envelope.error.code not in ERROR_CODES:
        raise FrameError("unknown_error_code")
    if repeats_a_name(text):
        raise FrameError("duplicate_field", "in a response")


@functools.cache
def _event_decoder(event: type[RunEvent]) -> msgspec.json.Decoder[RunEvent]:
    return msgspec.json.Decoder(event)


@functools.cache
def _result_decoder(result: type[Result]) -> msgspec.json.Decoder[Result]:
    return msgspec.json.Decoder(result)


def read_event(name: str, data: bytes, text: bytes) -> RunEvent:
    """The ``data`` of the event ``name``, of a frame that is ``text``. Raises FrameError."""
    kind = RUN_EVENTS.get(name)
    if kind is None:
        raise FrameError("unknown_event")
    try:
        event = _event_decoder(kind).decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _violation(error) from None
    # All its fields are required: a frame with as many members as fields has none twice. Only others, and they are
    # few, are worth a look at each name.
    if members(text) != _EVENT_MEMBERS + len(kind.__struct_fields__) and repeats_a_name(text):
        raise FrameError("duplicate_field", f"in {name}")
    match event:
        case ToolCall() if bytes(event.arguments)[:1] != b"{":
            raise FrameError("malformed_frame", "arguments are no object")
        case ToolCard():
            _check_card(event)
        case RunFinished(error_code=str(code)) if code not in ERROR_CODES:
            raise FrameError("unknown_error_code", "in run.finished")
        case _:
            pass
    return event


def _check_card(event: ToolCard) -> None:
    try:
        head = _CARD.decode(bytes(event.card))
    except msgspec.MsgspecError as error:
        raise _violation(error) from None
    if not head.card_id == head.activity_id == event.activity_id:
        raise FrameError("identity_mismatch", "a card of another activity")


def read_result(method: Method, result: bytes) -> Result:
    """The result of a ``method``; unknown fields are ignored. Raises FrameError."""
    try:
        return _result_decoder(RESULTS[method]).decode(result)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _violation(error) from None


def _violation(error: Exception) -> FrameError:
    """msgspec's refusal as a reason. Its text is kept only where it names our fields and no value of the child's."""
    text = str(error)
    if text.startswith("Object contains unknown field"):
        return FrameError("unknown_field")
    if text.startswith("Invalid enum value"):
        return FrameError("unknown_value", text.rpartition(" - at ")[2])
    if text.startswith("Object missing required field"):
        return FrameError("missing_field", text)
    if text.startswith("Expected"):
        return FrameError("malformed_frame", text)
    return FrameError("malformed_frame", "not JSON")
