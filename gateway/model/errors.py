"""The one error catalogue. Owns every refusal that a peer can see; must never hold a text that quotes a peer's input.

A row joins what each side calls the same refusal: the HTTP status and envelope code (shared by the WebSocket's error
frames), and whether the same request may succeed later. A peer sees a row's code and a message; messages name the
limit, the field or the state, and never a secret or a body.
"""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Row:
    """One refusal: ``code`` is the envelope's, ``status`` the HTTP status, ``close`` a WebSocket close code if it ends
    the socket, ``retry_after_s`` what ``Retry-After`` says when waiting helps."""

    code: str
    status: int
    message: str
    retry_after_s: int | None = None


class Code(Enum):
    """Every refusal. The envelope codes are those of the HTTP protocol; several rows share one."""

    UNAUTHORIZED = Row("unauthorized", 401, "a valid credential is required")
    FORBIDDEN = Row("forbidden", 403, "this credential may not do that")
    ORIGIN_FORBIDDEN = Row("forbidden", 403, "this origin is not allowed")
    HOST_FORBIDDEN = Row("forbidden", 421, "this host name is not served here")
    NOT_FOUND = Row("not_found", 404, "there is no such thing here")
    METHOD_NOT_ALLOWED = Row("invalid_request", 405, "this method is not allowed here")
    INVALID_REQUEST = Row("invalid_request", 400, "the request is not valid")
    REQUEST_TIMEOUT = Row("invalid_request", 408, "the request's body did not come in time")
    TOO_LARGE = Row("invalid_request", 413, "the request is too large")
    UNSUPPORTED_MEDIA = Row("invalid_request", 415, "the body must be JSON without a content encoding")
    CONFLICT = Row("conflict", 409, "this contradicts what is already recorded")
    IDEMPOTENCY_CONFLICT = Row("conflict", 409, "this idempotency key was used for another request")
    TOO_MANY_REQUESTS = Row("too_many_requests", 429, "too many requests", 1)
    QUEUE_FULL = Row("too_many_requests", 429, "too many inputs are waiting in this session", 5)
    INTERNAL = Row("internal", 500, "something went wrong here; it has been logged")
    BUS_UNAVAILABLE = Row("internal", 503, "the bus is not reachable", 1)
    DRAINING = Row("internal", 503, "this node is going away", 1)
    NO_CAPACITY = Row("internal", 503, "no agent can be started now", 5)
    CHILD_TIMEOUT = Row("internal", 503, "the agent did not answer in time", 5)


class Refusal(Exception):
    """A refusal from the catalogue, with a message made for the peer that gets it.

    ``message`` says which field, limit or state; it is the row's own text when nothing finer is known. It must hold
    nothing from the peer's input but names that were checked against an alphabet.
    """

    def __init__(self, code: Code, message: str | None = None, *, retry_after_s: int | None = None) -> None:
        super().__init__(message or code.value.message)
        self.code = code
        self.message = message or code.value.message
        self.retry_after_s = code.value.retry_after_s if retry_after_s is None else retry_after_s

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.code.value.status

    @property
    def envelope_code(self) -> str:
        """The ``error.code`` of HTTP bodies and WebSocket error frames."""
        return self.code.value.code
