"""How much was removed, by kind. Owns the numbers; must never be told what was removed."""

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType


class Counts:
    """Counts by kind; ``also`` hears of each one."""

    def __init__(self, also: Callable[[str], object] | None = None) -> None:
        self._numbers: Counter[str] = Counter()
        self._also = also
        self.by_kind: Mapping[str, int] = MappingProxyType(self._numbers)

    def add(self, kind: str) -> None:
        """One thing of this kind was removed."""
        self._numbers[kind] += 1
        if self._also is not None:
            self._also(kind)
