"""Offers functions as tools to an agent behind a toolrelay gateway. What is public stands here."""

from toolrelay_client.calls import Call
from toolrelay_client.client import Client, State
from toolrelay_client.errors import ToolError, ToolrelayError
from toolrelay_client.events import Event
from toolrelay_client.options import Registration
from toolrelay_client.tools import Answer, Tool, tool

__all__ = ["Answer", "Call", "Client", "Event", "Registration", "State", "Tool", "ToolError", "ToolrelayError", "tool"]
