"""Structured logs, one JSON line each on stderr. Owns what a line may hold; must never hold a body or a secret.

Events are literals. Values are bounded scalars: ids, names of ours, numbers, states. Free text goes in ``text`` alone
and must have passed redaction (``DiagnosticText``). The last step before writing passes every text through the
redaction that ``configure`` was given, as a net under everything. An exception is logged by its type and its frames:
its message may quote what a peer sent.
"""

import json
import logging
import math
import re
import sys
import threading
import traceback
from collections.abc import Callable, MutableMapping
from enum import Enum
from typing import Any, LiteralString, Protocol, TextIO, cast
from uuid import UUID

import structlog

from gateway.model.clean import DiagnosticText
from gateway.observe import metrics

VALUE_CHARS = 512
"""A text value is cut here; free text (``text``) at eight times that."""
TEXT_CHARS = 8 * VALUE_CHARS
LOOKED_AT_CHARS = 64 * 1024
"""A longer text is not looked at, and nothing of it is written but its length."""
FRAMES = 12

Scalar = str | int | float | bool | UUID | Enum | None
Redact = Callable[[str], str]

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
LINE_BREAKERS = re.compile(r"[^\x20-\x7e]|[\"\\]")
# ASCII output: no control, ANSI sequence, U+0085 or U+2028 can end a line or move a reader's cursor.
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode
TRUSTED = ("event", "level", "timestamp", "part")  # ours, made of literals: redaction has nothing to find there


class Logger(Protocol):
    """A named logger. ``event`` is a literal; ``error`` an exception, of which type and frames are logged."""

    def debug(
        self,
        event: LiteralString,
        *,
        text: DiagnosticText | None = None,
        error: BaseException | None = None,
        **values: Scalar,
    ) -> None: ...

    def info(
        self,
        event: LiteralString,
        *,
        text: DiagnosticText | None = None,
        error: BaseException | None = None,
        **values: Scalar,
    ) -> None: ...

    def warning(
        self,
        event: LiteralString,
        *,
        text: DiagnosticText | None = None,
        error: BaseException | None = None,
        **values: Scalar,
    ) -> None: ...

    def error(
        self,
        event: LiteralString,
        *,
        text: DiagnosticText | None = None,
        error: BaseException | None = None,
        **values: Scalar,
    ) -> None: ...

    def bind(self, **values: Scalar) -> "Logger": ...


def get_logger(name: LiteralString) -> Logger:
    """The logger of one module or part; works before ``configure``, with its defaults."""
    return cast("Logger", structlog.get_logger(part=name))


def configure(
    *, level: str = "info", redact: Redact | None = None, stream: TextIO | None = None, pretty: bool | None = None
) -> None:
    """Set level (debug, info, warning, error), redaction and form for the process; may be called again.

    ``pretty`` is for people; default: when ``stream`` (default stderr) is a terminal. Libraries' own warnings come
    through here too.
    """
    _install(LEVELS[level], redact or _unchanged, stream, pretty)
    root = logging.getLogger()
    root.handlers = [*(each for each in root.handlers if not isinstance(each, _Library)), _Library()]
    root.setLevel(max(LEVELS[level], logging.WARNING))


def _install(level: int, redact: Redact, stream: TextIO | None, pretty: bool | None) -> None:
    people = (stream or sys.stderr).isatty() if pretty is None else pretty
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _bounded(redact),
            _pretty if people else _json,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Writer(stream),
        cache_logger_on_first_use=False,
    )


class _Writer:
    """Writes whole lines to the stream, or to what stderr is at that moment."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, line: str) -> None:
        stream = sys.stderr if self._stream is None else self._stream
        try:
            stream.write(f"{line}\n")
            stream.flush()
        except (OSError, ValueError):
            metrics.LOG_LINES_LOST.inc()  # the log is the one place that cannot report its own end

    debug = info = warning = error = write


def exception_values(error: BaseException) -> dict[str, Scalar]:
    """What may be logged of an exception: its type, an ``errno``, and the frames that it went through.

    Its message and its notes stay out: they may quote arguments, results or credentials.
    """
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    where = " > ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}:{frame.name}" for frame in frames)
    values: dict[str, Scalar] = {"error": type(error).__qualname__, "where": where}
    if isinstance(error, OSError) and error.errno is not None:
        values["errno"] = error.errno
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        values["errors"] = ",".join(sorted({type(each).__qualname__ for each in group.exceptions}))
    return values


def on_crash(_kind: type[BaseException], error: BaseException, _trace: object) -> None:
    """For ``sys.excepthook``: what Python would print with the exception's own text."""
    if isinstance(error, KeyboardInterrupt):
        return
    _log.error("crashed", error=error)


def on_thread_crash(arguments: threading.ExceptHookArgs) -> None:
    """For ``threading.excepthook``; a thread that was told to end says nothing there."""
    if arguments.exc_value is not None and arguments.exc_type is not SystemExit:
        _log.error("thread_crashed", error=arguments.exc_value)


def on_loop_error(_loop: object, context: dict[str, Any]) -> None:
    """For ``loop.set_exception_handler``: what asyncio would print with the exception's own text."""
    error = context.get("exception")
    _log.error("loop_error", error=error if isinstance(error, BaseException) else None)


def _bounded(redact: Redact) -> structlog.typing.Processor:
    """Every value as a scalar of a bounded length, redacted before it is cut: half a secret would not be known for
    one."""

    def short(name: str, text: str) -> str:
        if name in TRUSTED:
            return text
        if len(text) > LOOKED_AT_CHARS:
            return f"[{len(text)} characters]"
        return _cut(redact(text), TEXT_CHARS if name in ("text", "where") else VALUE_CHARS)

    def processor(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        for name, value in list(event.items()):
            match value:
                case None if name in ("text", "error"):
                    del event[name]
                case BaseException():
                    del event[name]
                    for key, each in exception_values(value).items():
                        event[key] = short(key, each) if isinstance(each, str) else each
                case str():
                    event[name] = short(name, value)
                case None | bool() | int():
                    pass
                case float():
                    event[name] = round(value, 6) if math.isfinite(value) else str(value)
                case Enum():
                    event[name] = short(name, str(value.value))
                case UUID():
                    event[name] = str(value)
                case _:  # a body, a list, an object: whatever it holds was never meant for a log
                    event[name] = f"[{type(value).__name__}]"
        return event

    return processor


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _unchanged(text: str) -> str:
    return text


def _json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    return _encode(event)


def _pretty(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    time = str(event.pop("timestamp", ""))[11:19]
    level, name = event.pop("level", ""), event.pop("part", "")
    text = _plain(str(event.pop("event", "")))
    values = " ".join(f"{key}={_plain(str(value))}" for key, value in event.items())
    return f"{time} {level:<7} {name}: {text} {values}".rstrip()


def _plain(text: str) -> str:
    return json.dumps(text) if LINE_BREAKERS.search(text) else text


class _Library(logging.Handler):
    """What libraries log by the standard module: their text may quote a peer, so it is bounded, and redacted above."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            _log.warning("library_error", library=record.name, error=record.exc_info[1])
            return
        try:
            text = record.getMessage()
        except Exception:  # a library's broken format string must not end what called it
            text = "unreadable message"
        structlog.get_logger(part="library").warning("library_message", library=record.name, text=text)


_log = get_logger("log")
# A logger that is used before ``configure`` keeps the same rules.
_install(logging.INFO, _unchanged, None, None)
