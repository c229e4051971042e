"""Redaction: the one place where secrets are removed, once, before the log (bridge 11).

Use ``Redactor``; it alone makes the types of ``gateway.model.clean``. Constants of the product's own pass through
``trusted`` and its kin, which take literals only.
"""

from gateway.model.redaction.engine import Redactor
from gateway.model.redaction.jsontext import RedactionCollision
from gateway.model.redaction.known import KnownSecret
from gateway.model.redaction.ours import (
    joined,
    ours_for_diagnostics,
    ours_for_model,
    ours_for_model_json,
    trusted,
    trusted_json,
)
from gateway.model.redaction.rule import Rule
from gateway.model.redaction.rules import RULES
from gateway.model.redaction.stream import DeltaRedactor

__all__ = [
    "RULES",
    "DeltaRedactor",
    "KnownSecret",
    "RedactionCollision",
    "Redactor",
    "Rule",
    "joined",
    "ours_for_diagnostics",
    "ours_for_model",
    "ours_for_model_json",
    "trusted",
    "trusted_json",
]
