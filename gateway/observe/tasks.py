"""Background tasks: named, counted, supervised, ended. Owns every task of the process; nothing else may create one.

A failure is logged by its type and counted, never lost. A supervised task is started again after a growing wait;
``degraded`` names those that wait, so that readiness can follow (redis design: a pump that dies silently).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from random import uniform
from typing import Any, LiteralString, TypeVar

from gateway.observe import metrics
from gateway.observe.log import get_logger

BACKOFF_MIN_S = 0.05
BACKOFF_MAX_S = 5.0
RECOVERED_S = 1.0
"""A supervised task that has held for so long after a failure is no longer degraded."""
CLOSE_S = 5.0
LIMIT = 100_000
NAME = re.compile(r"[a-z][a-z._]{0,63}")

T = TypeVar("T")

log = get_logger("tasks")


class Tasks:
    """The tasks of one owner. Must be used in one running loop.

    ``limit`` bounds how many are open: beyond it ``spawn`` raises ``RuntimeError``; whoever spawns for a peer has a
    smaller bound of its own and refuses that peer first.
    """

    def __init__(self, *, limit: int = LIMIT) -> None:
        self._open: set[asyncio.Task[Any]] = set()
        self._degraded: dict[asyncio.Task[Any] | None, str] = {}
        self._limit = limit
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def names(self) -> list[str]:
        """The names of the open tasks, sorted."""
        return sorted(task.get_name() for task in self._open)

    @property
    def degraded(self) -> list[str]:
        """The names of supervised tasks that failed and have not held for ``RECOVERED_S`` since, sorted."""
        return sorted(self._degraded.values())

    def spawn(self, name: LiteralString, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run ``coro`` in the background. Its failure is logged and counted; the caller may also await the task.

        ``name`` is a literal of a-z, dots and underscores: it stands in logs and metrics. Raises ``RuntimeError`` when
        closed or at the limit; ``coro`` is closed then.
        """
        problem = None
        if not NAME.fullmatch(name):
            problem = "a task's name is made of a-z . _"
        elif self._closed:
            problem = "no task can start: these are closed"
        elif len(self._open) >= self._limit:
            problem = f"no task can start: {self._limit} are open"
        if problem:
            coro.close()
            raise RuntimeError(problem)
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._open.add(task)
        metrics.TASKS.inc()
        task.add_done_callback(self._done)
        return task

    def supervise(
        self,
        name: LiteralString,
        factory: Callable[[], Awaitable[None]],
        *,
        backoff_min_s: float = BACKOFF_MIN_S,
        backoff_max_s: float = BACKOFF_MAX_S,
        on_failure: Callable[[], None] | None = None,
    ) -> asyncio.Task[None]:
        """Run what ``factory`` makes; when it fails, log, count, wait and run it again. A normal return ends it.

        The wait doubles from ``backoff_min_s`` to ``backoff_max_s`` with jitter, and starts anew after a run that held
        for ``backoff_max_s``. ``on_failure`` is called at each failure, before the wait.
        """
        return self.spawn(name, self._supervised(name, factory, backoff_min_s, backoff_max_s, on_failure))

    async def aclose(self, timeout_s: float = CLOSE_S) -> list[str]:
        """Cancel every task and wait for all, at most ``timeout_s``. Returns the names of those that did not end.

        Nothing can be spawned afterwards. The task that calls this is left alone.
        """
        self._closed = True
        waiting = self._open - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        if not waiting:
            return []
        _, stuck = await asyncio.wait(waiting, timeout=timeout_s)
        names = sorted(task.get_name() for task in stuck)
        for name in names:
            log.error("task_stuck", task=name, waited_s=timeout_s)
        return names

    async def _supervised(
        self,
        name: str,
        factory: Callable[[], Awaitable[None]],
        backoff_min_s: float,
        backoff_max_s: float,
        on_failure: Callable[[], None] | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        this = asyncio.current_task()
        wait_s = backoff_min_s
        try:
            while True:
                started = loop.time()
                recovery = loop.call_later(min(RECOVERED_S, backoff_max_s), self._degraded.pop, this, None)
                try:
                    await factory()
                except (Exception, asyncio.CancelledError) as error:
                    # A cancel that nobody asked of this task came from inside: a failure like any other.
                    if isinstance(error, asyncio.CancelledError) and (this is None or this.cancelling()):
                        raise
                    log.error("task_failed", task=name, error=error, held_s=loop.time() - started)
                else:
                    return
                finally:
                    recovery.cancel()
                if loop.time() - started >= backoff_max_s:
                    wait_s = backoff_min_s
                self._degraded[this] = name
                if on_failure is not None:
                    on_failure()
                await asyncio.sleep(wait_s * uniform(0.75, 1.25))  # noqa: S311  # spreads restarts, guards nothing
                metrics.TASK_RESTARTS.labels(name).inc()
                wait_s = min(2 * wait_s, backoff_max_s)
        finally:
            self._degraded.pop(this, None)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._open.discard(task)
        metrics.TASKS.dec()
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            metrics.TASK_FAILURES.inc()
            log.error("task_ended", task=task.get_name(), error=error)
