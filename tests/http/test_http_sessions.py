"""Sessions, tokens and agents over HTTP."""

import uuid

import httpx

from tests.doubles.http_node import NARROW_KEY, OTHER, SUPPORT, Node
from tests.http.conftest import Talk, new_session


async def test_a_session_is_made_read_listed_and_deleted(node: Node, key: httpx.AsyncClient) -> None:
    made = await key.post("/v1/sessions", json={"agent_id": SUPPORT.id, "display_name": "A visit", "new": 1})
    assert made.status_code == 201
    body = made.json()
    assert set(body) == {
        "id", "agent_id", "agent_version_id", "workspace_id", "display_name", "status", "created_at",
        "session_token", "session_token_expires_at",
    }  # fmt: skip
    assert (body["display_name"], body["status"], body["agent_id"]) == ("A visit", "idle", SUPPORT.id)
    got = await key.get(f"/v1/sessions/{body['id']}")
    assert got.status_code == 200
    assert got.json()["created_by"]["type"] == "api_key"
    assert got.json()["created_by"]["label"] == "backend"
    uuid.UUID(got.json()["created_by"]["api_key_id"])
    listed = (await key.get("/v1/sessions", params={"limit": 1})).json()
    assert [item["id"] for item in listed["items"]] == [body["id"]]
    assert (await key.delete(f"/v1/sessions/{body['id']}")).status_code == 204
    assert (await key.get(f"/v1/sessions/{body['id']}")).status_code == 404
    assert (await key.delete(f"/v1/sessions/{body['id']}")).status_code == 404


async def test_a_replayed_key_makes_one_session(key: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    first = await key.post("/v1/sessions", json={"agent_id": SUPPORT.id}, headers=headers)
    again = await key.post("/v1/sessions", json={"agent_id": SUPPORT.id}, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert "session_token" not in again.json()
    uuid.UUID(again.json()["session_token_id"])
    other = await key.post("/v1/sessions", json={"agent_id": SUPPORT.id, "display_name": "x"}, headers=headers)
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "conflict"


async def test_tokens_are_minted_replayed_and_revoked(node: Node, talk: Talk) -> None:
    headers = {"Idempotency-Key": "mint-1"}
    made = await talk.key.post(f"{talk.path}/tokens", headers=headers)
    assert made.status_code == 201
    assert set(made.json()) == {"session_token", "expires_at"}
    again = await talk.key.post(f"{talk.path}/tokens", headers=headers)
    assert again.status_code == 200
    assert set(again.json()) == {"id", "session_id", "expires_at"}
    assert again.json()["expires_at"] == made.json()["expires_at"]
    async with node.client(made.json()["session_token"]) as page:
        assert (await page.get(talk.path)).status_code == 200
        revoked = await talk.key.delete(f"{talk.path}/tokens/{again.json()['id']}")
        assert revoked.status_code == 204
        assert (await page.get(talk.path)).status_code == 401
    assert (await talk.key.delete(f"{talk.path}/tokens/{again.json()['id']}")).status_code == 404


async def test_what_a_session_token_may_not(node: Node, talk: Talk) -> None:
    stranger = await new_session(talk.key)
    missing = str(uuid.uuid4())
    for method, path in (("POST", "/tokens"), ("DELETE", ""), ("DELETE", f"/tokens/{missing}")):
        answer = await talk.page.request(method, talk.path + path)
        assert answer.status_code == 403, (method, path)
    answer = await talk.page.post(f"{talk.path}/approvals/a1", json={"decision": "allow"})
    assert answer.status_code == 403
    for path in ("/v1/sessions", "/v1/agents"):
        assert (await talk.page.get(path)).status_code == 403
    foreign = [await talk.page.get(f"/v1/sessions/{sid}") for sid in (stranger["id"], missing)]
    assert [a.status_code for a in foreign] == [404, 404]
    assert foreign[0].content == foreign[1].content


async def test_credentials_that_are_none(node: Node, talk: Talk) -> None:
    texts: set[bytes] = set()
    mistyped = talk.token[:-1] + ("y" if talk.token.endswith("x") else "x")
    for credential in (None, "nonsense", mistyped, "trs_" + "0" * 32 + talk.token[36:]):
        async with node.client(credential) as client:
            for path in (talk.path, f"/v1/sessions/{uuid.uuid4()}", "/v1/sessions"):
                answer = await client.get(path)
                assert answer.status_code == 401
                texts.add(answer.content)
    assert len(texts) == 1
    async with httpx.AsyncClient(base_url=node.url) as bare:
        basic = await bare.get(talk.path, headers={"Authorization": f"Basic {talk.token}"})
        assert basic.status_code == 401
        twice = await bare.get(
            talk.path, headers=[("Authorization", "Bearer a"), ("Authorization", f"Bearer {talk.token}")]
        )
        assert twice.status_code == 400


async def test_a_narrow_key_reaches_its_agents_only(node: Node, key: httpx.AsyncClient) -> None:
    other, mine = await new_session(key, OTHER.id), await new_session(key, SUPPORT.id)
    async with node.client(NARROW_KEY) as narrow:
        assert (await narrow.get(f"/v1/sessions/{mine['id']}")).status_code == 200
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/tokens"), ("GET", "/events"), ("GET", "/clients")):
            hidden = await narrow.request(method, f"/v1/sessions/{other['id']}{path}")
            unknown = await narrow.request(method, f"/v1/sessions/{uuid.uuid4()}{path}")
            assert (
                (hidden.status_code, hidden.content) == (unknown.status_code, unknown.content) == (404, hidden.content)
            )
        refused = await narrow.post("/v1/sessions", json={"agent_id": OTHER.id})
        nothing = await narrow.post("/v1/sessions", json={"agent_id": str(uuid.uuid4())})
        assert (refused.status_code, refused.content) == (404, nothing.content)
        listed = (await narrow.get("/v1/sessions", params={"limit": 200})).json()["items"]
        assert {item["agent_id"] for item in listed} == {SUPPORT.id}
        assert [item["name"] for item in (await narrow.get("/v1/agents")).json()["items"]] == ["support"]


async def test_agents_are_those_of_the_configuration(key: httpx.AsyncClient) -> None:
    body = (await key.get("/v1/agents")).json()
    assert body["next_cursor"] is None
    assert [(item["id"], item["name"]) for item in body["items"]] == [(SUPPORT.id, "support"), (OTHER.id, "other")]
    assert all(set(item) == {"id", "name", "workspace_id", "created_at"} for item in body["items"])
    first = (await key.get("/v1/agents", params={"limit": 1})).json()
    assert first["next_cursor"] == SUPPORT.id
    second = (await key.get("/v1/agents", params={"after": first["next_cursor"]})).json()
    assert [item["name"] for item in second["items"]] == ["other"]


async def test_pages_of_sessions_meet_without_gap_or_repeat(node: Node, key: httpx.AsyncClient) -> None:
    made = [(await new_session(key))["id"] for _ in range(7)]
    for order, wanted in (("desc", made[::-1]), ("asc", made)):
        seen: list[str] = []
        params: dict[str, object] = {"limit": 3, "order": order}
        while True:
            body = (await key.get("/v1/sessions", params=params)).json()  # type: ignore[arg-type]
            seen += [item["id"] for item in body["items"]]
            if body["next_cursor"] is None:
                break
            params["after"] = body["next_cursor"]
        assert len(seen) == len(set(seen))
        assert [sid for sid in seen if sid in made] == wanted


async def test_there_are_at_most_so_many_sessions(redis_url: str) -> None:
    from gateway.config.settings import Limits
    from tests.doubles.http_node import http_node, settings_for

    async with http_node(redis_url, settings_for(Limits(max_sessions=1))) as full, full.client() as client:
        answer = await client.post("/v1/sessions", json={"agent_id": SUPPORT.id})
        if answer.status_code == 201:
            answer = await client.post("/v1/sessions", json={"agent_id": SUPPORT.id})
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "60"
