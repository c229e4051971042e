"""The values that stand for a client and its tools. Owns their shapes only; ``tools.py`` checks what a peer sends."""

import msgspec


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as its client declared it (HTTP protocol, Registrations; contract, Additions to the wire).

    ``name`` is 1-64 of ``[A-Za-z0-9_-]``; ``description`` has at most 4,096 characters; ``parameters`` is the client's
    own JSON Schema, an object, as compact JSON with its keys in the client's order (at most 32 KiB). ``timeout_ms`` is
    what the client asked for, between 1,000 and 300,000; ``None`` when it asked for nothing. ``idempotent`` says that
    a call may be dispatched a second time.
    """

    name: str
    description: str
    parameters: bytes
    timeout_ms: int | None = None
    idempotent: bool = False


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """One live client of a session.

    ``client_id`` is its uuid, ``name`` the name that it was given (``web``, ``web-2``), ``order`` rises by each
    registration of the session, ``tools`` are in the order of the client's list, ``key`` is the app's own name for
    this tab or worker.
    """

    client_id: str
    name: str
    order: int
    tools: tuple[ToolSpec, ...] = ()
    key: str | None = None
