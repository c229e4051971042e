"""A log line is one line, holds bounded scalars, and nothing that redaction was told of."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from enum import Enum
from typing import Any, cast
from uuid import UUID

import pytest

from gateway.observe import log as logs
from gateway.observe.log import VALUE_CHARS, configure, get_logger

CANARY = "sesame-4711"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    target = io.StringIO()
    configure(level="debug", redact=lambda text: text.replace(CANARY, "[redacted:secret]"), stream=target, pretty=False)
    yield target
    configure()
    root.handlers, root.level = handlers, level


def rows(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().split("\n")[:-1]]


class Color(Enum):
    RED = "red"


def test_scalars(stream: io.StringIO) -> None:
    uuid = UUID(int=7)
    get_logger("x").info("happened", a=1, b=True, c=None, d=0.123456789, e=uuid, f=Color.RED, g=float("inf"))
    (row,) = rows(stream)
    assert row.pop("timestamp").endswith("Z")
    assert row == {
        "part": "x", "event": "happened", "level": "info",
        "a": 1, "b": True, "c": None, "d": 0.123457, "e": str(uuid), "f": "red", "g": "inf",
    }  # fmt: skip


def test_bodies_have_no_way_in(stream: io.StringIO) -> None:
    body = cast("Any", {"password": CANARY})
    get_logger("x").info("happened", body=body, raw=cast("Any", CANARY.encode()), many=cast("Any", [CANARY]))
    (row,) = rows(stream)
    assert (row["body"], row["raw"], row["many"]) == ("[dict]", "[bytes]", "[list]")


def test_values_are_bounded(stream: io.StringIO) -> None:
    get_logger("x").info("happened", a="y" * 10_000)
    assert rows(stream)[0]["a"] == "y" * (VALUE_CHARS - 1) + "…"


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "\x1b[31mred", "a\u2028b\u2029c\x85d", "\x00", "\ud800", '"}\n{'])
def test_no_text_breaks_a_line(stream: io.StringIO, text: str) -> None:
    get_logger("x").info("happened", a=text)
    written = stream.getvalue()
    assert written.isascii()
    assert written.count("\n") == 1
    assert "\x1b" not in written
    assert rows(stream)[0]["a"] == text


def test_pretty_lines_hold_too(stream: io.StringIO) -> None:
    configure(stream=stream, pretty=True)
    get_logger("x").info("happened", a="1\n2\x1b[0m", b="plain")
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert "\x1b" not in written
    assert "x: happened" in written
    assert "b=plain" in written


def test_redaction_is_the_last_step(stream: io.StringIO) -> None:
    logger = get_logger("x").bind(who=CANARY)
    logger.warning("happened", a=f"key {CANARY}")
    assert CANARY not in stream.getvalue()
    assert rows(stream)[0]["who"] == "[redacted:secret]"


def test_an_exception_has_no_text(stream: io.StringIO) -> None:
    def fails() -> None:
        raise ExceptionGroup("g " + CANARY, [ValueError("argument " + CANARY), FileNotFoundError(2, CANARY)])

    try:
        fails()
    except ExceptionGroup as error:
        error.add_note(CANARY)
        get_logger("x").error("failed", error=error)
    (row,) = rows(stream)
    assert "sesame" not in stream.getvalue()
    assert "argument" not in stream.getvalue()
    assert row["error"] == "ExceptionGroup"
    assert row["errors"] == "FileNotFoundError,ValueError"
    assert "test_log.py" in row["where"]
    assert row["where"].endswith(":fails")


def test_libraries_come_through_the_same_net(stream: io.StringIO) -> None:
    library = logging.getLogger("some.library")
    library.warning("token %s\nnext", CANARY)
    library.info("not this one")
    # Straight to the handler: pytest's own, beside it, does not bear a broken format.
    logs._Library().emit(library.makeRecord("some.library", logging.WARNING, "f", 1, "broken %d", ("text",), None))
    try:
        int(CANARY)
    except ValueError:
        library.exception("with %s", CANARY)
    first, second, third = rows(stream)
    assert (first["library"], first["text"]) == ("some.library", "token [redacted:secret]\nnext")
    assert second["text"] == "unreadable message"
    assert (third["event"], third["error"]) == ("library_error", "ValueError")
    assert CANARY not in stream.getvalue()


def test_levels(stream: io.StringIO) -> None:
    configure(level="warning", stream=stream, pretty=False)
    get_logger("x").info("no")
    get_logger("x").error("yes")
    assert [row["event"] for row in rows(stream)] == ["yes"]


def test_a_closed_stream_hurts_nobody() -> None:
    from gateway.observe import metrics

    closed = io.StringIO()
    configure(stream=closed, pretty=False)
    closed.close()
    before = metrics.REGISTRY.get_sample_value("toolrelay_log_lines_lost_total") or 0
    get_logger("x").info("happened")
    assert metrics.REGISTRY.get_sample_value("toolrelay_log_lines_lost_total") == before + 1
    configure()


async def test_the_loops_own_complaints(stream: io.StringIO) -> None:
    loop = asyncio.get_running_loop()
    logs.on_loop_error(loop, {"message": CANARY, "exception": RuntimeError(CANARY)})
    assert rows(stream)[0]["error"] == "RuntimeError"
    assert CANARY not in stream.getvalue()
