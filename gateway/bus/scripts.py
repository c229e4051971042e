"""The bus' scripts: each transition is one. Owns their rendering; the typed calls live in sessions, clients, calls.

A script's source is the constants of this deployment, the transition table of ``gateway/model/call.py``, the shared
files and its own file, so a rule stands in one place for Python and Lua.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from gateway.bus.wire import Script
from gateway.model import limits
from gateway.model.call import TABLE
from gateway.model.failures import FAILURES

_SHARED: Final = ("prelude", "calls", "clients")
_HOME_GONE: Final = json.dumps("home_gone: the node that keeps this session's work is gone")
_ALONE: Final = frozenset({"renew"})


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


def _table() -> str:
    rows: list[str] = []
    for state, cells in TABLE.items():
        columns = ", ".join(
            f"['{event.value}'] = {{ to = '{cell.to.value}', verdict = '{cell.verdict.value}'"
            + (f", reason = '{cell.reason.value}'" if cell.reason else "")
            + " }"
            for event, cell in cells.items()
        )
        rows.append(f"  ['{state.value}'] = {{ {columns} }},")
    return "local TABLE = {\n" + "\n".join(rows) + "\n}\n"


def _failures() -> str:
    rows = [
        f"  ['{reason.value} {outcome.value}'] = [==[{json.dumps(text)}]==],"
        for (reason, outcome), text in FAILURES.items()
    ]
    return "local FAILURES = {\n" + "\n".join(rows) + "\n}\n"


class Scripts:
    """All scripts, rendered for one deployment. ``sharded``: push by sharded pub/sub (Clusters of Redis 7 or later)."""

    def __init__(self, bounds: Bounds, *, sharded: bool = False) -> None:
        constants = {
            "session_ttl": bounds.session_ttl_ms,
            "touch_every": min(3_600_000, bounds.session_ttl_ms // 10),
            "settled_ttl": bounds.settled_ttl_ms,
            "idempotency_ttl": bounds.idempotency_ttl_ms,
            "log_events": bounds.log_events,
            "ack": bounds.ack_ms,
            "result": bounds.result_ms,
            "refused": bounds.refused_ms,
        }
        numbers = ", ".join(f"{name} = {value}" for name, value in constants.items())
        publish = "SPUBLISH" if sharded else "PUBLISH"
        head = f"local C = {{ {numbers}, publish = '{publish}', home_gone = [==[{_HOME_GONE}]==] }}\n"
        self._shared = head + _table() + _failures() + "".join(_source(name) for name in _SHARED)
        self.create: Final = self._script("create")
        self.delete: Final = self._script("delete")
        self.token_add: Final = self._script("token_add")
        self.token_revoke: Final = self._script("token_revoke")
        self.input: Final = self._script("input")
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
        return Script(_source(name) if name in _ALONE else self._shared + _source(name))

    def all(self) -> tuple[Script, ...]:
        """Every script, to be loaded on each connect."""
        return tuple(value for value in vars(self).values() if isinstance(value, Script))
