"""Bus URLs, and the versions that are warned about."""

import pytest

from gateway.bus.address import AddressError, parse_url
from gateway.bus.connect import Endpoint
from gateway.bus.versions import warnings
from gateway.bus.wire import Server


def test_urls_are_read() -> None:
    one = parse_url("redis://user:p%40ss@host:7000/2")
    assert one.kind == "single"
    assert one.endpoints == (Endpoint("host", 7000),)
    assert (one.login.username, one.login.password, one.login.db) == ("user", "p@ss", 2)
    assert parse_url("redis://[::1]").endpoints == (Endpoint("::1", 6379),)
    assert parse_url("redis://:secret@h").login.password == "secret"
    assert parse_url("unix:///run/my%20dir/s?db=4").endpoints == (Endpoint(path="/run/my dir/s"),)
    assert parse_url("unix://:pw@/run/s?db=4").login.db == 4
    secure = parse_url("rediss://h?ssl_cert_reqs=none")
    assert secure.endpoints[0].tls is not None
    sentinel = parse_url("redis+sentinel://u:p@a,b:1,c/service/3?sentinel_password=sp")
    assert [(e.host, e.port) for e in sentinel.endpoints] == [("a", 26379), ("b", 1), ("c", 26379)]
    assert (sentinel.service, sentinel.login.db, sentinel.sentinel_login.password) == ("service", 3, "sp")
    cluster = parse_url("rediss+cluster://a:1,b:2")
    assert cluster.kind == "cluster"
    assert all(e.tls for e in cluster.endpoints)


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "redis://a,b",
        "redis://h/x",
        "redis://h/-1",
        "redis://h:99999",
        "redis://h?nope=1",
        "redis://h?ssl_cert_reqs=none",
        "rediss://h?ssl_cert_reqs=maybe",
        "rediss://h?ssl_ca_certs=/does/not/exist",
        "redis+sentinel://a,b",
        "redis+cluster://a/1",
        "redis://h?sentinel_password=x",
        "unix://relative/path",
        "",
    ],
)
def test_wrong_urls_are_refused_without_quoting_them(url: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_url(url.replace("://", "://canary-user:canary-pass@") if "://" in url else url)
    assert "canary" not in str(caught.value)


def test_a_password_is_in_no_repr() -> None:
    for url in ("redis://u:canary@h", "redis+sentinel://u:canary@h/s?sentinel_password=canary"):
        address = parse_url(url)
        assert "canary" not in repr(address) + str(address)


@pytest.mark.parametrize(
    ("name", "version", "count"),
    [
        ("redis", (6, 2, 19), 1),
        ("redis", (6, 2, 20), 0),
        ("redis", (7, 0, 15), 1),
        ("redis", (7, 2, 10), 2),
        ("redis", (7, 4, 6), 1),
        ("redis", (8, 6, 2), 1),
        ("redis", (8, 6, 3), 0),
        ("valkey", (8, 0, 5), 1),
        ("valkey", (8, 1, 4), 0),
        ("valkey", (9, 1, 2), 0),
        ("keydb", (6, 3, 4), 0),
        ("", (), 0),
    ],
)
def test_versions_that_should_be_updated(name: str, version: tuple[int, ...], count: int) -> None:
    assert len(warnings(Server(name, version))) == count
