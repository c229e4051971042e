"""What goes wrong, by name."""

from typing import Final


class ToolrelayError(Exception):
    """``code`` is the gateway's (``not_found``, ``invalid_request``, ``conflict`` …) or one of ours:
    ``connection_lost`` (whether it was done is not known), ``closed``, ``origin_forbidden``, ``token_failed``,
    ``token_expired``, ``token_revoked``, ``deleted``, ``taken_over``, ``too_large``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ToolError(Exception):
    """Raised by a tool: its text goes to the agent as it is."""


FINAL: Final = {
    4401: ("unauthorized", "the gateway had no token in time"),
    4403: ("origin_forbidden", "this origin may not use the session"),
    4404: ("not_found", "there is no such session, or the token is not one of it"),
}
"""Closes after which the gateway would refuse again."""
