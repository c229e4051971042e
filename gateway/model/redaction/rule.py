"""What a rule is. Owns the shape of a rule and the kinds of tails; must hold no rule itself.

A rule finds ``lead`` + ``value`` + ``follow``; what is removed is the value and its tail. ``lead`` and ``follow`` are
seen, and stay. Everything but the tail has a longest match (at most 4 KiB), so a stream knows when it may go on.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

HEAD_BYTES: Final = 4_096
"""The longest lead + value + follow of any rule (bridge 11)."""

EDGE: Final = r"(?:\b|\\[abfnrtv]|\\u00[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}|\x1b\[[0-9;]{0,8}m)"
"""Where a value may begin: at a word's edge, or after an escape of JSON, a URL or a terminal that ends in a letter."""


class Tail(Enum):
    """What goes on being removed after a value, without a bound: a class of bytes, or a key's body up to its END."""

    NONE = ""
    WORD = r"[A-Za-z0-9_\-]"
    BASE64 = r"[A-Za-z0-9+/=_\-]"
    DOTTED = r"[A-Za-z0-9_\-.=]"
    ESCAPED = r"[A-Za-z0-9%+/=_\-.~]"
    BARE = r"""[^\s"'`<>\\,;&(){}\[\]|\x1b]"""
    IN_DOUBLE = r"""[^"\\\r\n]"""
    IN_SINGLE = r"""[^'\\\r\n]"""
    IN_BACK = r"[^`\\\r\n]"
    HEADER = r"""[^\r\n"'\\]"""
    IN_URL = r"""[^\s"'`<>/@\\]"""
    PEM = "-----END"


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret.

    ``name``: the KIND of ``[redacted:KIND]``. ``says``: one line for the documentation. ``value``: what is removed.
    ``lead``: what must come before it; a group called ``name`` in it must be a credential-like name. ``follow``: what
    may come after it. ``unless``: values (with what followed) that are not secrets after all. ``edge``: the value or
    lead begins at an edge. ``example`` and ``counter``: templates (see ``samples``) of a text that is found, and of
    one that is not.
    """

    name: str
    says: str
    value: str
    tail: Tail
    example: str
    counter: str
    lead: str = ""
    follow: str = ""
    unless: str = ""
    edge: bool = True

    @property
    def head(self) -> str:
        """The whole pattern; its last group is the value."""
        return f"{EDGE if self.edge else ''}{self.lead}({self.value}){self.follow}"
