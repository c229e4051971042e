"""What any request may and may not be: bodies, JSON, keys, queries, rates, failures of ours."""

import asyncio
import gzip
import json
import uuid
from typing import Any

import httpx
import pytest

from gateway.bus.errors import BusUnavailable, Kind
from gateway.config.settings import Limits
from tests.doubles.http_node import KEY, SUPPORT, Node, http_node, settings_for
from tests.http.conftest import Talk, new_session

JSON = {"Content-Type": "application/json"}


def envelope_of(answer: httpx.Response) -> tuple[str, str]:
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    return body["error"]["code"], body["error"]["message"]


async def test_unknown_routes_answer_in_the_envelope(node: Node, key: httpx.AsyncClient) -> None:
    for method, path in (
        ("GET", "/v1/vaults"),
        ("POST", "/v1/skills"),
        ("GET", "/v1/sessions/x/y/z"),
        ("GET", "/nothing"),
        ("GET", "/v1/sessions/"),
        ("DELETE", f"/v1/agents/{SUPPORT.id}"),
    ):
        answer = await key.request(method, path)
        assert answer.status_code == 404, path
        assert envelope_of(answer)[0] == "not_found"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xef\xbb\xbf{}",
        b'{"agent_id": "\xff"}',
        b'{"agent_id": NaN}',
        b'{"agent_id": 1e400}',
        b'{"agent_id": "a", "agent_id": "b"}',
        b'{"agent_id": "a"} {}',
        b"null",
        b'"text"',
        b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
        b"[" * 100_000,
        b'{"a":' * 20_000,
    ],
)
async def test_bodies_that_are_not_strict_json(node: Node, key: httpx.AsyncClient, body: bytes) -> None:
    answer = await key.post("/v1/sessions", content=body, headers=JSON)
    assert answer.status_code == 400
    assert envelope_of(answer)[0] == "invalid_request"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "agent_id: is required"),
        ({"agent_id": 7}, "agent_id"),
        ({"agent_id": "secret-canary"}, "agent_id"),
        ({"agent_id": SUPPORT.id, "display_name": "x" * 201}, "display_name"),
        ({"agent_id": SUPPORT.id, "display_name": 5}, "display_name"),
        ({"agent_id": SUPPORT.id, "vault_ids": [str(uuid.uuid4())] * 11}, "vault_ids"),
        ({"agent_id": SUPPORT.id, "vault_ids": ["secret-canary"]}, "vault_ids"),
    ],
)
async def test_a_wrong_field_is_named_and_nothing_is_quoted(
    key: httpx.AsyncClient, body: dict[str, Any], where: str
) -> None:
    answer = await key.post("/v1/sessions", json=body)
    assert answer.status_code == 400
    assert where in envelope_of(answer)[1]
    assert "canary" not in answer.text


async def test_nullable_fields_may_be_null(key: httpx.AsyncClient) -> None:
    body = {"agent_id": SUPPORT.id.upper(), "display_name": None, "vault_ids": None, "__proto__": {"x": 1}}
    answer = await key.post("/v1/sessions", json=body)
    assert answer.status_code == 201
    assert answer.json()["display_name"] == ""


async def test_the_body_is_bounded_while_it_is_read(redis_url: str) -> None:
    async with http_node(redis_url, settings_for(Limits(body_bytes=1024 * 1024))) as node, node.client() as key:
        sent = 0

        async def chunks():
            nonlocal sent
            for _ in range(64):
                sent += 1
                yield b" " * 65_536

        answer = await key.post("/v1/sessions", content=chunks(), headers=JSON)
        assert answer.status_code == 413
        answer = await key.post("/v1/sessions", content=b" " * (1024 * 1024 + 1), headers=JSON)
        assert answer.status_code == 413
        assert envelope_of(answer)[1].endswith("1048576 bytes")
        made = await key.post("/v1/sessions", json={"agent_id": SUPPORT.id, "pad": "x" * 1_000_000})
        assert made.status_code == 201


async def test_what_a_body_may_be_wrapped_in(key: httpx.AsyncClient) -> None:
    good = json.dumps({"agent_id": SUPPORT.id}).encode()
    for headers, status in (
        ({**JSON, "Content-Encoding": "gzip"}, 415),
        ({**JSON, "Content-Encoding": "br"}, 415),
        ({**JSON, "Content-Encoding": "identity"}, 201),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "Application/JSON; charset=utf-8"}, 201),
        ({"Content-Type": "application/vnd.x+json"}, 201),
    ):
        content = gzip.compress(good) if headers.get("Content-Encoding") == "gzip" else good
        answer = await key.post("/v1/sessions", content=content, headers=headers)
        assert answer.status_code == status, headers


async def test_a_body_that_never_ends_is_given_up(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    from gateway.web import bodies

    monkeypatch.setattr(bodies.read_body, "__kwdefaults__", {"timeout_s": 0.1})
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(
        f"POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{".encode()
    )
    async with asyncio.timeout(5):
        assert (await reader.readline()).split()[1] == b"408"
    writer.close()


async def test_lone_surrogates_become_one_character(node: Node, talk: Talk) -> None:
    body = b'{"type":"input","text":"a\\ud800b\\ud83d\\ude00"}'
    answer = await talk.page.post(f"{talk.path}/events", content=body, headers=JSON)
    assert answer.status_code == 200
    assert set(answer.json()) == {"outcome", "run_id"}


@pytest.mark.parametrize("text", ["", "   \n", "x" * 16_385, "é" * 8_193, 7, None])
async def test_inputs_that_are_refused_are_not_written(node: Node, talk: Talk, text: object) -> None:
    answer = await talk.page.post(f"{talk.path}/events", json={"type": "input", "text": text})
    assert answer.status_code == 400
    assert "text" in envelope_of(answer)[1]
    assert len((await talk.page.get(f"{talk.path}/events")).json()["items"]) == 1


async def test_inputs_wait_at_most_32(node: Node, talk: Talk) -> None:
    path, body = f"{talk.path}/events", {"type": "input", "text": "x"}
    for _ in range(32):
        assert (await talk.page.post(path, json=body)).status_code == 200
    answer = await talk.page.post(path, json=body)
    assert answer.status_code == 429
    assert envelope_of(answer)[0] == "too_many_requests"
    assert int(answer.headers["retry-after"]) > 0
    assert (await talk.page.post(path, json={"type": "output", "text": "x"})).status_code == 400


async def test_an_input_is_replayed_byte_for_byte_and_once(node: Node, talk: Talk) -> None:
    path, body = f"{talk.path}/events", {"type": "input", "text": "x"}
    answers = [await talk.page.post(path, json=body, headers={"Idempotency-Key": "i"}) for _ in range(3)]
    assert len({a.content for a in answers}) == 1
    spaced = await talk.page.post(
        path, content=b'{ "text":"x" , "type" : "input"}', headers={**JSON, "Idempotency-Key": "i"}
    )
    assert spaced.content == answers[0].content
    other = await talk.page.post(path, json={**body, "text": "y"}, headers={"Idempotency-Key": "i"})
    assert (other.status_code, envelope_of(other)[0]) == (409, "conflict")
    log = (await talk.page.get(path)).json()["items"]
    assert [event["type"] for event in log].count("run_queued") == 1
    elsewhere = await new_session(talk.key)
    fresh = await talk.key.post(
        f"/v1/sessions/{elsewhere['id']}/events", json={**body, "text": "y"}, headers={"Idempotency-Key": "i"}
    )
    assert fresh.status_code == 200


@pytest.mark.parametrize("bad", ["", "x" * 256, "a\x7f"])
async def test_idempotency_keys_have_a_form(talk: Talk, bad: str) -> None:
    answer = await talk.page.post(f"{talk.path}/cancel", headers={"Idempotency-Key": bad})
    assert answer.status_code == 400


async def test_cancel_ends_what_there_is(node: Node, talk: Talk) -> None:
    nothing = await talk.page.post(f"{talk.path}/cancel")
    assert (nothing.status_code, nothing.content) == (200, b'{"run_id":null}')
    body = {"type": "input", "text": "x"}
    first, second = [(await talk.page.post(f"{talk.path}/events", json=body)).json()["run_id"] for _ in range(2)]
    assert await node.begin_run(talk.id) == first
    assert (await talk.page.get(talk.path)).json()["status"] == "active"
    keyed = {"Idempotency-Key": "c"}
    waiting = [asyncio.ensure_future(talk.page.post(f"{talk.path}/cancel", headers=keyed)) for _ in range(2)]
    await node.kept(talk.id, 1)
    assert not any(task.done() for task in waiting)
    await node.end_run(talk.id, first)
    answers = [await task for task in waiting]
    assert {a.content for a in answers} == {json.dumps({"run_id": first}, separators=(",", ":")).encode()}
    queued = await talk.page.post(f"{talk.path}/cancel")
    assert queued.json() == {"run_id": second}
    assert (await talk.page.get(talk.path)).json()["status"] == "idle"


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/events", "limit=0"),
        ("/events", "limit=201"),
        ("/events", "limit=x"),
        ("/events", "limit=5&limit=6"),
        ("/events", "limit=5&limit=5"),
        ("/events", "after_seq=-1"),
        ("/events", "after_seq=1.5"),
        ("/events", "before_seq=x"),
        ("/events", "order=up"),
        ("/calls", "limit=0"),
    ],
)
async def test_queries_that_are_refused(talk: Talk, path: str, query: str) -> None:
    answer = await talk.page.get(f"{talk.path}{path}?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in envelope_of(answer)[1]


async def test_pages_of_the_log(node: Node, talk: Talk) -> None:
    await node.append(talk.id, 24)
    for order, cursor, wanted in (
        ("asc", "after_seq", list(range(1, 26))),
        ("desc", "before_seq", list(range(25, 0, -1))),
    ):
        seen: list[int] = []
        params: dict[str, Any] = {"limit": 10, "order": order}
        while True:
            body = (await talk.page.get(f"{talk.path}/events", params=params)).json()
            seen += [event["seq"] for event in body["items"]]
            if body["next_cursor"] is None:
                break
            params[cursor] = body["next_cursor"]
        assert seen == wanted
    both = (await talk.page.get(f"{talk.path}/events", params={"after_seq": 3, "before_seq": 7})).json()
    assert [event["seq"] for event in both["items"]] == [6, 5, 4]
    assert both["next_cursor"] is None
    beyond = await talk.page.get(f"{talk.path}/events", params={"after_seq": 99, "order": "asc"})
    assert (beyond.status_code, beyond.json()) == (200, {"items": [], "next_cursor": None})
    assert "toolrelay-oldest-seq" not in beyond.headers


async def test_rates_are_per_credential(redis_url: str) -> None:
    limits = Limits(requests_per_second=1, request_burst=4)
    async with http_node(redis_url, settings_for(limits)) as node, node.client() as key:
        made = await new_session(key)
        async with node.client(made["session_token"]) as page:
            answers = [await page.get(f"/v1/sessions/{made['id']}") for _ in range(6)]
            assert [a.status_code for a in answers] == [200] * 4 + [429] * 2
            assert answers[-1].headers["retry-after"] == "1"
            assert envelope_of(answers[-1])[0] == "too_many_requests"
        assert (await key.get("/v1/agents")).status_code == 200


async def test_bad_credentials_wait_and_good_ones_do_not(redis_url: str) -> None:
    limits = Limits(auth_failures_per_minute=3)
    async with http_node(redis_url, settings_for(limits)) as node, node.client("wrong") as wrong, node.client() as key:
        answers = [(await wrong.get("/v1/agents")).status_code for _ in range(5)]
        assert answers == [401, 401, 401, 429, 429]
        assert (await key.get("/v1/agents")).status_code == 200


async def test_our_own_failures_say_nothing(node: Node, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise BusUnavailable(Kind.DOWN, detail="secret-canary")

    monkeypatch.setattr(node.services.offers, "ping", away)
    path = f"{talk.path}/clients/{uuid.uuid4()}/ping"
    answer = await talk.page.post(path)
    assert (answer.status_code, envelope_of(answer)[0], answer.headers["retry-after"]) == (503, "internal", "1")

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret-canary")

    monkeypatch.setattr(node.services.offers, "ping", broken)
    answer = await talk.page.post(path)
    assert (answer.status_code, envelope_of(answer)[0]) == (500, "internal")
    assert "canary" not in answer.text


async def test_health(node: Node) -> None:
    async with node.client(None) as bare:
        assert (await bare.get("/healthz")).json() == {"status": "ok"}
        assert (await bare.get("/readyz")).status_code == 200
        assert (await bare.head("/readyz")).status_code == 200
        node.gateway.draining = True
        ready = await bare.get("/readyz")
        assert (ready.status_code, ready.json()["reasons"]) == (503, ["draining"])
        assert (await bare.get("/healthz")).status_code == 200
        metrics = await bare.get("/metrics")
        assert metrics.status_code == 200
        assert "toolrelay_requests_total" in metrics.text
        assert (await bare.post("/metrics")).status_code == 405


async def test_headers_cannot_be_injected(node: Node, talk: Talk) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(
        f"GET {talk.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://app.example\rX-Evil: 1\r\n"
        f"Authorization: Bearer {talk.token}\r\nConnection: close\r\n\r\n".encode()
    )
    async with asyncio.timeout(5):
        raw = await reader.read()
    assert b"\r\nX-Evil" not in raw
    assert b"x-evil: 1\r\n" not in raw.lower()
    writer.close()
