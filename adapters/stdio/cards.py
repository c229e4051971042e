"""Which of a run's display cards are logged. Owns that choice; must never read more of a card than its head.

A card is a whole snapshot that replaces the one before it, and a child makes a new one with every line of progress. A
log needs two: the first that says something, and the finished one.
"""

from typing import Final

import msgspec

from adapters.stdio.frames import CardHead, ToolCard

CARDS: Final = 4_096  # of one run (tool.cards, cards_per_run)

_head: Final = msgspec.json.Decoder(CardHead).decode


class Cards:
    """The cards of one run."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def wanted(self, event: ToolCard) -> bool:
        """Whether this snapshot goes to the log: the finished one, and of those before it the first that has more than
        a place (revision 0)."""
        head = _head(bytes(event.card))
        if head.state == "finished":
            self._shown.add(head.card_id)
            return True
        if head.revision == 0 or head.card_id in self._shown or len(self._shown) >= CARDS:
            return False
        self._shown.add(head.card_id)
        return True
