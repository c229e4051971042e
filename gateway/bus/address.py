"""A bus URL, read. Owns the schemes and their parameters; a password is in no ``repr`` and in no error.

``redis://``, ``rediss://`` (TLS) and ``unix://`` name one server, ``redis+sentinel://a,b,c/service`` a service that
Sentinels know, ``redis+cluster://a,b,c`` a Cluster by some of its nodes; ``rediss+…`` is each of these by TLS.
"""

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from gateway.bus.connect import Endpoint, Login

_PORT: Final = 6379
_SENTINEL_PORT: Final = 26_379
_SCHEMES: Final = {"redis": "single", "unix": "single", "redis+sentinel": "sentinel", "redis+cluster": "cluster"}
_TLS_PARAMETERS: Final = frozenset(
    {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
)


class AddressError(ValueError):
    """A URL that names no bus. The text names the part that is wrong and quotes nothing."""


@dataclass(frozen=True, slots=True)
class Address:
    """``kind`` is ``single``, ``sentinel`` or ``cluster``; ``endpoints`` the server, the Sentinels or some nodes."""

    kind: str
    endpoints: tuple[Endpoint, ...]
    login: Login
    service: str = ""
    sentinel_login: Login = field(default_factory=Login)

    def __str__(self) -> str:
        """What may be shown: where, and not who."""
        places = ",".join(e.path or f"{e.host}:{e.port}" for e in self.endpoints)
        return f"{self.kind} {places}" + (f" service {self.service}" if self.service else "")


def parse_url(url: str, *, name: str = "toolrelay") -> Address:
    """Reads a bus URL; ``name`` is the client's name at the server. Raises ``AddressError``.

    Query parameters: ``db``, ``sentinel_username``, ``sentinel_password``, and for TLS ``ssl_ca_certs``,
    ``ssl_certfile``, ``ssl_keyfile`` (paths), ``ssl_cert_reqs`` (``required`` or ``none``), ``ssl_check_hostname``
    (``true`` or ``false``). Others are refused.
    """
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise AddressError("the bus URL cannot be read") from None
    scheme = parts.scheme
    tls = scheme == "rediss" or scheme.startswith("rediss+")
    kind = _SCHEMES.get(scheme.replace("rediss", "redis", 1))
    if kind is None:
        raise AddressError("the bus URL's scheme must be redis, rediss, unix, redis+sentinel or redis+cluster")
    context = _tls(query) if tls else None
    userinfo, _, hosts = parts.netloc.rpartition("@")
    username, _, password = userinfo.partition(":")
    sentinel = Login(query.pop("sentinel_username", ""), query.pop("sentinel_password", ""), 0, name)
    if kind != "sentinel" and sentinel.username + sentinel.password:
        raise AddressError("the bus URL has Sentinel parameters and no Sentinel")
    path = unquote(parts.path)
    service = ""
    if scheme == "unix":
        endpoints = (Endpoint(path=path),)
        if hosts or not path.startswith("/"):
            raise AddressError("the bus URL needs an absolute socket path: unix:///run/valkey.sock")
        path = ""
    else:
        port = _SENTINEL_PORT if kind == "sentinel" else _PORT
        endpoints = tuple(_endpoint(host, port, context) for host in hosts.split(","))
        path = path.removeprefix("/")
        if kind == "sentinel":
            service, _, path = path.partition("/")
            if not service:
                raise AddressError("the bus URL needs the service's name: redis+sentinel://host/service")
    db = _db(query.pop("db", None) or path or "0")
    if kind == "cluster" and db:
        raise AddressError("a Cluster has no databases but 0")
    if kind == "single" and len(endpoints) != 1:
        raise AddressError("the bus URL names several servers; use redis+sentinel or redis+cluster")
    if query:
        raise AddressError("the bus URL has a parameter that is not known, or TLS parameters without TLS")
    return Address(kind, endpoints, Login(unquote(username), unquote(password), db, name), service, sentinel)


def _endpoint(text: str, port: int, tls: ssl.SSLContext | None) -> Endpoint:
    try:
        parts = urlsplit(f"//{text}")
        return Endpoint(parts.hostname or "localhost", parts.port or port, tls=tls)
    except ValueError:
        raise AddressError("the bus URL has a host or port that cannot be read") from None


def _db(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5):
        raise AddressError("the bus URL's database must be a number")
    return int(text)


def _tls(query: dict[str, str]) -> ssl.SSLContext:
    given = {key: query.pop(key) for key in _TLS_PARAMETERS & query.keys()}
    try:
        context = ssl.create_default_context(cafile=given.get("ssl_ca_certs"))
        if certificate := given.get("ssl_certfile"):
            context.load_cert_chain(certificate, given.get("ssl_keyfile"))
    except (OSError, ssl.SSLError):
        raise AddressError("a certificate or key file of the bus URL cannot be read") from None
    check = given.get("ssl_check_hostname", "true")
    required = given.get("ssl_cert_reqs", "required")
    if check not in {"true", "false"} or required not in {"required", "none"}:
        raise AddressError("ssl_check_hostname is true or false, ssl_cert_reqs is required or none")
    if check == "false" or required == "none":
        context.check_hostname = False
    if required == "none":
        context.verify_mode = ssl.CERT_NONE
    return context
