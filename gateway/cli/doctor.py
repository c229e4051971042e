"""``doctor``: what a running gateway looks like from here, the proxies on the way included. Owns the order and the
words of its checks; changes nothing on the gateway."""

import argparse
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, cast

from gateway.cli.parsing import Commands, add

if TYPE_CHECKING:
    from gateway.cli.client import Gateway

SOCKET_S = 10.0

Verdict = Literal["ok", "fail", "skip"]
Finding = tuple[Verdict, str]


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add(commands, "doctor", "say what is wrong with a running gateway, seen from here")
    parser.add_argument("--url", metavar="URL", default="", help="the gateway's address (or TOOLRELAY_URL)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command: 0 when nothing is wrong, 1 when something is."""
    from gateway.cli.client import Gateway
    from gateway.cli.output import printable

    with Gateway(arguments.url, must_have_key=False) as gateway:
        found = list(_findings(gateway))
    healthy = all(verdict != "fail" for _, verdict, _ in found)
    if arguments.json:
        checks = [{"check": name, "verdict": verdict, "detail": detail} for name, verdict, detail in found]
        print(json.dumps({"url": gateway.url, "healthy": healthy, "checks": checks}, separators=(",", ":")))
    else:
        for name, verdict, detail in found:
            print(f"{verdict:<5} {name:<8} {printable(detail)}")
    return 0 if healthy else 1


def _findings(gateway: "Gateway") -> Iterator[tuple[str, Verdict, str]]:
    from gateway.cli.output import Failure

    checks: tuple[tuple[str, Callable[[Gateway], Finding]], ...] = (
        ("address", _address),
        ("ready", _ready),
        ("key", _key),
        ("socket", _socket),
    )
    for name, check in checks:
        try:
            verdict, detail = check(gateway)
        except Failure as failure:
            verdict, detail = "fail", str(failure)
        yield name, verdict, detail
        if name == "address" and verdict == "fail":
            return  # nothing else could say more


def _address(gateway: "Gateway") -> Finding:
    status, body = gateway.status("/healthz")
    if status != 200 or body != b'{"status":"ok"}':
        return "fail", f"{gateway.url} answers {status}, but not as a toolrelay gateway"
    return "ok", f"{gateway.url} answers"


def _ready(gateway: "Gateway") -> Finding:
    status, body = gateway.status("/readyz")
    if status == 200:
        return "ok", "the node takes work"
    return "fail", f"the node takes no work: {_reasons(body) or status}"


def _reasons(body: bytes) -> str:
    try:
        answer: Any = json.loads(body)
        return ", ".join(cast("list[str]", answer["reasons"]))
    except (ValueError, TypeError, KeyError):
        return ""


def _key(gateway: "Gateway") -> Finding:
    if not gateway.has_key:
        return "skip", "TOOLRELAY_API_KEY is not set"
    names = [str(item.get("name")) for item in gateway.items("/v1/agents", limit=1_000)]
    if not names:
        return "fail", "the API key is good, but reaches no agent"
    return "ok", f"the API key reaches {', '.join(names)}"


def _socket(gateway: "Gateway") -> Finding:
    """A handshake and its end: a proxy on the way has to let the upgrade through."""
    from websockets.exceptions import InvalidHandshake, InvalidStatus
    from websockets.sync.client import connect
    from websockets.typing import Subprotocol

    scheme, _, rest = gateway.url.partition("://")
    address = f"{'wss' if scheme == 'https' else 'ws'}://{rest}/v1/ws"
    try:
        with connect(
            address,
            subprotocols=[Subprotocol("toolrelay.v1")],
            open_timeout=SOCKET_S,
            close_timeout=1,
            proxy=gateway.proxy,
        ):
            return "ok", f"{address} opens"
    except InvalidStatus as refused:
        status = refused.response.status_code
        return "fail", f"{address} is refused ({status}): see server.allowed_hosts, and whether a proxy passes Upgrade"
    except (InvalidHandshake, OSError, TimeoutError) as error:
        return "fail", f"{address} does not open ({type(error).__name__})"
