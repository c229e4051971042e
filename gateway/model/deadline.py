"""Deadlines: instants on the bus clock. The only module that computes with time; it never reads a clock.

Unit everywhere: whole milliseconds of Redis' own clock (bridge 5). A client is told what remains, never an instant
that it would have to compare with its own clock.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """An instant on the bus clock, in milliseconds."""

    at_ms: int

    @classmethod
    def after(cls, now_ms: int, remaining_ms: int) -> "Deadline":
        """The instant ``remaining_ms`` from ``now_ms``; one that has passed already is ``now_ms`` itself."""
        return cls(now_ms + max(0, remaining_ms))

    def remaining(self, now_ms: int) -> int:
        """Milliseconds left, never negative."""
        return max(0, self.at_ms - now_ms)

    def passed(self, now_ms: int) -> bool:
        """Whether the instant has come: at the instant itself it has."""
        return now_ms >= self.at_ms

    def capped_by(self, other: "Deadline") -> "Deadline":
        """The earlier of the two."""
        return self if self.at_ms <= other.at_ms else other

    def less(self, margin_ms: int) -> "Deadline":
        """The instant ``margin_ms`` earlier."""
        return Deadline(self.at_ms - margin_ms)


def call_budget_ms(timeout_ms: int, margin_ms: int) -> int:
    """What a call may take here of the child's ``timeout_ms``: less the margin, but never less than half of it.

    The margin lets the child hear a proper error instead of its own timeout (bridge 5). A tool that asked for one
    second would lose half of it to the default margin, and no more than that.
    """
    return max(timeout_ms - margin_ms, timeout_ms // 2)
