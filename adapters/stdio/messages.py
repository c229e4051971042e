"""One run's assistant messages, put together. Owns their texts and which of them were handed out; must never redact
or log.

Source: stdio protocol, Run events, Runs; bridge 8. A message's parts, joined, are its text; the same series may come
again, ``partial`` or not, and the newest complete one counts. A message is handed out at the next activity or call once
its series is complete; at the run's end whatever is new or differs.
"""

from typing import Final, NamedTuple

from adapters.stdio.frames import MessageDelta, MessageReconcile
from gateway.model.limits import CHILD_ASSISTANT_BYTES

SEGMENTS: Final = 512  # messages of one run (stdio protocol, Framing)


class MessagesError(Exception):
    """The child's messages break a rule: parts out of order, or more than a run may have. It fails closed."""


class ClosedMessage(NamedTuple):
    """A text to log. ``replaces`` says that another text of this message was handed out before."""

    message_id: str
    text: str
    replaces: bool


class _Message:
    __slots__ = ("building", "building_bytes", "final", "handed_out", "next_delta", "text", "text_bytes", "whole")

    def __init__(self) -> None:
        self.text: str | None = None  # of the newest complete series
        self.text_bytes = 0
        self.final = False
        self.building: list[str] | None = None
        self.building_bytes = 0
        self.handed_out: str | None = None
        self.next_delta = 0
        self.whole = True


class RunMessages:
    """The messages of one run, at most 8 MiB and 512 of them."""

    def __init__(self, *, max_bytes: int = CHILD_ASSISTANT_BYTES, max_messages: int = SEGMENTS) -> None:
        self._messages: dict[str, _Message] = {}
        self._waiting: dict[str, None] = {}  # complete and not handed out
        self._max_bytes = max_bytes
        self._max_messages = max_messages
        self._text_bytes = 0
        self._building_bytes = 0

    def delta(self, delta: MessageDelta) -> bool:
        """A live piece; its text is not kept. Whether it follows the one before: else some are missing, and what a
        reader has of the message has a hole until its reconcile. Raises MessagesError."""
        message = self._message(delta.message_id)
        follows = delta.part == message.next_delta
        message.whole = message.whole and follows
        message.next_delta = max(message.next_delta, delta.part + 1)
        return follows

    def reconcile(self, part: MessageReconcile) -> None:
        """One part of a series. Raises MessagesError."""
        message = self._message(part.message_id)
        if part.part == 0:
            self._drop_series(message)
            message.building = []
        if message.building is None or part.part != len(message.building):
            raise MessagesError(f"part {part.part} is not the next one")
        size = len(part.text.encode())
        self._building_bytes += size
        message.building_bytes += size
        if self._building_bytes > self._max_bytes:
            raise MessagesError(f"more than {self._max_bytes} bytes")
        message.building.append(part.text)
        if part.last_part:
            self._complete(part.message_id, message, final=not part.partial)

    def close(self) -> list[ClosedMessage]:
        """At an activity or a call: the messages that are complete and were never handed out, in the child's order."""
        return self._hand_out([message_id for message_id in self._waiting if not self._seen(message_id)])

    def finish(self) -> list[ClosedMessage]:
        """At the run's end, however it ended: what is new, or differs from what was handed out. An incomplete series
        counts for nothing; the last complete one stands."""
        return self._hand_out([message_id for message_id in self._messages if message_id in self._waiting])

    @property
    def incomplete(self) -> tuple[str, ...]:
        """Messages of which no complete series has come."""
        return tuple(message_id for message_id, message in self._messages.items() if message.text is None)

    @property
    def final(self) -> bool:
        """Whether all messages have their final text (``partial: false``), as those of a run that was completed."""
        return all(message.final for message in self._messages.values())

    def _message(self, message_id: str) -> _Message:
        message = self._messages.get(message_id)
        if message is None:
            if len(self._messages) >= self._max_messages:
                raise MessagesError(f"more than {self._max_messages} messages")
            message = self._messages[message_id] = _Message()
        return message

    def _seen(self, message_id: str) -> bool:
        return self._messages[message_id].handed_out is not None

    def _drop_series(self, message: _Message) -> None:
        self._building_bytes -= message.building_bytes
        message.building, message.building_bytes = None, 0

    def _complete(self, message_id: str, message: _Message, *, final: bool) -> None:
        text = "".join(message.building or ())
        self._text_bytes += message.building_bytes - message.text_bytes
        message.text, message.text_bytes = text, message.building_bytes
        message.final = message.final or final
        self._drop_series(message)
        if self._text_bytes > self._max_bytes:
            raise MessagesError(f"more than {self._max_bytes} bytes")
        # An empty text is no message, unless it takes the place of one.
        if text != (message.handed_out or ""):
            self._waiting[message_id] = None
        else:
            self._waiting.pop(message_id, None)

    def _hand_out(self, message_ids: list[str]) -> list[ClosedMessage]:
        closed: list[ClosedMessage] = []
        for message_id in message_ids:
            message = self._messages[message_id]
            text = message.text or ""
            closed.append(ClosedMessage(message_id, text, message.handed_out is not None))
            message.handed_out = text
            del self._waiting[message_id]
        return closed
