"""The calls of one child, from the frame that asks to the answer that is taken. Owns which are open; must never encode
or read a frame.

Source: stdio protocol, Client tools. A call is open until we answer it, the child cancels it or its run ends. A refused
answer (``invalid_params``) opens it again; ``stale_client_tool_call`` does not.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from adapters.stdio.frames import ToolCall, ToolCancel
from adapters.stdio.reading import FrameError
from adapters.stdio.requests import CallClosedError
from gateway.model.limits import CHILD_PENDING_CALLS, CHILD_REQUEST_IDS

CLOSED_CALLS_KEPT: Final = 2 * CHILD_REQUEST_IDS
"""Ids of ended calls that are remembered, so that one that comes again is seen."""


class Calls:
    """At most 16 open ones; each id comes once."""

    def __init__(self) -> None:
        self._open: dict[str, ToolCall] = {}
        self._answered: dict[str, ToolCall] = {}  # by us; the broker has not said yet whether it took it
        self._closed: dict[str, None] = {}

    @property
    def open(self) -> Mapping[str, ToolCall]:
        """Those that wait for an answer, by ``call_id``. A view that moves on."""
        return MappingProxyType(self._open)

    @property
    def unsettled(self) -> tuple[ToolCall, ...]:
        """Those that are open, and those whose answer nobody has confirmed."""
        return (*self._open.values(), *self._answered.values())

    def asked(self, call: ToolCall) -> None:
        """A new call. Raises FrameError."""
        if call.call_id in self._open or call.call_id in self._answered or call.call_id in self._closed:
            raise FrameError("call_id_reused")
        if len(self._open) >= CHILD_PENDING_CALLS:
            raise FrameError("too_many_calls", f"more than {CHILD_PENDING_CALLS} open")
        self._open[call.call_id] = call

    def cancelled(self, cancel: ToolCancel) -> bool:
        """Close the call that is meant; False when none is open by this id. Raises FrameError."""
        call = self._open.get(cancel.call_id) or self._answered.get(cancel.call_id)
        if call is None:
            return False
        identity = (call.session_id, call.task_id, call.subagent_id)
        if identity != (cancel.session_id, cancel.task_id, cancel.subagent_id):
            raise FrameError("identity_mismatch", "a cancel of another identity than its call")
        self.close(cancel.call_id)
        return True

    def waiting(self, call_id: str) -> ToolCall:
        """An open call. Raises CallClosedError."""
        call = self._open.get(call_id)
        if call is None:
            raise CallClosedError("the call is not open")
        return call

    def answered(self, call_id: str) -> None:
        """An answer to an open call is on its way."""
        self._answered[call_id] = self._open.pop(call_id)

    def refused(self, call_id: str, code: str) -> None:
        """The child did not take the answer."""
        if code == "stale_client_tool_call":
            self.close(call_id)
        elif call := self._answered.pop(call_id, None):
            self._open[call_id] = call

    def close(self, call_id: str) -> None:
        """Over, however it ended."""
        self._open.pop(call_id, None)
        self._answered.pop(call_id, None)
        self._closed[call_id] = None
        if len(self._closed) > CLOSED_CALLS_KEPT:
            del self._closed[next(iter(self._closed))]

    def close_all(self) -> tuple[ToolCall, ...]:
        """The run that they belong to has ended: those that were open."""
        closed = self.unsettled
        for call in closed:
            self.close(call.call_id)
        return closed
