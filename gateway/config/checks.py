"""Rules that one setting's value must keep beyond its type. Pure; each raises ``ValueError`` with a text for people.

Texts name the rule and, where it is no secret, the value. Nothing here reads a file, a name server or the environment.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit
from uuid import UUID

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#@\s]+)")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
KEY = re.compile(r"[!-~]+")
REDIS_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "redis+cluster")
KEY_MIN_CHARS = 16
KEY_MAX_CHARS = 512
DEFAULT_PORTS = {"http": 80, "https": 443}
INHERITED = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")
"""What a child inherits from the gateway's own environment, and nothing else."""


def listen_host(value: str) -> None:
    """An address or a name to listen on."""
    if not value or any(character.isspace() for character in value):
        raise ValueError("must be an address or a host name")


def is_loopback(host: str) -> bool:
    """Whether listening on ``host`` is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def roles(values: Sequence[str]) -> None:
    """At least one role, each once."""
    if not values:
        raise ValueError("roles: at least one of edge, agents")
    unique("role", values)


def node_name(value: str) -> None:
    """Empty, or a name."""
    if value and not NAME.fullmatch(value):
        raise ValueError("node_name: 1 to 64 of A-Z a-z 0-9 . _ -, a letter or digit first")


def agent_name(value: str) -> None:
    """A name."""
    if not NAME.fullmatch(value):
        raise ValueError("name: 1 to 64 of A-Z a-z 0-9 . _ -, a letter or digit first")


def label(value: str) -> None:
    """A label of a key."""
    if not NAME.fullmatch(value):
        raise ValueError("label: 1 to 64 of A-Z a-z 0-9 . _ -, a letter or digit first")


def key(value: str) -> None:
    """A key that can travel in a header and cannot be guessed at once."""
    if not KEY_MIN_CHARS <= len(value) <= KEY_MAX_CHARS or not KEY.fullmatch(value):
        raise ValueError(f"a key has {KEY_MIN_CHARS} to {KEY_MAX_CHARS} printable ASCII characters without spaces")


def unique(what: str, values: Iterable[str]) -> None:
    """No value twice."""
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"the {what} {value} is there twice")
        seen.add(value)


def host_names(values: Iterable[str]) -> None:
    """Host names or IP literals as a ``Host`` header has them, without a port."""
    for value in values:
        if value.startswith("[") and value.endswith("]"):
            try:
                ip_address(value[1:-1])
            except ValueError:
                raise ValueError(f"allowed_hosts: {value} is no IPv6 address") from None
        elif not HOST.fullmatch(value):
            raise ValueError(f"allowed_hosts: {value} must be a lower-case host name without port, scheme or wildcard")


def public_url(value: str) -> None:
    """Empty, or scheme and host with nothing behind."""
    if not value:
        return
    parts = urlsplit(value)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ValueError("public_url: http:// or https:// and a host, without a path")
    if parts.username or parts.password or parts.fragment:
        raise ValueError("public_url: no user, password or fragment")


def redis_url(value: str) -> None:
    """``embedded`` or an address; no text here quotes it, since it may hold a password."""
    if value == "embedded":
        return
    scheme, found, rest = value.partition("://")
    if not found or scheme not in REDIS_SCHEMES:
        raise ValueError("url: must be embedded or begin with " + ", ".join(f"{name}://" for name in REDIS_SCHEMES))
    if not rest or any(character.isspace() for character in rest):
        raise ValueError(f"url: nothing that can be reached behind {scheme}://")
    try:
        _ = urlsplit(value).port if scheme in ("redis", "rediss") else urlsplit(value)
    except ValueError:
        raise ValueError(f"url: no address that can be read behind {scheme}://") from None
    if scheme == "redis+sentinel" and not re.fullmatch(r"[^/]+/[^/?]+(/\d+)?(\?.*)?", rest):
        raise ValueError("url: redis+sentinel:// needs h1:p1,h2:p2 and the name of the primary: /name")


def redis_passwords(value: str) -> list[str]:
    """The passwords in an address, each as written and, where that differs, decoded."""
    scheme, _, rest = value.partition("://")
    found: list[str] = []
    if scheme in ("redis+sentinel", "redis+cluster"):  # each host may have credentials of its own
        found = re.findall(r"(?:^|,)[^:@,/]*:([^@,]*)@", rest)
    else:
        found = [rest.rpartition("@")[0].partition(":")[2]]
    items = (item.partition("=") for item in urlsplit(value).query.split("&"))
    found += [text for name, _, text in items if name in ("password", "sentinel_password")]
    return list(dict.fromkeys(text for raw in found if raw for text in (raw, unquote(raw))))


def redis_prefix(value: str) -> None:
    """Text that stands in every key: braces would move a key to another slot."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,32}", value):
        raise ValueError("prefix: 1 to 32 of A-Z a-z 0-9 . _ -")


def uuid_text(value: str) -> str:
    """The canonical text of a uuid; empty stays empty."""
    if not value:
        return ""
    try:
        return str(UUID(value))
    except ValueError:
        raise ValueError("id: must be a uuid") from None


def command(values: Sequence[str]) -> None:
    """A program and its arguments."""
    if not values or not values[0]:
        raise ValueError("command: at least a program")
    if any("\0" in value for value in values):
        raise ValueError("command: no NUL")


def cwd(value: str) -> None:
    """An absolute folder; braces stand for the session's id and for nothing else."""
    if not value.startswith("/"):
        raise ValueError("cwd: must be an absolute path")
    rest = value.replace("{session_id}", "")
    if "{" in rest or "}" in rest or "\0" in rest:
        raise ValueError("cwd: only {session_id} may stand in braces")


def environment_names(values: Iterable[str]) -> None:
    """Names that a process environment can hold."""
    for value in values:
        if not VARIABLE.fullmatch(value):
            raise ValueError("env: a name is made of letters, digits and _, and begins with no digit")


def origins(values: Iterable[str]) -> None:
    """Origins exactly as a browser writes them: a difference would never match."""
    for value in values:
        if value in ("null", "*"):
            raise ValueError(f"allowed_origins: {value} is never allowed")
        match = ORIGIN.fullmatch(value)
        if not match:
            raise ValueError(f"allowed_origins: {value} must be scheme://host or scheme://host:port")
        scheme, authority = match.groups()
        host, colon, port = authority.rpartition(":")
        if colon and not authority.endswith("]"):
            if not port.isdigit() or not 0 < int(port) < 65_536:
                raise ValueError(f"allowed_origins: {value} has no valid port")
            if DEFAULT_PORTS.get(scheme) == int(port):
                raise ValueError(f"allowed_origins: {value} names the default port, which browsers leave out")
        else:
            host = authority
        if scheme in DEFAULT_PORTS and host != host.lower():
            raise ValueError(f"allowed_origins: {value} must be lower case")
        if "*" in host:
            raise ValueError(f"allowed_origins: {value}: origins are exact, without wildcards")
