"""The gateway's own three tools (bridge 3). Owns their descriptors and names; saved permissions hang on every byte.

The child keeps a fingerprint of each tool's descriptor in delegated permissions, so a changed word here takes the tool
from every saved delegation. They are constants for that reason, and a test holds their digest.
"""

from typing import Any, Final

from gateway.model.names import MORE, TOOLS, USE

_TEXT: Final = {"type": "string"}

TOOLS_DESCRIPTION: Final = (
    "List the tools that connected clients offer at this moment, one line each. Clients come and go while you work, so "
    "list again when a tool is missing or has changed. With `tool`, get that tool's whole description and its schema."
)
TOOLS_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {**_TEXT, "description": "List only tools whose name or description has all of these words."},
        "tool": {**_TEXT, "description": "The name of one tool, as the list gives it."},
    },
    "additionalProperties": False,
}
USE_DESCRIPTION: Final = (
    "Call any tool that a connected client offers at this moment, by the name that client__tools gives. Use it for "
    "tools that are not offered to you directly. Look up the tool's schema with client__tools before the first call."
)
USE_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "tool": {**_TEXT, "description": "The name of the tool, as client__tools gives it."},
        "arguments": {"type": "object", "description": "The tool's arguments, as its schema asks for them."},
    },
    "required": ["tool", "arguments"],
    "additionalProperties": False,
}
MORE_DESCRIPTION: Final = (
    "Read on in a tool's result that was too long for one answer. Its first part says which call it is and how many "
    "parts there are."
)
MORE_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "call_id": {**_TEXT, "description": "The call whose result goes on, as its first part gives it."},
        "part": {"type": "integer", "minimum": 1, "description": "The number of the part to read; the first is 1."},
    },
    "required": ["call_id", "part"],
    "additionalProperties": False,
}

ALL: Final = (
    (TOOLS, TOOLS_DESCRIPTION, TOOLS_SCHEMA),
    (USE, USE_DESCRIPTION, USE_SCHEMA),
    (MORE, MORE_DESCRIPTION, MORE_SCHEMA),
)
"""(name, description, schema) of the three, in the order in which a child gets them."""
