"""Origins and CORS: who is let in, what is answered to a browser, and what a preflight must not tell."""

import uuid

import httpx
import pytest

from adapters.http.cors import ALLOWED_HEADERS
from gateway.config.settings import Server
from tests.doubles.http_node import KEY, OTHER, OTHER_ORIGIN, SUPPORT, SUPPORT_ORIGIN, Node, http_node, settings_for
from tests.http.conftest import Talk, new_session

PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


async def preflight(client: httpx.AsyncClient, path: str, origin: str, method: str = "POST") -> httpx.Response:
    headers = {"Origin": origin, "Access-Control-Request-Method": method}
    return await client.request("OPTIONS", path, headers=headers)


def without_date(answer: httpx.Response) -> tuple[int, bytes, list[tuple[str, str]]]:
    return answer.status_code, answer.content, [(k, v) for k, v in answer.headers.items() if k != "date"]


async def test_a_preflight_needs_no_credential_and_says_what_passes(node: Node, talk: Talk) -> None:
    async with node.client(None) as bare:
        answer = await preflight(bare, f"{talk.path}/clients", SUPPORT_ORIGIN)
        assert answer.status_code == 204
        assert answer.headers["access-control-allow-origin"] == SUPPORT_ORIGIN
        assert answer.headers["access-control-allow-methods"] == "GET, POST"
        assert answer.headers["access-control-allow-headers"] == ALLOWED_HEADERS
        for name in ("Authorization", "Idempotency-Key", "Last-Event-ID", "Subako-User-Agent", "Kikuvi-Workspace"):
            assert name in ALLOWED_HEADERS
        assert "access-control-allow-credentials" not in answer.headers
        assert "Origin" in answer.headers["vary"]


async def test_a_preflight_does_not_tell_which_sessions_there_are(node: Node, talk: Talk) -> None:
    async with node.client(None) as bare:
        for origin in (SUPPORT_ORIGIN, "https://evil.example", "null"):
            for path in ("", "/clients", "/events/stream", "/nonsense", "/tokens"):
                known = await preflight(bare, talk.path + path, origin)
                unknown = await preflight(bare, f"/v1/sessions/{uuid.uuid4()}{path}", origin)
                assert without_date(known) == without_date(unknown), (origin, path)


A_TOKEN = "/tokens/5ad0a1d4-4a0a-4c49-8e4e-0d6ad1f6a6a1"


@pytest.mark.parametrize(
    ("path", "method"), [("", "DELETE"), ("/tokens", "POST"), (A_TOKEN, "DELETE"), ("/approvals/a", "POST")]
)
async def test_no_cors_where_a_key_is_needed(node: Node, talk: Talk, path: str, method: str) -> None:
    asked = await preflight(talk.page, talk.path + path, SUPPORT_ORIGIN, method)
    assert asked.status_code == 403
    assert "access-control-allow-origin" not in asked.headers
    answer = await talk.page.request(method, talk.path + path, headers={"Origin": SUPPORT_ORIGIN})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


async def test_approvals_are_open_to_pages_where_the_agent_says_so(node: Node, key: httpx.AsyncClient) -> None:
    made = await new_session(key, OTHER.id)
    path = f"/v1/sessions/{made['id']}/approvals/a1"
    assert (await preflight(key, path, OTHER_ORIGIN)).status_code == 204
    async with node.client(made["session_token"], Origin=OTHER_ORIGIN) as page:
        answer = await page.post(path, json={"decision": "allow"})
        assert answer.status_code == 404
        assert answer.headers["access-control-allow-origin"] == OTHER_ORIGIN


async def test_no_cors_above_a_session(node: Node, key: httpx.AsyncClient) -> None:
    for path in ("/v1/sessions", "/v1/agents"):
        assert (await preflight(key, path, SUPPORT_ORIGIN)).status_code == 403
        answer = await key.get(path, headers={"Origin": SUPPORT_ORIGIN})
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers


async def test_cors_stands_on_every_status(node: Node, talk: Talk) -> None:
    origin = {"Origin": SUPPORT_ORIGIN}
    big = b"x" * (4 * 1024 * 1024 + 1)
    json_type = {"Content-Type": "application/json"}
    asked: list[tuple[int, httpx.Response]] = [
        (200, await talk.page.get(talk.path, headers=origin)),
        (400, await talk.page.post(f"{talk.path}/clients", json={}, headers=origin)),
        (401, await talk.page.get(talk.path, headers={**origin, "Authorization": "Bearer nonsense"})),
        (404, await talk.page.get(f"{talk.path}/nonsense", headers=origin)),
        (404, await talk.page.get(f"/v1/sessions/{uuid.uuid4()}", headers=origin)),
        (404, await talk.page.post(f"{talk.path}/clients/{uuid.uuid4()}/ping", headers=origin)),
        (405, await talk.page.put(f"{talk.path}/clients", headers=origin)),
        (413, await talk.page.post(f"{talk.path}/clients", content=big, headers={**origin, **json_type})),
        (415, await talk.page.post(f"{talk.path}/clients", content=b"{}", headers=origin)),
    ]
    node.gateway.draining = True
    asked.append(
        (503, await talk.page.post(f"{talk.path}/events", json={"type": "input", "text": "x"}, headers=origin))
    )
    for status, answer in asked:
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == SUPPORT_ORIGIN, status
        assert "Retry-After" in answer.headers["access-control-expose-headers"]
        assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "https://evil.example",
        "http://app.example",
        "https://app.example:8443",
        "https://app.example.evil",
        "https://evilapp.example",
        "https://APP.example",
        "https://app.example/",
        "https://app.example\t",
        OTHER_ORIGIN,
        "chrome-extension://abc",
    ],
)
async def test_other_origins_are_refused_whatever_they_hold(node: Node, talk: Talk, origin: str) -> None:
    if origin.endswith("\t"):  # a header's trailing space is none of its value
        origin = "https://app.example\u00a0".encode("latin-1").decode("latin-1")
    for client in (talk.page, talk.key):
        for method, path in (("GET", ""), ("GET", "/events/stream"), ("POST", "/clients"), ("GET", "/nonsense")):
            headers = [("Origin", origin.encode("latin-1"))]
            answer = await client.request(method, talk.path + path, headers=headers)  # type: ignore[arg-type]
            assert answer.status_code == 403, (method, path)
            assert answer.json()["error"]["code"] == "forbidden"
            assert "access-control-allow-origin" not in answer.headers


async def test_making_a_session_from_a_page_needs_its_agents_origin(node: Node, key: httpx.AsyncClient) -> None:
    for origin, status in ((SUPPORT_ORIGIN, 201), (OTHER_ORIGIN, 403), ("https://evil.example", 403)):
        answer = await key.post("/v1/sessions", json={"agent_id": SUPPORT.id}, headers={"Origin": origin})
        assert answer.status_code == status


async def test_two_origins_are_no_origin(node: Node, talk: Talk) -> None:
    answer = await talk.page.get(talk.path, headers=[("Origin", SUPPORT_ORIGIN), ("Origin", "https://evil.example")])
    assert answer.status_code == 400
    assert "access-control-allow-origin" not in answer.headers


async def test_our_own_pages_reach_the_demo_agents_sessions_only(redis_url: str) -> None:
    async with http_node(redis_url, demo_agent="support") as node, node.client() as key:
        demo, other = await new_session(key, SUPPORT.id), await new_session(key, OTHER.id)
        own = {"Origin": node.url}
        assert (await key.get(f"/v1/sessions/{demo['id']}", headers=own)).status_code == 200
        assert (await key.get(f"/v1/sessions/{other['id']}", headers=own)).status_code == 403
        assert (await key.get(f"/v1/sessions/{demo['id']}", headers={"Origin": "http://localhost"})).status_code == 403
    async with http_node(redis_url) as node, node.client() as key:
        assert (await key.get(f"/v1/sessions/{demo['id']}", headers={"Origin": node.url})).status_code == 403


async def test_our_own_origin_is_the_public_url(redis_url: str) -> None:
    from msgspec.structs import replace

    settings = replace(
        settings_for(), server=Server(roles=("edge",), public_url="https://tools.example", allowed_hosts=("127.0.0.1",))
    )
    async with http_node(redis_url, settings, demo_agent="support") as node, node.client() as key:
        demo = await new_session(key)
        for origin, status in (("https://tools.example", 200), (node.url, 403)):
            answer = await key.get(f"/v1/sessions/{demo['id']}", headers={"Origin": origin})
            assert answer.status_code == status


async def test_options_without_an_origin_tells_the_methods(node: Node, talk: Talk) -> None:
    answer = await talk.page.request("OPTIONS", f"{talk.path}/clients")
    assert (answer.status_code, answer.headers["allow"]) == (204, "GET, OPTIONS, POST")
    wrong = await talk.page.delete(f"{talk.path}/clients")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, OPTIONS, POST")
    assert wrong.json()["error"]["code"] == "invalid_request"


async def test_a_cross_origin_stream_is_readable(node: Node, talk: Talk) -> None:
    from tests.doubles.sse_reader import open_stream

    async with open_stream(node.port, f"{talk.path}/events/stream", talk.token, Origin=SUPPORT_ORIGIN) as stream:
        assert stream.headers["access-control-allow-origin"] == SUPPORT_ORIGIN
    async with open_stream(node.port, f"{talk.path}/events/stream", KEY, Origin="https://evil.example") as stream:
        assert stream.status == 403
