"""Why a run failed, as the log says it. Owns the reasons' names and texts; a reason begins the text (bridge 9)."""

from typing import Final, LiteralString

from gateway.model.clean import DiagnosticText, LogText
from gateway.model.redaction import trusted
from gateway.observe import metrics

_NOT_THE_CHILDS: Final = frozenset({"owner_lost", "owner_gone", "stopped", "cancelled", "internal", "no_capacity"})
"""Reasons that say nothing against the child."""


class RunFailure(Exception):
    """A run cannot go on. ``text`` is what ``run_failed`` says; ``reason`` begins it and is one of a fixed set: ours,
    and the codes of the protocol."""

    def __init__(self, reason: str, text: LogText) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text

    @classmethod
    def of(cls, reason: LiteralString, what: LiteralString) -> "RunFailure":
        """``reason: what``, both constants of ours."""
        return cls(reason, trusted(reason + ": " + what))

    @classmethod
    def of_child(cls, code: str, what: LiteralString) -> "RunFailure":
        """A child's own code (one of a closed set) and what it was about."""
        return cls(code, LogText(f"{code}: {what}"))

    def count(self) -> None:
        """Count it among the children's failures, unless it says nothing against a child."""
        if self.reason not in _NOT_THE_CHILDS:
            metrics.CHILD_FAILURES.labels(self.reason).inc()

    def with_last_words(self, tail: DiagnosticText) -> "RunFailure":
        """The same, with the redacted end of the child's stderr."""
        return RunFailure(self.reason, LogText(f"{self.text}\nstderr: {tail}")) if tail.strip() else self
