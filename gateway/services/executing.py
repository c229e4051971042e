"""The executing form of a dispatch, joined in where the log has a redacted one (bridge 11). Owns that joining.

The log is clean for every reader. While a call is open, whoever reads its dispatch again needs the arguments as its
client executes them; those stand in the call's record, and go when it settles.
"""

from typing import Final

import msgspec

from gateway.bus.calls import Calls
from gateway.bus.log import Entry

_HIDDEN: Final = b',"redacted":true}'  # how a script ends a dispatch whose executing form is elsewhere


class _Hidden(msgspec.Struct):
    """The fields of a hidden dispatch that find its executing arguments."""

    call_id: str
    arguments: msgspec.Raw


_decode: Final = msgspec.json.Decoder(_Hidden).decode


class ExecutingForms:
    """Reads them of the calls' records."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def joined(self, session_id: str, entries: list[Entry]) -> list[Entry]:
        """Entries of the log with the dispatches of open calls as their clients get them. Raises BusUnavailable."""
        hidden = {place: _decode(entry.event) for place, entry in enumerate(entries) if entry.event.endswith(_HIDDEN)}
        if not hidden:
            return entries
        found = await self._calls.executing_arguments(session_id, [dispatch.call_id for dispatch in hidden.values()])
        shown = list(entries)
        for (place, dispatch), arguments in zip(hidden.items(), found, strict=True):
            if arguments is not None:
                entry = entries[place]
                shown[place] = Entry(entry.seq, _replaced(entry.event, bytes(dispatch.arguments), arguments))
        return shown


def _replaced(event: bytes, hidden: bytes, executing: bytes) -> bytes:
    """The event with its executing arguments. The scripts write ``"arguments":…,"attempt":`` and nothing else does."""
    head, _, rest = event.partition(b',"arguments":' + hidden + b',"attempt":')
    return head + b',"arguments":' + executing + b',"attempt":' + rest.removesuffix(_HIDDEN) + b"}"
