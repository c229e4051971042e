"""What a model, a log or a client may see of a text. Pure: it sanitises and redacts, and bounds what comes out.

The real child's rules are wider than these; the shapes here are enough to meet every behaviour of the protocol: a
secret is replaced, a name of ``structured`` too, and a result whose names become equal is refused.
"""

import json
import re
from typing import Any, Final, cast

from frames import as_list, compact

HIDDEN: Final = "<redacted>"
HIDDEN_VALUE: Final = "[REDACTED]"
RESULT_BYTES: Final = 32_768
STRUCTURED_OVERHEAD: Final = 30  # bytes that a result with ``structured`` has less (measured with the real child)
SUMMARY_BYTES: Final = 1_024

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SHAPES = re.compile(r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bAKIA[0-9A-Z]{16}\b|\bsk-[A-Za-z0-9_-]{20,}")
_BEARER = re.compile(r"\b(bearer\s+)\S+", re.IGNORECASE)
_PAIR = re.compile(r"\b((?:password|passwd|secret|token|api[_-]?key)\s*[=:]\s*)\S+", re.IGNORECASE)
_CREDENTIAL = re.compile(r"(?i)(?:.*_)?(?:password|passwd|secret|token|api_?key|authorization|credentials?)")


def clean(text: str) -> str:
    """Line ends become LF; control characters and terminal escapes go; tab and everything printable stays."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("", _ESCAPE.sub("", text))


def redact(text: str) -> str:
    """``clean``, and secrets replaced."""
    text = _SHAPES.sub(HIDDEN, clean(text))
    text = _BEARER.sub(HIDDEN, text)
    return _PAIR.sub(rf"\1{HIDDEN}", text)


def summary(text: str) -> str:
    """A redacted text of at most 1,024 bytes, cut at a character."""
    return redact(text).encode()[:SUMMARY_BYTES].decode(errors="ignore")


def redact_json(value: Any) -> Any:
    """A JSON value with its strings and names redacted. ValueError when two names of one object become equal."""
    if isinstance(value, str):
        return redact(value)
    items = as_list(value)
    if items is not None:
        return [redact_json(item) for item in items]
    if not isinstance(value, dict):
        return value
    hidden: dict[str, Any] = {}
    for name, item in cast("dict[str, Any]", value).items():
        safe = redact(name)
        if safe in hidden:
            raise ValueError("names collide after redaction")
        hidden[safe] = HIDDEN_VALUE if _CREDENTIAL.fullmatch(name) else redact_json(item)
    return hidden


def tool_result(text: str, *structured: Any) -> str:
    """What the model is shown of a result; ``structured`` is given or not, as null is a value of its own.

    ValueError when the result is over its bound, before or after redaction, or its names collide.
    """
    bound = RESULT_BYTES - (STRUCTURED_OVERHEAD if structured else 0)
    safe = [redact_json(value) for value in structured]
    shown = redact(text)
    for plain, values in ((text, structured), (shown, safe)):
        if len(plain.encode()) + sum(len(compact(value)) for value in values) > bound:
            raise ValueError("result too large")
    if safe:
        shown += "\nstructured: " + compact(safe[0]).decode()
    return shown or " "


def results_json(results: list[str]) -> str:
    """A list of results as a script's ``{{results}}`` shows it."""
    return json.dumps(results)
