"""What a failover has lost of a log, seen by those who were given it. Owns the comparison; a script tells readers.

A failover may lose events that readers have, and by the time that anybody looks others may have their numbers (bridge
8). So it is not the head alone that is compared, but the last event that readers were given.
"""

from gateway.bus.log import Entry, Log


async def head_after_gap(log: Log, session_id: str, known: int, given: Entry | None) -> int:
    """The log's head; first readers are told if a failover has lost what they know.

    ``known``: the last seq that this node knows of; ``given``: the last event that it has given to readers, if any.
    Raises Refusal(NOT_FOUND), BusUnavailable.
    """
    head = await log.head(session_id)
    replaced = None
    if given is not None:
        found = await log.after(session_id, given.seq - 1, 1)
        replaced = None if found and _same(found[0], given) else given.seq
    if head >= known and replaced is None:
        return head
    return await log.raise_to(session_id, known, replaced)


def _same(entry: Entry, given: Entry) -> bool:
    """Whether a reader was given this entry of the log, in whichever form."""
    return entry.seq == given.seq and (entry.event == given.event or _of_dispatch(entry) == _of_dispatch(given) != b"")


def _of_dispatch(entry: Entry) -> bytes:
    """What both forms of a dispatch have in common, as the scripts write it; empty for any other event."""
    head, found, _ = entry.event.partition(b',"arguments":')
    return head if found and b'"type":"client_tool_dispatched"' in head else b""
