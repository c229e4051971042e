"""Only served host names get through, whatever the header looks like."""

import json
from typing import Any

import pytest

from gateway.config.settings import Server
from gateway.web.hosts import HostCheck, host_name, served_hosts

Message = dict[str, Any]


async def through(hosts: list[bytes], *, server: Server | None = None, **scope: Any) -> tuple[bool, list[Message]]:
    """Whether the application was reached, and what was sent."""
    reached = False
    sent: list[Message] = []

    async def app(*_: object) -> None:
        nonlocal reached
        reached = True

    async def receive() -> Message:
        raise AssertionError("a refusal reads nothing")

    async def send(message: Any) -> None:
        sent.append(message)

    check = HostCheck(app, served=served_hosts(server or Server()))
    headers = [(b"host", host) for host in hosts]
    await check({"type": "http", "path": "/v1/sessions", "headers": headers, **scope}, receive, send)
    return reached, sent


@pytest.mark.parametrize("host", [b"localhost", b"LOCALHOST:8080", b"127.0.0.1:1", b"[::1]:8080", b"[0:0::1]"])
async def test_loopback_names_are_served_by_default(host: bytes) -> None:
    assert await through([host]) == (True, [])


@pytest.mark.parametrize(
    "hosts",
    [
        [], [b""], [b"evil.example"], [b"localhost.evil.example"], [b"evil-localhost"], [b"localhost."],
        [b"localhost@evil.example"], [b"evil.example#localhost"], [b"localhost:80:80"], [b"localhost:x"],
        [b"localhost", b"evil.example"], [b"localhost", b"localhost"], [b" localhost"], [b"localhost,evil.example"],
        [b"127.0.0.1.evil.example"], [b"2130706433"], [b"0.0.0.0"], [b"[::1"], [b"[::1]evil"], [b"l\xc3\xb6calhost"],
    ],
)  # fmt: skip
async def test_everything_else_is_refused(hosts: list[bytes]) -> None:
    reached, (start, body) = await through(hosts)
    assert not reached
    assert start["status"] == 421
    assert json.loads(body["body"]) == {"error": {"code": "forbidden", "message": "this host name is not served here"}}
    headers = dict(start["headers"])
    assert headers[b"content-type"] == b"application/json"
    assert int(headers[b"content-length"]) == len(body["body"])


async def test_a_forwarded_host_is_not_trusted() -> None:
    headers = [(b"host", b"evil.example"), (b"x-forwarded-host", b"localhost")]
    reached, _ = await through([], headers=headers)
    assert not reached


async def test_a_socket_is_refused_before_it_is_accepted() -> None:
    reached, sent = await through([b"evil.example"], type="websocket")
    assert not reached
    assert [message["type"] for message in sent] == ["websocket.close"]
    extension: dict[str, Any] = {"websocket.http.response": {}}
    reached, sent = await through([b"evil.example"], type="websocket", extensions=extension)
    assert not reached
    assert [message["type"] for message in sent] == ["websocket.http.response.start", "websocket.http.response.body"]
    assert sent[0]["status"] == 421
    assert await through([b"localhost"], type="websocket") == (True, [])


async def test_probes_are_served_under_any_name() -> None:
    assert await through([b"10.1.2.3:8080"], path="/healthz") == (True, [])
    assert await through([b"10.1.2.3:8080"], path="/readyz") == (True, [])
    reached, _ = await through([b"10.1.2.3:8080"], path="/healthz/../v1/sessions")
    assert not reached
    reached, _ = await through([b"10.1.2.3:8080"], path="/healthz", type="websocket")
    assert not reached


async def test_lifespan_passes() -> None:
    assert await through([], type="lifespan") == (True, [])


async def test_public_url_and_allowed_hosts() -> None:
    public = Server(public_url="https://Tools.Example:8443")
    assert served_hosts(public) == {"tools.example"}
    assert (await through([b"tools.example"], server=public))[0]
    assert not (await through([b"localhost"], server=public))[0]
    both = Server(public_url="https://tools.example", allowed_hosts=("a.example", "[0::1]"))
    assert served_hosts(both) == {"a.example", "[::1]"}


@pytest.mark.parametrize("value", ["a:99999999", "[fe80::1%eth0]", "a\\b", "a b", "a/b", "%6c"])
def test_no_name(value: str) -> None:
    assert host_name(value) is None
