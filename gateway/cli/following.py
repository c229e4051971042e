"""A session's log as it comes, for the commands that follow one. Owns the stream's fields, the position and the
retries; knows nothing of what the events say."""

import json
import sys
import time
from collections.abc import Generator, Iterator
from typing import Any

from gateway.cli.client import Gateway
from gateway.cli.output import Failure

RETRY_MIN_S = 1.0
RETRY_MAX_S = 30.0


def follow(gateway: Gateway, session_id: str, after_seq: int | None) -> Iterator[dict[str, Any]]:
    """Events behind ``after_seq``, or from now on; a stream that breaks goes on from its position.

    Ends by Ctrl-C, or by raising ``Failure`` for a final refusal.
    """
    position: int | None = None
    wait_s = RETRY_MIN_S
    while True:
        before = position
        events = _stream(gateway, session_id, after_seq, position)
        try:
            while True:
                position, event = next(events)
                if event is not None:
                    yield event
        except (StopIteration, ConnectionError):
            pass
        wait_s = RETRY_MIN_S if position != before else min(2 * wait_s, RETRY_MAX_S)
        print(f"toolrelay: the stream ended; asking again in {wait_s:g} s", file=sys.stderr)
        time.sleep(wait_s)


def _stream(
    gateway: Gateway, session_id: str, after_seq: int | None, position: int | None
) -> Generator[tuple[int | None, dict[str, Any] | None]]:
    """The position after each event, and the event; no event where the stream tells the position alone."""
    query = {"after_seq": after_seq} if after_seq is not None else {}
    data: list[bytes] = []
    for line in gateway.lines(f"/v1/sessions/{session_id}/events/stream", query=query, last_id=position):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"id" and value.isdigit():
            position = int(value)
        elif field == b"data":
            data.append(value)
        elif not line:
            event = _event(b"\n".join(data)) if data else None
            if event is not None:
                position = max(event["seq"], position or 0)
            data = []
            yield position, event


def _event(data: bytes) -> dict[str, Any]:
    try:
        event: Any = json.loads(data)
        return {**event, "seq": int(event["seq"]), "type": str(event["type"])}
    except (ValueError, TypeError, KeyError):
        raise Failure("the stream sent what is no event") from None
