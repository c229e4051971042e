"""The list of tools, and what the gateway has of it. Owns when a changed list is sent."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from toolrelay_client.errors import ToolrelayError
from toolrelay_client.link import Link
from toolrelay_client.tools import Tool


class Offer:
    """Of one client. ``failed`` hears of a list that was refused."""

    def __init__(self, failed: Callable[[ToolrelayError], None]) -> None:
        self.tools: dict[str, Tool] = {}
        self.changed = False
        self._sent = b""
        self._failed = failed

    def take(self) -> msgspec.Raw:
        """The list, to be registered now."""
        self.changed = False
        self._sent = msgspec.json.encode([tool.wire() for tool in self.tools.values()])
        return msgspec.Raw(self._sent)

    def flush(self, link: Link, client_id: str) -> None:
        """Sends the list where the gateway has another one."""
        if self._sent and not self.changed:
            return
        before, tools = self._sent, self.take()
        sent = self._sent
        if sent == before:
            return

        def answered(asked: "asyncio.Future[Any]") -> None:
            error = None if asked.cancelled() else asked.exception()
            if not isinstance(error, ToolrelayError):
                return
            if self._sent == sent:
                self._sent = before
            if error.code == "connection_lost":
                self.changed = True
            else:
                self._failed(error)

        link.ask("tools", client_id=client_id, tools=tools).add_done_callback(answered)
