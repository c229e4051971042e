"""What Redis can refuse, typed. Owns the bus's error tree and the reading of error lines; never holds a secret.

An error line is a peer's text: of it only the code and a bounded, printable remainder is kept, and never the echo of a
command's arguments that old servers append (it would hold the password of a refused ``AUTH``).
"""

import re
from enum import Enum
from typing import Final


class Kind(Enum):
    """Why the bus is not available. Those above ``OOM`` are seen by this side, the others are said by the server."""

    DOWN = "down"  # no connection now; the command was not sent
    LOST = "lost"  # the connection ended before the answer
    TIMEOUT = "timeout"  # no answer within the bound
    FULL = "full"  # too many commands or bytes wait for answers
    CLOSED = "closed"  # closed by this side
    PROTOCOL = "protocol"  # what came is not RESP, or answers nothing
    VERSION = "version"  # the server is older than 6.2
    OOM = "oom"
    READONLY = "readonly"
    LOADING = "loading"
    BUSY = "busy"  # a script has been running for too long
    NOAUTH = "noauth"
    WRONGPASS = "wrongpass"
    NOPERM = "noperm"
    MISCONF = "misconf"
    NOREPLICAS = "noreplicas"
    MASTERDOWN = "masterdown"
    MAXCLIENTS = "maxclients"
    CLUSTERDOWN = "clusterdown"
    TRYAGAIN = "tryagain"
    MOVED = "moved"  # redirected too often


class BusError(Exception):
    """Anything that Redis or the way to it can raise."""


class BusUnavailable(BusError):
    """The bus cannot do it now. ``maybe_applied`` is true when the command may have been executed all the same: its
    caller decides what to do, this layer never sends a command twice."""

    def __init__(self, kind: Kind, *, maybe_applied: bool = False, detail: str = "") -> None:
        super().__init__(f"{kind.value}: {detail}" if detail else kind.value)
        self.kind = kind
        self.maybe_applied = maybe_applied


class ScriptError(BusError):
    """A refusal of one of our own scripts: an error reply ``TR <code> <detail>``."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code} {detail}" if detail else code)
        self.code = code
        self.detail = detail


class CommandError(BusError):
    """The server cannot accept this command as it is (WRONGTYPE, CROSSSLOT, a script's fault …): a defect of ours."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code} {detail}" if detail else code)
        self.code = code
        self.detail = detail


class NoScript(BusError):
    """The server does not know this script; nothing was executed."""


class Redirect(BusError):
    """Cluster: the slot is served by another node; nothing was executed. ``host`` is empty when it is the same host."""

    def __init__(self, slot: int, host: str, port: int, *, ask: bool) -> None:
        super().__init__(f"{'ASK' if ask else 'MOVED'} slot {slot}")
        self.slot = slot
        self.host = host
        self.port = port
        self.ask = ask


_DETAIL_CHARS: Final = 300
_ECHO: Final = ", with args beginning with"
_BY_CODE: Final = {
    "OOM": Kind.OOM,
    "READONLY": Kind.READONLY,
    "LOADING": Kind.LOADING,
    "BUSY": Kind.BUSY,
    "NOAUTH": Kind.NOAUTH,
    "WRONGPASS": Kind.WRONGPASS,
    "NOPERM": Kind.NOPERM,
    "MISCONF": Kind.MISCONF,
    "NOREPLICAS": Kind.NOREPLICAS,
    "MASTERDOWN": Kind.MASTERDOWN,
    "CLUSTERDOWN": Kind.CLUSTERDOWN,
    "TRYAGAIN": Kind.TRYAGAIN,
}
# Redis 6.2 wraps an error that a script's command met: "ERR Error running script (call to f_<sha>): @user_script:1:
# @user_script: 1: -OOM command not allowed …". Later servers give the inner line itself.
_WRAPPED: Final = re.compile(
    r"ERR Error running script \(call to f_[0-9a-f]{40}\): (?:@\w+: ?\d+: ?)*-?(.*)", re.DOTALL
)


def _readable(text: str) -> str:
    kept = text.split(_ECHO, 1)[0][:_DETAIL_CHARS]
    return "".join(c if c.isprintable() else "?" for c in kept)


def read_error(line: str) -> BusError:
    """The typed form of an error line, without its leading ``-``."""
    code, _, rest = line.partition(" ")
    if code == "TR":
        own, _, detail = rest.partition(" ")
        return ScriptError(_readable(own), _readable(detail))
    if code == "NOSCRIPT":
        return NoScript("NOSCRIPT")
    if code in {"MOVED", "ASK"}:
        slot, _, address = rest.partition(" ")
        host, _, port = address.rpartition(":")
        if slot.isdecimal() and port.isdecimal():
            return Redirect(int(slot), host, int(port), ask=code == "ASK")
    if kind := _BY_CODE.get(code):
        return BusUnavailable(kind, detail=_readable(rest))
    if code == "ERR" and "max number of clients" in rest:
        return BusUnavailable(Kind.MAXCLIENTS)
    if wrapped := _WRAPPED.fullmatch(line):
        inner = wrapped[1]
        if inner.partition(" ")[0] in _BY_CODE or inner.startswith("TR "):
            return read_error(inner)
    return CommandError(_readable(code), _readable(rest))
