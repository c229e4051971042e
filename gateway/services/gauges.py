"""What metrics show but nobody counts where it happens: read when they are asked for. Owns which gauge shows what."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from gateway.bus.topology import Topology
from gateway.model.redaction import Redactor
from gateway.observe import metrics


class Gauges:
    """The gauges of one node. ``ready`` tells whether it may be sent work."""

    def __init__(self, topology: Topology, redactor: Redactor, ready: Callable[[], bool]) -> None:
        self._topology: Final = topology
        self._redactor: Final = redactor
        self._ready: Final = ready
        self._shown: Counter[str] = Counter()

    def read(self) -> None:
        """Brings every gauge up to date."""
        metrics.READY.set(self._ready())
        metrics.BUS_CONNECTED.set(self._topology.fault is None)
        for kind, count in self._redactor.counts.items():
            metrics.REDACTIONS.labels(kind).inc(count - self._shown[kind])
            self._shown[kind] = count
