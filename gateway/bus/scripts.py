"""The bus' scripts: each transition is one. Owns their rendering; the typed calls live in sessions, clients, calls.

A script's source is the constants of this deployment, the transition table of ``gateway/model/call.py``, the shared
files and its own file, so a rule stands in one place for Python and Lua.
"""

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from gateway.bus.clock import STEP_MS
from gateway.bus.wire import Script
from gateway.model import limits
from gateway.model.call import TABLE
from gateway.model.error_texts import FAILURES

_SHARED: Final = ("instant", "prelude", "calls", "clients")
_HOME_GONE: Final = json.dumps("home_gone: the node that keeps this session's work is gone")
_END_LOST: Final = json.dumps("end_lost: how it ended was lost with a server of the bus")
_LOST_EVENTS: Final = 10_000
"""More than a session writes between two replications: so far above what is left a log goes on after a loss."""
_ALONE: Final = frozenset({"renew"})
_OPEN_TTL_MS: Final = 24 * 3600 * 1000  # what is open outlives any step of the server's clock within it


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a deployment may set of the bus (settings ``[limits]``); all in milliseconds but ``log_events``."""

    session_ttl_ms: int = limits.SESSION_TTL_S * 1000
    settled_ttl_ms: int = limits.SETTLED_CALL_TTL_S * 1000
    idempotency_ttl_ms: int = limits.IDEMPOTENCY_TTL_S * 1000
    log_events: int = limits.LOG_EVENTS
    ack_ms: int = limits.ACK_MS
    result_ms: int = limits.RESULT_MS
    refused_ms: int = limits.REFUSED_ANSWER_MS


@cache
def _source(name: str) -> str:
    return (files("gateway.bus") / "lua" / f"{name}.lua").read_text(encoding="utf-8")


def _step() -> str:
    """The table as a function: ``step(state, event)`` is the state that follows, the verdict, the reason.

    A table of tables would be made anew at every run of a script.
    """
    rows = [
        f"  if state == '{state.value}' and event == '{event.value}' then return '{cell.to.value}', "
        f"'{cell.verdict.value}'" + (f", '{cell.reason.value}'" if cell.reason else "") + " end\n"
        for state, cells in TABLE.items()
        for event, cell in cells.items()
    ]
    return "local function step(state, event)\n" + "".join(rows) + "end\n"


def _failure_text() -> str:
    rows = [
        f"  if reason == '{reason.value}' and outcome == '{outcome.value}' then return [==[{json.dumps(text)}]==] end\n"
        for (reason, outcome), text in FAILURES.items()
    ]
    return "local function failure_text(reason, outcome)\n" + "".join(rows) + "end\n"


_FUNCTION: Final = re.compile(r"^local function (\w+)\(.*?^end\n", re.DOTALL | re.MULTILINE)
_WORD: Final = re.compile(r"\w+")


def used_of(shared: str, own: str) -> str:
    """``shared`` without the functions that ``own`` does not reach: each would be made anew at every run.

    A function of the shared files begins with ``local function`` and ends with ``end``, both at the line's begin.
    """
    bodies = {found.group(1): found.group() for found in _FUNCTION.finditer(shared)}
    reached: set[str] = set()
    words = set(_WORD.findall(own))
    while more := (words & bodies.keys()) - reached:
        reached |= more
        for name in more:
            words.update(_WORD.findall(bodies[name]))
    return _FUNCTION.sub(lambda found: found.group() if found.group(1) in reached else "", shared)


class Scripts:
    """All scripts, rendered for one deployment. ``sharded``: push by sharded pub/sub (Clusters of Redis 7 or later)."""

    def __init__(self, bounds: Bounds, *, sharded: bool = False) -> None:
        constants = {
            "session_ttl": bounds.session_ttl_ms,
            "touch_every": min(3_600_000, bounds.session_ttl_ms // 10),
            "settled_ttl": bounds.settled_ttl_ms,
            "open_ttl": max(bounds.settled_ttl_ms, _OPEN_TTL_MS),
            "nodes_ttl": limits.NODES_TTL_S * 1000,
            "idempotency_ttl": bounds.idempotency_ttl_ms,
            "log_events": bounds.log_events,
            "trim_every": 16,  # events between two looks at the log's length, which is kept in hundreds anyway
            "ack": bounds.ack_ms,
            "result": bounds.result_ms,
            "refused": bounds.refused_ms,
            "lost_events": _LOST_EVENTS,
            "step": STEP_MS,
        }
        numbers = ", ".join(f"{name} = {value}" for name, value in constants.items())
        publish = "SPUBLISH" if sharded else "PUBLISH"
        texts = f"home_gone = [==[{_HOME_GONE}]==], end_lost = [==[{_END_LOST}]==]"
        head = f"local C = {{ {numbers}, publish = '{publish}', {texts} }}\n"
        self._alone = head + _source(_SHARED[0])
        self._shared = head + _step() + _failure_text() + "".join(_source(name) for name in _SHARED)
        self.create: Final = self._script("create")
        self.delete: Final = self._script("delete")
        self.token_add: Final = self._script("token_add")
        self.token_revoke: Final = self._script("token_revoke")
        self.input: Final = self._script("input")
        self.enquire: Final = self._script("enquire")
        self.claim: Final = self._script("claim")
        self.run_start: Final = self._script("run_start")
        self.append: Final = self._script("append")
        self.cancel: Final = self._script("cancel")
        self.approve: Final = self._script("approve")
        self.register: Final = self._script("register")
        self.tools: Final = self._script("tools")
        self.ping: Final = self._script("ping")
        self.leave: Final = self._script("leave")
        self.release: Final = self._script("release")
        self.hold: Final = self._script("hold")
        self.orphans: Final = self._script("orphans")
        self.resume: Final = self._script("resume")
        self.dispatch: Final = self._script("dispatch")
        self.ack: Final = self._script("ack")
        self.answer: Final = self._script("answer")
        self.refuse: Final = self._script("refuse")
        self.expire: Final = self._script("expire")
        self.end_call: Final = self._script("end_call")
        self.raise_log: Final = self._script("raise_log")
        self.renumber: Final = self._script("renumber")
        self.sweep: Final = self._script("sweep")
        self.renew: Final = self._script("renew")

    def _script(self, name: str) -> Script:
        own = _source(name)
        return Script((self._alone if name in _ALONE else used_of(self._shared, own)) + own)

    def all(self) -> tuple[Script, ...]:
        """Every script, to be loaded on each connect."""
        return tuple(value for value in vars(self).values() if isinstance(value, Script))
