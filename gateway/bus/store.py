"""The way from a session to its partition's connection. Owns the running of scripts and the turning of their refusals
into the catalogue's; knows no rule of its own.

Order: commands of one session go over one connection in the order of these calls, so a caller that must keep an order
need not await each (redis.md, "Connections").
"""

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, cast

from gateway.bus.errors import BusUnavailable, Kind, ScriptError
from gateway.bus.keys import Keys, SessionKeys
from gateway.bus.scripts import Scripts
from gateway.bus.topology import Topology
from gateway.bus.wire import Arg, Script
from gateway.model.errors import Code, Refusal

PATIENCE_S: Final = 20.0
_PAUSE_S: Final = 0.05
_LOOK_S: Final = 0.5
_LASTING: Final = frozenset({Kind.CLOSED, Kind.NOAUTH, Kind.WRONGPASS, Kind.NOPERM, Kind.VERSION})
"""Faults that no waiting mends."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Fenced(Exception):
    """Somebody else owns the session: whatever this owner still wants to write is void."""


_CODES: Final = {
    "not_found": (Code.NOT_FOUND, None),
    "conflict": (Code.CONFLICT, None),
    "idempotency_conflict": (Code.IDEMPOTENCY_CONFLICT, None),
    "queue_full": (Code.QUEUE_FULL, None),
    "run_active": (Code.CONFLICT, "a run is active or waits: ask again when it has ended"),
    "no_owner": (Code.NO_CAPACITY, "no node can run this session's agent now"),
    "too_many_clients": (Code.CONFLICT, "the session has as many live clients as it may (32)"),
    "too_many_names": (Code.CONFLICT, "the session has handed out as many client names as it may (10000)"),
    "too_many_tokens": (Code.CONFLICT, "the session has as many live tokens as it may"),
}


def refused(error: ScriptError) -> Exception:
    """The catalogue's refusal (or ``Fenced``) for an error reply of one of our scripts."""
    if error.code == "fenced":
        return Fenced()
    if error.code == "settled":
        state, reason, at_ms = [*error.detail.split(" "), "-", "0"][:3]
        why = f" ({reason})" if reason != "-" else ""
        return Refusal(Code.CONFLICT, f"this call has been settled: {state}{why} at {rfc3339(int(at_ms))}")
    code, message = _CODES.get(error.code, (Code.INTERNAL, None))
    return Refusal(code, message)


def rfc3339(at_ms: int) -> str:
    """An instant of the bus clock, as the scripts write it: UTC, milliseconds, ``Z``."""
    seconds, millis = divmod(at_ms, 1000)
    # The arithmetic of datetime on a fixed epoch, without a time zone's look-up.
    moment = _EPOCH + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"


async def answered(reply: Awaitable[object]) -> object:
    """The answer of a script; its refusals are raised from the catalogue."""
    try:
        return await reply
    except ScriptError as error:
        raise refused(error) from None


def outcome(sent: Future[object]) -> object:
    """What a script that is done has answered, for whoever waits by a callback. Raises as ``answered`` does."""
    try:
        return sent.result()
    except ScriptError as error:
        raise refused(error) from None


def text(value: object) -> str:
    """A reply's string."""
    return cast("bytes", value).decode()


class Store:
    """Runs scripts and commands for sessions.

    Whoever waits for an answer here waits through an outage of the bus, for ``patience_s`` at most: a peer's retries
    are few, and an outage that ends soon should cost it nothing.
    """

    def __init__(self, topology: Topology, keys: Keys, scripts: Scripts, *, patience_s: float = PATIENCE_S) -> None:
        self.topology: Final = topology
        self.keys: Final = keys
        self.scripts: Final = scripts
        self._patience_s = patience_s

    def send(self, session: SessionKeys, script: Script, *args: Arg) -> Future[object]:
        """Enqueues a script now; whoever awaits the result sees ``ScriptError`` raw (``answered``, ``outcome``)."""
        try:
            return self.topology.for_partition(session.tag).run(
                script, (session.base, session.due), (*args, self.stamp(session.tag))
            )
        except BusUnavailable as error:  # a Cluster whose slots are not known
            failed: Future[object] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    async def run(self, session_id: str, script: Script, *args: Arg, again: bool) -> object:
        """Runs a session's script. Raises Refusal, Fenced or BusUnavailable.

        ``again``: the script may run a second time when the answer to the first was lost, since its effect is the same
        (by the state that it finds, or by an idempotency key). Without it such a loss is the caller's to answer.
        """
        session = self.keys.session(session_id)
        return await self._patiently(session.tag, lambda: self.send(session, script, *args), again=again)

    async def _patiently(self, tag: str, send: Callable[[], Future[object]], *, again: bool) -> object:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience_s
        while True:
            try:
                return await answered(send())
            except BusUnavailable as error:
                left = end - loop.time()
                if left <= 0 or error.kind in _LASTING or (error.maybe_applied and not again):
                    raise
            await asyncio.sleep(min(_PAUSE_S, left))
            with suppress(
                BusUnavailable
            ):  # asked for again: in a Cluster another server may have the partition by then
                await self.topology.for_partition(tag).ready(min(_LOOK_S, left))

    def stamp(self, tag: str) -> bytes:
        """The last argument of every script: what this node says of the time (``Clock.stamp``)."""
        return self.topology.clock_for(tag).stamp()

    def now_ms(self, tag: str) -> int:
        """The clock that stamps a partition's instants, as this node estimates it now."""
        return self.topology.clock_for(tag).now_ms()

    async def call(self, tag: str, *args: Arg) -> object:
        """One command that reads, or whose effect is the same the second time. Raises BusUnavailable."""
        return await self._patiently(tag, lambda: self.topology.for_partition(tag).call(*args), again=True)
