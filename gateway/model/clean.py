"""The types that only redaction can make. Owns nothing but names; must never gain a constructor of its own.

A log, a stream, a child frame or a diagnostic takes one of these and no plain ``str`` or ``bytes``: pyright refuses
whatever has not passed ``gateway.model.redaction`` (bridge: redaction happens once, before the log). They are
``NewType``s, so they cost nothing when the program runs. Calling one of them outside ``gateway/model/redaction`` is a
defect; ``tests/lint`` looks for it.
"""

from typing import NewType

LogText = NewType("LogText", str)
"""Text that any reader may see: known secrets, shapes and named values are gone."""

LogJson = NewType("LogJson", bytes)
"""One JSON value, encoded, that any reader may see: keys and values as in ``LogText``."""

ModelText = NewType("ModelText", str)
"""Text that may go to a child, and so to its model: known secrets and shapes are gone."""

ModelJson = NewType("ModelJson", bytes)
"""One JSON value, encoded, that may go to a child: as ``ModelText``, and values under credential-like keys are gone."""

DispatchJson = NewType("DispatchJson", bytes)
"""A call's arguments, encoded, as the executing client gets them: known secrets and shapes are gone; values under
credential-like keys only where the agent's setting asks for it."""

DiagnosticText = NewType("DiagnosticText", str)
"""Text for logs of the process, metrics, traces and error bodies: as ``LogText``."""
