"""Text for a model or a person: cleaning, measuring and cutting. Owns those three; it never hides a secret.

The order is: clean, redact, measure. Cleaning comes first, since an escape sequence inside a secret would hide it.
"""

import re
from typing import Final, TypeVar, cast

from gateway.model.limits import CHILD_DESCRIPTION_BYTES
from gateway.model.strictjson import compact

Text = TypeVar("Text", bound=str)
"""A cut of text is of the kind that the text was: a part of clean text is clean."""

# Control strings (OSC, DCS, SOS, PM, APC) go with what they hold when they end; one that does not end loses its start
# only. Each class leaves out ESC and the C1 controls and gives nothing back, so no match runs over the next sequence
# and the time stays linear.
_SEQUENCES: Final = re.compile(
    "(?:\x1b\\]|\x9d)[^\x07\x1b\x80-\x9f]*+(?:\x07|\x1b\\\\|\x9c)"
    "|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x80-\x9f]*+(?:\x1b\\\\|\x9c)"
    "|(?:\x1b\\[|\x9b)[0-?]*+[ -/]*+[@-~]"
    "|\x1b[ -/]*+[0-~]"
)
_CONTROLS: Final = {code: None for code in (*range(32), *range(127, 160)) if code not in (9, 10)}
_DIRTY: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_CLEAN_ASCII: Final = bytes((9, 10, *range(32, 127)))
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """``text`` without controls (LF and tab stay) and escape sequences; CR LF and CR become LF, a lone surrogate
    U+FFFD (bridge 6). Everything else stays, U+2028 too."""
    if text.isascii():  # most are, and twenty times as fast to look through
        if not text.encode().translate(None, _CLEAN_ASCII):
            return text
    elif not _DIRTY.search(text):
        return text
    text = _SURROGATES.sub("\ufffd", text)
    if "\x1b" in text or not text.isascii():
        text = _SEQUENCES.sub("", text)
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)


def cut_bytes(text: Text, limit: int) -> Text:
    """The longest start of ``text`` that has at most ``limit`` UTF-8 bytes, cut at a character."""
    if len(text) * 4 <= limit:
        return text
    raw = text.encode()
    return text if len(raw) <= limit else cast(Text, raw[:limit].decode(errors="ignore"))


def escaped_bytes(text: str) -> int:
    """The bytes of ``text`` inside a JSON string, without the quotes."""
    return len(compact(text)) - 2


def child_description(text: Text, tool: str) -> tuple[Text, str | None]:
    """A tool's description as the child takes it, and what was done to it (bridge 4).

    ``text`` is clean and redacted. A blank one becomes the tool's name; one over 2,048 bytes ends in ``…``.
    """
    if not text.strip():
        return cast(Text, tool), "the description was blank"
    if len(text.encode()) <= CHILD_DESCRIPTION_BYTES:
        return text, None
    ellipsis = "…"
    cut = cut_bytes(text, CHILD_DESCRIPTION_BYTES - len(ellipsis.encode())).rstrip()
    return cast(Text, cut + ellipsis), f"the description was cut to {CHILD_DESCRIPTION_BYTES} bytes"
