"""Constant texts of the product's own. Owns the one door past the engine; must never take a text made at run time.

``LiteralString`` lets pyright refuse whatever is not written in this source.
"""

from collections.abc import Iterable
from typing import LiteralString

from gateway.model.clean import DiagnosticText, LogJson, LogText, ModelJson, ModelText


def trusted(literal: LiteralString) -> LogText:
    """A constant of ours, for the log."""
    return LogText(literal)


def trusted_json(literal: LiteralString) -> LogJson:
    """Constant JSON of ours, for the log."""
    return LogJson(literal.encode())


def ours_for_model(literal: LiteralString) -> ModelText:
    """A constant of ours, for a child."""
    return ModelText(literal)


def ours_for_model_json(literal: LiteralString) -> ModelJson:
    """Constant JSON of ours, for a child."""
    return ModelJson(literal.encode())


def joined(parts: Iterable[LogText]) -> LogText:
    """Clean pieces, one behind the other. They come from one stream, which looked for secrets across them."""
    return LogText("".join(parts))


def ours_for_diagnostics(literal: LiteralString) -> DiagnosticText:
    """A constant of ours, for the process' own logs and error bodies."""
    return DiagnosticText(literal)
