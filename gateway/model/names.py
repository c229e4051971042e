"""Names: what a model calls a tool, and what a client is called (bridge 2). Owns both rules; never parses a name back.

A model name is ``client__<client>__<tool>`` with every ``-`` turned into ``_``, at most 64 bytes, which is what the
child takes (stdio protocol, Bounds and schemas). The way back is the catalog's table.
"""

import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Final

from gateway.model.limits import CHILD_TOOL_NAME_BYTES, CLIENT_NAME_CHARS
from gateway.model.registration import Registration

TOOLS: Final = "client__tools"
USE: Final = "client__use"
MORE: Final = "client__more"
RESERVED: Final = frozenset({TOOLS, USE, MORE})
"""The gateway's own tools. No client's tool can get such a name: it always has a client's name and ``__`` more."""

ToolKey = tuple[str, str]
"""(client id, the tool's name as the client declared it)."""

_DIGITS: Final = 6
_UNOFFERED: Final = 256  # names of tools that a client has taken from its list, kept for it


def plain_name(client_name: str, tool: str) -> str:
    """The model name of a tool that nobody else wants; it may be longer than 64 bytes."""
    return f"client__{client_name}__{tool}".replace("-", "_")


def hashed_name(client_name: str, tool: str, digits: int = _DIGITS) -> str:
    """The plain name cut to fit, ``_`` and ``digits`` hex digits of a SHA-256 over (client name, tool name)."""
    tail = "_" + hashlib.sha256(f"{client_name}\0{tool}".encode()).hexdigest()[:digits]
    return plain_name(client_name, tool)[: CHILD_TOOL_NAME_BYTES - len(tail)] + tail


def model_names(registrations: Iterable[Registration], held: Mapping[ToolKey, str] | None = None) -> dict[ToolKey, str]:
    """The model name of every tool that is offered.

    ``held`` are the names that were given before (``kept_names``): whoever holds one keeps it as long as its
    registration lives, and nobody else gets it, also while the tool is not offered. New tools are named in the order
    of (registration, place in its list), so every node that knows the same registrations and the same ``held`` gives
    the same names. With nothing held, the older registration gets the plain name.
    """
    held = held or {}
    wanted = [
        ((entry.client_id, tool.name), entry.name)
        for entry in sorted(registrations, key=lambda entry: entry.order)
        for tool in entry.tools
    ]
    names = {key: held[key] for key, _ in wanted if key in held}
    live = {key[0] for key, _ in wanted}
    taken = {*RESERVED, *(name for key, name in held.items() if key[0] in live)}
    for key, client_name in wanted:
        if key not in names:
            name = _free_name(client_name, key[1], taken)
            names[key] = name
            taken.add(name)
    return {key: names[key] for key, _ in wanted}


def kept_names(held: Mapping[ToolKey, str], names: Mapping[ToolKey, str], live: Container[str]) -> dict[ToolKey, str]:
    """``held`` and newer ``names`` of the ``live`` clients: a tool that left a list and comes back has its old name.

    Of each client the last 256 names that are not offered are kept.
    """
    unoffered = Counter(key[0] for key in held if key not in names)
    kept: dict[ToolKey, str] = {}
    for key, name in held.items():
        if key in names or key[0] not in live:
            continue
        unoffered[key[0]] -= 1
        if unoffered[key[0]] < _UNOFFERED:
            kept[key] = name
    return kept | dict(names)


def _free_name(client_name: str, tool: str, taken: Container[str]) -> str:
    plain = plain_name(client_name, tool)
    if len(plain) <= CHILD_TOOL_NAME_BYTES and plain not in taken:
        return plain
    # Another tool may hold even the hashed name (a client may call its tool so): more digits settle it.
    for digits in range(_DIGITS, CHILD_TOOL_NAME_BYTES - 8):
        name = hashed_name(client_name, tool, digits)
        if name not in taken:
            return name
    raise AssertionError("two tools of one client cannot have the same name")


def counted_name(name: str, count: int) -> str:
    """The client name ``name`` with a counter (``web-2``); its base is cut so that the whole has at most 32 characters.

    ``count`` is 2 or more.
    """
    tail = f"-{count}"
    return name[: CLIENT_NAME_CHARS - len(tail)] + tail


def client_name(wanted: str, spent: Container[str]) -> str:
    """The name that a new client gets: the wanted one, or that with the first counter that nobody has had.

    ``spent`` holds the names that the session has handed out and not freed (HTTP protocol, Registrations).
    """
    name, count = wanted, 1
    while name in spent:
        count += 1
        name = counted_name(wanted, count)
    return name
