"""How a result reaches a model (bridge 6). Owns measuring the encoded frame and cutting what is too long into parts.

The child takes a line of 65,536 bytes, 32 containers deep, and text and structured value of 32,768 bytes together; one
byte more in the line ends it, one level more deafens it (stdio protocol, Seen). So the encoded form is measured, and
nothing is cut away: the parts of a result together are the result. Text and structured value come in clean and
redacted: clean, redact, measure.
"""

from typing import Final, cast

import msgspec

from gateway.model.clean import ModelJson, ModelText
from gateway.model.limits import CHILD_INPUT_FRAME_BYTES, CHILD_RESULT_BYTES
from gateway.model.names import MORE
from gateway.model.strictjson import json_depth
from gateway.model.text import cut_bytes, escaped_bytes

STRUCTURED_DEPTH: Final = 24
_STRUCTURED_NOTE: Final = 30  # the child counts what it will write around a structured value (stdio protocol, Seen)
_STRUCTURED_FIELD: Final = len(b',"structured":')
PART_BYTES: Final = 30_000
"""UTF-8 bytes of a part: the child's bound less the lines that go with a part."""
PART_ESCAPED_BYTES: Final = 52_000
"""Encoded bytes of a part: the line's bound less an identity of the longest kind and those lines."""
LINE_BYTES: Final = 2_000
"""What the lines beside a part may have: how many parts there are, and which tools came and went."""
_NEAR: Final = 4  # a line end in the last quarter of a part is near


class Fitted(msgspec.Struct, frozen=True):
    """What goes to the child: ``text``, and ``structured`` when it goes as such. ``parts`` is empty when the result
    went whole; else it holds all parts in order, for ``part_text``, and ``text`` begins with the first of them."""

    text: ModelText
    structured: ModelJson | None = None
    parts: tuple[ModelText, ...] = ()


def result_bytes(structured: bool) -> int:
    """What text and compact structured value of one answer may have together, in bytes of UTF-8."""
    return CHILD_RESULT_BYTES - (_STRUCTURED_NOTE if structured else 0)


def fit_result(
    text: ModelText, structured: ModelJson | None, *, call_id: str, overhead: int, line: ModelText | None = None
) -> Fitted:
    """One result, made to fit.

    ``overhead`` is the length of the encoded frame with an empty text and no structured value, without the LF.
    ``call_id`` is what ``client__more`` reads on by. ``line`` (at most 2,000 bytes; a longer one is cut) goes behind
    the text: which tools came and went. A structured value travels as such when it fits with the text and is at most
    24 deep, else behind the text, as the child itself would show it.
    """
    added = "" if line is None else f"\n\n{cut_bytes(line, LINE_BYTES)}"
    whole = cast(ModelText, text + added)
    if structured is not None:
        if json_depth(structured) <= STRUCTURED_DEPTH and _fits(whole, structured, overhead):
            return Fitted(whole, structured)
        text = cast(ModelText, f"{text}\nstructured: {structured.decode()}")
        whole = cast(ModelText, text + added)
    if _fits(whole, None, overhead):
        return Fitted(whole)
    parts = split_text(text)
    return Fitted(cast(ModelText, _part(parts, 1, call_id) + added), None, parts)


def part_text(parts: tuple[ModelText, ...], part: int, *, call_id: str) -> ModelText | None:
    """The answer of ``client__more`` for one part, counted from 1; ``None`` when there is no such part."""
    return _part(parts, part, call_id) if 1 <= part <= len(parts) else None


def split_text(text: ModelText) -> tuple[ModelText, ...]:
    """``text`` in parts that fit a frame whatever its identity, cut behind a line where one ends near, else at a
    character. Joined they are ``text``."""
    parts: list[ModelText] = []
    start = 0
    while start < len(text):
        end = start + _longest(text[start : start + PART_BYTES])
        if end < len(text):
            near = text.rfind("\n", end - (end - start) // _NEAR, end)
            end = near + 1 if near > start else end
        parts.append(cast(ModelText, text[start:end]))
        start = end
    return tuple(parts)


def _longest(text: str) -> int:
    """How many characters of ``text`` fit into a part."""
    fits, over = 0, len(text) + 1
    candidate = len(text)
    while over - fits > 1:
        start = text[:candidate]
        if len(start.encode()) <= PART_BYTES and escaped_bytes(start) <= PART_ESCAPED_BYTES:
            fits = candidate
        else:
            over = candidate
        candidate = (fits + over) // 2
    return fits


def _fits(text: str, structured: bytes | None, overhead: int) -> bool:
    size = len(text.encode()) + len(structured or b"")
    if size > result_bytes(structured is not None):
        return False
    frame = overhead + escaped_bytes(text) + (0 if structured is None else _STRUCTURED_FIELD + len(structured))
    return frame <= CHILD_INPUT_FRAME_BYTES


def _part(parts: tuple[ModelText, ...], part: int, call_id: str) -> ModelText:
    of = f"part {part} of {len(parts)}"
    if part < len(parts):
        note = f'[{of}; {MORE} with {{"call_id": "{call_id}", "part": {part + 1}}} reads on]'
    else:
        note = f"[{of}, the last]"
    return cast(ModelText, f"{parts[part - 1]}\n{note}")
