"""Why a run failed, as the log says it. Owns the reasons' names and texts; a reason begins the text (bridge 9)."""

from typing import LiteralString

from gateway.model.clean import DiagnosticText, LogText
from gateway.model.redaction import trusted


class RunFailure(Exception):
    """A run cannot go on. ``text`` is what ``run_failed`` says."""

    def __init__(self, text: LogText) -> None:
        super().__init__(text)
        self.text = text

    @classmethod
    def of(cls, reason: LiteralString, what: LiteralString) -> "RunFailure":
        """``reason: what``, both constants of ours."""
        return cls(trusted(reason + ": " + what))

    @classmethod
    def of_child(cls, code: str, what: LiteralString) -> "RunFailure":
        """A child's own code (one of a closed set) and what it was about."""
        return cls(LogText(f"{code}: {what}"))

    def with_last_words(self, tail: DiagnosticText) -> "RunFailure":
        """The same, with the redacted end of the child's stderr."""
        return RunFailure(LogText(f"{self.text}\nstderr: {tail}")) if tail.strip() else self
