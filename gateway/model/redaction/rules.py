"""All rules, in their order: where two begin at one place, the earlier names the kind. Owns the order only."""

from typing import Final

from gateway.model.redaction.rule import Rule
from gateway.model.redaction.shapes_cloud import CLOUD
from gateway.model.redaction.shapes_code import CODE
from gateway.model.redaction.shapes_general import ASSIGNMENTS, GENERAL
from gateway.model.redaction.shapes_models import MODELS, OURS
from gateway.model.redaction.shapes_services import SERVICES

RULES: Final[tuple[Rule, ...]] = (*OURS, *MODELS, *CLOUD, *CODE, *SERVICES, *GENERAL, *ASSIGNMENTS)

NAMED_VALUE: Final = "named-value"
"""The KIND of a JSON value under a credential-like key."""
