"""The one engine. Owns what is removed where (bridge 11); must never keep or count a secret itself.

``Redactor`` is the only maker of the types of ``gateway.model.clean``.
"""

from collections.abc import Callable, Mapping, Sequence

from gateway.model.clean import DiagnosticText, DispatchJson, LogJson, LogText, ModelJson, ModelText
from gateway.model.redaction.counts import Counts
from gateway.model.redaction.jsontext import Changes, applied, encoded, look
from gateway.model.redaction.known import KnownForms, KnownSecret
from gateway.model.redaction.named import NamedValues
from gateway.model.redaction.places import Places
from gateway.model.redaction.rules import NAMED_VALUE
from gateway.model.redaction.scan import Scanner
from gateway.model.redaction.stream import DeltaRedactor, placeholder


class Redactor:
    """Removes known secrets, shapes and named values. Immutable; shared by all sessions of a process.

    ``known``: secrets by value; those under 8 characters are ignored. ``counted`` is told the kind of each thing that
    is removed, and never the thing. Every method is linear in its input. A text in
    which nothing is found comes back as the very same object.
    """

    def __init__(self, known: Sequence[KnownSecret], counted: Callable[[str], object] | None = None) -> None:
        self._scanner = Scanner(KnownForms(known))
        self._counts = Counts(counted)

    @property
    def counts(self) -> Mapping[str, int]:
        """How much was removed, by kind, since this redactor was made."""
        return self._counts.by_kind

    def finds(self, text: str) -> bool:
        """Whether anything would be removed from a text: for what can be refused and not changed. Counts nothing."""
        encoded = text.encode("utf-8", "surrogatepass")
        fired = self._scanner.gate(encoded)
        return bool(fired) and bool(self._scanner.spans(encoded, fired, 0, len(encoded)))

    def log_text(self, text: str) -> LogText:
        """Text for the log: known secrets and shapes, assignments among them."""
        return LogText(self._text(text))

    def model_text(self, text: str) -> ModelText:
        """Text for a child: known secrets and shapes."""
        return ModelText(self._text(text))

    def result_text(self, text: str) -> tuple[ModelText, LogText]:
        """A result for a child and for the log: the same is hidden in both, so it is searched once."""
        hidden = self._text(text)
        return ModelText(hidden), LogText(hidden)

    def diagnostic(self, text: str) -> DiagnosticText:
        """Text for the process' own logs, metrics and error bodies: as ``log_text``."""
        return DiagnosticText(self._text(text))

    def log_json(self, raw: bytes) -> LogJson:
        """One encoded JSON value for the log: keys and strings as ``log_text``, and values under credential-like keys.

        Raises ``RedactionCollision`` where two keys become one, ValueError where ``raw`` is not JSON and something
        would have to be removed.
        """
        return LogJson(self._json(raw, by_name=True))

    def model_json(self, raw: bytes) -> ModelJson:
        """One encoded JSON value for a child (``structured``): as ``log_json``."""
        return ModelJson(self._json(raw, by_name=True))

    def schema_json(self, raw: bytes) -> ModelJson:
        """A tool's schema, for a child: known secrets and shapes. A property may be called ``password``."""
        return ModelJson(self._json(raw, by_name=False))

    def dispatch_json(self, raw: bytes, *, by_name: bool) -> DispatchJson:
        """A call's arguments for the client that executes it; ``by_name``: the agent's setting."""
        return DispatchJson(self._json(raw, by_name=by_name))

    def deltas(self) -> DeltaRedactor:
        """A redactor for one stream of text, with the output of ``log_text`` for any split of it."""
        return DeltaRedactor(self._scanner, self._counts)

    def _text(self, text: str) -> str:
        encoded = text.encode("utf-8", "surrogatepass")
        fired = self._scanner.gate(encoded)
        if not fired:
            return text
        spans = self._scanner.spans(encoded, fired, 0, len(encoded))
        if not spans:
            return text
        pieces: list[bytes] = []
        covered = 0
        for span in spans:
            if span.start >= covered:
                pieces += (encoded[covered : span.start], placeholder(span.kind))
                self._counts.add(span.kind)
            covered = max(covered, span.end)
        pieces.append(encoded[covered:])
        return b"".join(pieces).decode("utf-8", "surrogatepass")

    def _json(self, raw: bytes, *, by_name: bool) -> bytes:
        places = Places(raw)
        marks = self._scanner.marks(places)
        keys = self._scanner.keys(places) if by_name else []
        if not marks and not keys:
            return raw
        changes = Changes()
        look(places, self._text, marks, changes)
        NamedValues(places, self._named, changes).remove(keys)
        return applied(raw, places, changes) if changes.new else raw

    def _named(self) -> bytes:
        self._counts.add(NAMED_VALUE)
        return encoded(placeholder(NAMED_VALUE).decode())
