"""Redaction of a text that comes in parts. Owns what is held back; must never let a part through that a later one could
make a secret.

For any split of a text the output's sum is that of the whole text. What is held back is at most a rule's head (4 KiB)
or the longest form of a known secret; the tail of a secret is dropped as it comes.
"""

from typing import Final

from gateway.model.clean import LogText
from gateway.model.redaction.counts import Counts
from gateway.model.redaction.scan import Scanner, Span, by_place

_CONTEXT: Final = 128  # bytes before the cut that edges and END lines look back at


def placeholder(kind: str) -> bytes:
    """What stands in a secret's place."""
    return f"[redacted:{kind}]".encode()


class DeltaRedactor:
    """One stream of text. Not shared: every stream has its own."""

    def __init__(self, scanner: Scanner, counts: Counts) -> None:
        self._scanner = scanner
        self._counts = counts
        self._text = b""
        self._cut = 0  # what lies before it is out
        self._covered = 0  # what lies before it belongs to a secret that is out as a placeholder
        self._spans: list[Span] = []

    @property
    def held(self) -> int:
        """Bytes that wait for what comes next."""
        return len(self._text) - self._cut

    def feed(self, text: str) -> LogText:
        """Take the next part; give what is certain by now, possibly nothing."""
        if not text:
            return LogText("")
        self._text += text.encode("utf-8", "surrogatepass")
        limit = self._scanner.live_from(self._text, self._cut)
        while self._cut < limit < len(self._text) and self._text[limit] & 0xC0 == 0x80:
            limit -= 1  # a prefix may begin with any byte, and what goes out ends with a whole character
        return self._advance(limit)

    def flush(self) -> LogText:
        """The text is over: give the rest. The redactor may be used for another text then."""
        out = self._advance(len(self._text), last=True)
        self._text, self._cut, self._covered, self._spans = b"", 0, 0, []
        return out

    def _advance(self, limit: int, *, last: bool = False) -> LogText:
        for span in self._spans:
            if span.open:
                span.grow(self._text)
        fired = self._scanner.gate(self._text[max(0, self._cut - _CONTEXT) :])
        if fired:
            self._spans += self._scanner.spans(self._text, fired, self._cut, limit)
            self._spans.sort(key=by_place)
        out = b"".join(self._pieces(limit))
        self._cut = limit
        self._spans = [span for span in self._spans if not last and (span.open or span.end > limit)]
        self._trim()
        return LogText(out.decode("utf-8", "surrogatepass"))

    def _pieces(self, limit: int) -> list[bytes]:
        pieces: list[bytes] = []
        at = max(self._cut, self._covered)
        for span in self._spans:
            if span.start >= limit:
                break
            if span.start >= self._covered:
                pieces += (self._text[at : span.start], placeholder(span.kind))
                self._counts.add(span.kind)
            self._covered = max(self._covered, span.end)
            at = max(at, self._covered)
        pieces.append(self._text[at:limit])
        return pieces

    def _trim(self) -> None:
        drop = self._cut - _CONTEXT
        if drop > 0:
            self._text = self._text[drop:]
            self._cut -= drop
            self._covered -= drop
            for span in self._spans:
                span.moved(drop)
