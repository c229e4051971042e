"""How many children a node has, and in which state. Owns that gauge and nothing of the children themselves."""

from typing import Literal, TypeAlias

from gateway.observe import metrics

State: TypeAlias = Literal["starting", "ready", "running", "draining"]


class Counted:
    """One child in the gauge, from its start until it is dead and reaped; then it stays out."""

    def __init__(self) -> None:
        self._state: State | None = "starting"
        metrics.CHILD_STARTS.inc()
        metrics.CHILDREN.labels("starting").inc()

    def become(self, state: State) -> None:
        """It is in this state now."""
        if self._state is not None:
            self._move(state)

    def gone(self) -> None:
        """It has ended."""
        if self._state is not None:
            self._move(None)

    def _move(self, state: State | None) -> None:
        assert self._state is not None
        metrics.CHILDREN.labels(self._state).dec()
        if state is not None:
            metrics.CHILDREN.labels(state).inc()
        self._state = state
