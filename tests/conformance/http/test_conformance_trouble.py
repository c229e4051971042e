"""HTTP protocol, "Errors", "Tokens", "The stream": who may do what, and what is said in trouble."""

import asyncio
import uuid

import pytest

from gateway.auth.tokens import digest, mint_session_token
from gateway.bus.sessions import NO_KEY
from gateway.config.settings import Limits
from gateway.model import events
from tests.conformance.http.conftest import Front, Session
from tests.doubles.http_node import KEY, NARROW_KEY, OTHER, SUPPORT_ORIGIN, http_node, settings_for
from tests.doubles.round_robin import round_robin

TOOL = {"name": "highlight_row", "description": "d", "parameters": {"type": "object"}}
TTL = {"type": "ttl", "data": {"seconds": 60}}


# --- Errors


async def test_every_kept_answer_is_given_again_byte_for_byte(front: Front, session: Session) -> None:
    body = {"name": "web", "lifetime": TTL, "tools": [TOOL]}
    first, again = [await session.ask("POST", "/clients", body, key="reg") for _ in range(2)]
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.content == again.content
    assert len((await session.ask("GET", "/clients")).json()["items"]) == 1
    spelled = {"tools": [TOOL], "lifetime": TTL, "name": "web"}
    assert (await session.ask("POST", "/clients", spelled, key="reg")).content == first.content
    assert (await session.ask("POST", "/clients", {**body, "key": "tab"}, key="reg")).status_code == 409


async def test_a_cancel_that_comes_again_joins_the_first(front: Front, session: Session) -> None:
    run_id = (await session.ask("POST", "/events", {"type": "input", "text": "x"})).json()["run_id"]
    assert await front.owner.begin_run(session.id) == run_id
    asked = [asyncio.ensure_future(session.ask("POST", "/cancel", key="c")) for _ in range(4)]
    await front.owner.kept(session.id, 1)
    assert not any(task.done() for task in asked), "the run has not ended"
    await front.owner.write(session.id, [events.run_cancelled(run_id)], ends_run=run_id)
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*asked)
    assert {answer.content for answer in answers} == {b'{"run_id":"%b"}' % run_id.encode()}


async def test_too_large_is_413(session: Session) -> None:
    answer = await session.ask("POST", "/events", {"type": "input", "text": "x", "pad": "x" * 4_200_000})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "invalid_request")


async def test_a_draining_node_says_so_and_the_other_goes_on(front: Front, session: Session) -> None:
    front.nodes[0].gateway.draining = True
    body = {"type": "input", "text": "x"}
    answers = [await session.ask("POST", "/events", body, key="drain") for _ in range(4)]
    refused = [answer for answer in answers if answer.status_code == 503]
    taken = [answer for answer in answers if answer.status_code == 200]
    assert len(refused) == (4 if len(front.nodes) == 1 else 2)
    assert len(taken) == 4 - len(refused)
    for answer in refused:
        assert answer.json()["error"]["code"] == "internal"
        assert answer.headers["retry-after"].isdecimal()
    assert len({answer.content for answer in taken}) <= 1
    front.nodes[0].gateway.draining = False
    last = await session.ask("POST", "/events", body, key="drain")
    assert last.status_code == 200
    assert {last.content} >= {answer.content for answer in taken}


@pytest.mark.parametrize("count", [1, 2])
async def test_too_many_a_second_is_429_with_retry_after(bus_url: str, count: int) -> None:
    """The bucket is a node's own: two nodes let twice as many through."""
    settings = settings_for(Limits(requests_per_second=1, request_burst=4))
    async with http_node(bus_url, settings) as one, http_node(bus_url, settings) as two:
        nodes = [one, two][:count]
        async with round_robin([node.port for node in nodes]) as port:
            front = Front(port, one, nodes)
            session = await front.session()
            answers = await asyncio.gather(*(session.ask("GET") for _ in range(8 * count)))
            refused = [answer for answer in answers if answer.status_code == 429]
            assert 2 * count <= len(refused) <= 4 * count, "four at once, and one more each second that this takes"
            for answer in refused:
                assert answer.json()["error"]["code"] == "too_many_requests"
                assert answer.headers["retry-after"] == "1"
            assert (await front.ask("GET", "/v1/agents")).status_code == 200, "another credential has its own"


# --- Tokens


async def test_a_narrowed_key_sees_its_agents_alone(front: Front, session: Session) -> None:
    made = await front.ask("POST", "/v1/sessions", {"agent_id": OTHER.id})
    hidden = f"/v1/sessions/{made.json()['id']}"
    for path in (hidden, f"{hidden}/events", f"{hidden}/tokens"):
        method = "POST" if path.endswith("tokens") else "GET"
        assert (await front.ask(method, path, by=NARROW_KEY)).status_code == 404
    assert (await session.ask("GET", by=NARROW_KEY)).status_code == 200
    assert (await front.ask("POST", "/v1/sessions", {"agent_id": OTHER.id}, by=NARROW_KEY)).status_code == 404
    agents = (await front.ask("GET", "/v1/agents", by=NARROW_KEY)).json()["items"]
    assert [agent["name"] for agent in agents] == ["support"]


async def test_what_a_session_token_may_not_do(front: Front, session: Session) -> None:
    for method, path, body in (
        ("POST", "/tokens", None),
        ("DELETE", f"/tokens/{uuid.uuid4()}", None),
        ("DELETE", "", None),
        ("GET", "/models", None),
        ("PUT", "/model", {"provider": "p", "model": "m"}),
        ("POST", "/approvals/a1", {"decision": "allow"}),
    ):
        answer = await session.ask(method, path, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden"), path
    made = (await front.ask("POST", "/v1/sessions", {"agent_id": OTHER.id})).json()
    path = f"/v1/sessions/{made['id']}/approvals/a1"
    may = await front.ask("POST", path, {"decision": "allow"}, by=made["session_token"])
    assert may.status_code == 404, "its agent lets tokens approve; there is nothing to approve"


async def test_revocation_ends_live_streams_on_every_node_within_a_second(front: Front, session: Session) -> None:
    minted = [await front.ask("POST", f"{session.path}/tokens", key="t") for _ in range(2)]
    token, token_id = minted[0].json()["session_token"], minted[1].json()["id"]
    async with (
        front.stream(session.path, token) as one,
        front.stream(session.path, token) as two,
        session.stream() as stays,
    ):
        for stream in (one, two, stays):
            await stream.frame()
        assert (await front.ask("DELETE", f"{session.path}/tokens/{token_id}")).status_code == 204
        await asyncio.gather(one.ended(1.0), two.ended(1.0))
        await front.owner.append(session.id, 1)
        assert (await stays.event())["seq"] == 2
    for _ in front.nodes:
        assert (await session.ask("GET", by=token)).status_code == 401
        assert (await front.ask("DELETE", f"{session.path}/tokens/{token_id}")).status_code == 404


async def test_an_expired_token_is_401_everywhere_and_its_streams_end(front: Front, session: Session) -> None:
    token = mint_session_token(session.id)
    await front.owner.sessions.add_token(session.id, digest(token), str(uuid.uuid4()), 1_500, NO_KEY)
    async with front.stream(session.path, token) as one, front.stream(session.path, token) as two:
        assert (one.status, two.status) == (200, 200)
        await asyncio.gather(one.ended(5.0), two.ended(5.0))
    for _ in front.nodes:
        assert (await session.ask("GET", by=token)).status_code == 401


async def test_a_deleted_session_ends_its_streams_everywhere(front: Front, session: Session) -> None:
    async with session.stream() as one, front.stream(session.path, KEY) as two:
        assert (await front.ask("DELETE", session.path)).status_code == 204
        await asyncio.gather(one.ended(2.0), two.ended(2.0))


async def test_cors_stands_on_refusals_and_not_where_a_key_is_needed(front: Front, session: Session) -> None:
    page = {"Origin": SUPPORT_ORIGIN}
    for method, path, by, status in (
        ("GET", "/nothing", session.token, 404),
        ("GET", "/events?limit=0", session.token, 400),
        ("GET", "", "wrong", 401),
        ("PATCH", "/events", session.token, 405),
    ):
        answer = await session.ask(method, path, by=by, **page)
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == SUPPORT_ORIGIN
        assert "Origin" in answer.headers["vary"]
    for method, path in (("DELETE", ""), ("POST", "/tokens"), ("PUT", "/model")):
        assert "access-control-allow-origin" not in (await session.ask(method, path, by=KEY, **page)).headers
        preflight = {**page, "Access-Control-Request-Method": method}
        assert (await session.ask("OPTIONS", path, by="nobody", **preflight)).status_code == 403


# --- The stream


async def test_without_a_position_a_stream_begins_at_the_head(front: Front, session: Session) -> None:
    await front.owner.append(session.id, 3)
    async with session.stream() as stream:
        cursor = await stream.frame()
        assert cursor is not None
        assert cursor.id == "4"
        retry = await stream.frame()
        assert retry is not None
        assert retry.retry
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("count", [1, 2])
async def test_an_idle_stream_is_kept_by_comments(bus_url: str, count: int) -> None:
    async with http_node(bus_url, heartbeat_s=0.05) as one, http_node(bus_url, heartbeat_s=0.05) as two:
        nodes = [one, two][:count]
        async with round_robin([node.port for node in nodes]) as port:
            session = await Front(port, one, nodes).session()
            async with session.stream() as first, session.stream() as second:
                for stream in (first, second):
                    await stream.frame()
                    await stream.frame()
                    beats = [await stream.frame(5) for _ in range(3)]
                    assert all(beat.comments and beat.data is None and beat.id is None for beat in beats)


@pytest.mark.parametrize("count", [1, 2])
async def test_below_the_oldest_it_goes_on_from_the_oldest_and_says_so(bus_url: str, count: int) -> None:
    settings = settings_for(Limits(log_events=1000))
    async with http_node(bus_url, settings) as one, http_node(bus_url, settings) as two:
        nodes = [one, two][:count]
        async with round_robin([node.port for node in nodes]) as port:
            session = await Front(port, one, nodes).session()
            for batch in range(8):
                await one.append(session.id, 300, batch * 300)
            oldest = await one.log.oldest(session.id)
            assert oldest > 1
            for _ in nodes:
                async with session.stream(Last_Event_ID="0") as stream:
                    assert (stream.status, stream.headers["toolrelay-oldest-seq"]) == (200, str(oldest))
                    cursor, trimmed = await stream.frame(), await stream.frame()
                    assert (cursor.id, trimmed.comments) == (str(oldest - 1), [f"trimmed {oldest}"])
                    assert (await stream.event())["seq"] == oldest
                page = await session.ask("GET", "/events?after_seq=0&order=asc&limit=1")
                assert (page.status_code, page.headers["toolrelay-oldest-seq"]) == (200, str(oldest))
                assert page.json()["items"][0]["seq"] == oldest
