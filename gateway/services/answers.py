"""What clients say of their calls: acks and answers. Owns the order clean, redact, record; knows no wire format.

An answer is cleaned and redacted here, by whichever node it reaches, and recorded in both forms: the log's for readers
and the child's for its owner. A refused answer does not use the call up (bridge 6).
"""

import hashlib
from asyncio import Future
from typing import Final

import msgspec

from gateway.bus.calls import Calls
from gateway.model import events
from gateway.model.clean import ModelJson, ModelText
from gateway.model.error_texts import CallError, client_says, error_text
from gateway.model.errors import Refusal
from gateway.model.redaction import RedactionCollision, Redactor, ours_for_model
from gateway.model.text import clean_text
from gateway.observe import metrics
from gateway.observe.log import get_logger

log = get_logger("answers")


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What the child is to get of an answer: cleaned, redacted, not yet measured. ``structured`` is JSON or None."""

    text: ModelText
    is_error: bool
    structured: ModelJson | None


_WHY_CHARS: Final = 300
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Answer).decode
_COLLISION: Final = ours_for_model(error_text(CallError.RESULT_COLLIDES))


def read_answer(recorded: bytes) -> Answer:
    """The answer that ``Answers.answer`` recorded."""
    return _decode(recorded)


class Answers:
    """Acks and answers of all clients, over whatever adapter."""

    def __init__(self, calls: Calls, redactor: Redactor) -> None:
        self._calls = calls
        self._redactor = redactor

    async def ack(self, session_id: str, client_id: str, call_id: str) -> bytes:
        """The ``client_tool_acked`` event. Raises Refusal(NOT_FOUND, CONFLICT)."""
        return await self._calls.ack(session_id, client_id, call_id)

    def send_ack(self, session_id: str, client_id: str, call_id: str) -> Future[object]:
        """As ``ack``, enqueued now; ``store.outcome`` reads the answer."""
        return self._calls.send_ack(session_id, client_id, call_id)

    async def answer(
        self, session_id: str, client_id: str, call_id: str, *, text: str, is_error: bool, structured: bytes | None
    ) -> None:
        """Settles a call. ``text`` and ``structured`` (compact JSON) have their sizes checked already.

        Raises Refusal(NOT_FOUND, CONFLICT).
        """
        digest, answer, result = self._recorded(call_id, text, structured, is_error=is_error)
        await self._calls.answer(session_id, client_id, call_id, digest=digest, answer=answer, result=result)

    def send_answer(
        self, session_id: str, client_id: str, call_id: str, *, text: str, is_error: bool, structured: bytes | None
    ) -> Future[object]:
        """As ``answer``, enqueued now; ``store.outcome`` reads the answer."""
        digest, answer, result = self._recorded(call_id, text, structured, is_error=is_error)
        return self._calls.send_answer(session_id, client_id, call_id, digest=digest, answer=answer, result=result)

    def _recorded(
        self, call_id: str, text: str, structured: bytes | None, *, is_error: bool
    ) -> tuple[str, bytes, events.EventPayload]:
        """An answer as it is recorded: its digest, what the child is to get, what the log shows."""
        told, logged = self._redactor.result_text(clean_text(text))
        try:
            hidden = self._redactor.model_json(structured) if structured is not None else None
            answer = Answer(ModelText(client_says(told)) if is_error else told, is_error, hidden)
        except RedactionCollision:
            answer = Answer(_COLLISION, True, None)
        shown = events.tool_result(call_id, logged, is_error=answer.is_error)
        return _digest(text, is_error, structured), _encode(answer), shown

    async def refuse(self, session_id: str, client_id: str, call_id: str, why: Refusal) -> None:
        """An answer was not valid: its client may correct it for a while. Raises Refusal(NOT_FOUND)."""
        # Redacted before it is cut: half a secret would not be known for one.
        what = self._redactor.log_text(clean_text(why.message))[:_WHY_CHARS].rstrip(".")
        text = self._redactor.log_text(error_text(CallError.REFUSED_ANSWER, what))
        await self._calls.refuse(session_id, client_id, call_id, text)
        metrics.ANSWERS_REFUSED.labels(why.envelope_code).inc()
        log.info("an answer was refused", session_id=session_id, call_id=call_id, code=why.envelope_code)


def _digest(text: str, is_error: bool, structured: bytes | None) -> str:
    parts = (
        text.encode(errors="surrogatepass"),
        b"1" if is_error else b"0",
        structured if structured is not None else b"",
    )
    whole = hashlib.sha256()
    for part in parts:
        whole.update(b"%d:" % len(part))
        whole.update(part)
    return whole.hexdigest()
