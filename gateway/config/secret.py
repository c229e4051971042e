"""A configured value that must not be shown. Owns resolving ``env:NAME`` and ``file:PATH``; prints no value, ever."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self, final

FILE_BYTES = 64 * 1024
"""A secret's file may be so large; a larger one is some other file."""

Source = Literal["literal", "env", "file"]


@final
class Secret:
    """A resolved value. ``str`` and ``repr`` show where it came from and never what it is; ``reveal`` gives it.

    ``reference`` is what the configuration says (``env:NAME``, ``file:PATH``), empty for a literal value.
    """

    __slots__ = ("_value", "reference", "source")

    def __init__(self, value: str, *, source: Source = "literal", reference: str = "") -> None:
        self._value = value
        self.source: Source = source
        self.reference = reference

    @classmethod
    def resolve(cls, text: str, *, environ: Mapping[str, str], base: Path) -> Self:
        """Resolve a configured text; a relative ``file:`` path starts at ``base``.

        A file's value is its text less one line end. Raises ``ValueError`` that names the variable or the file.
        """
        scheme, colon, rest = text.partition(":")
        if colon and scheme == "env":
            if not rest:
                raise ValueError("env: names no variable")
            value = environ.get(rest)
            if value is None:
                raise ValueError(f"the environment variable {rest} is not set")
            return cls(value, source="env", reference=text)
        if colon and scheme == "file":
            return cls(_read(base / Path(rest).expanduser()), source="file", reference=text)
        return cls(text)

    def reveal(self) -> str:
        """The value itself, for the one place that uses it."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value and self.reference == other.reference

    __hash__ = None  # type: ignore[assignment]  # a secret is no key of a table that something may print

    def __repr__(self) -> str:
        return f"Secret({self})"

    def __str__(self) -> str:
        if self.reference:
            return self.reference
        return "[secret]" if self._value else ""

    def __format__(self, format_spec: str) -> str:
        return format(str(self), format_spec)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"the file {path} cannot be read: {error.strerror or type(error).__name__}") from None
    if len(data) > FILE_BYTES:
        raise ValueError(f"the file {path} is larger than {FILE_BYTES} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"the file {path} is not UTF-8 text") from None
    return text.removesuffix("\n").removesuffix("\r")
