"""History, models and selection over HTTP, asked on one node and answered by the child of another (bridge 11); one
idempotency key for an input over both protocols (bridge 8)."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from tests.doubles.nodes import Node, demo_agent, shared_server
from tests.doubles.nodes_session import conversation, script


@dataclass
class Two:
    """``edge`` has the clients, ``owner`` the children. ``folder`` and ``redis`` are for further nodes."""

    edge: Node
    owner: Node


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    folder: Path = tmp_path_factory.mktemp("enquiries")
    agents = [demo_agent(folder / "demo"), demo_agent(folder / "other", "other")]
    with shared_server() as redis:
        with (
            Node(folder / "owner", redis=redis, roles=["agents"], agents=agents[:1]) as owner,
            Node(folder / "edge", redis=redis, roles=["edge"], agents=agents) as edge,
        ):
            yield Two(edge, owner)
            for node in (edge, owner):
                node.assert_clean()


async def test_history_by_cursor_is_the_childs_own_and_redacted(two: Two):
    async with conversation(two.edge) as talk:
        await talk.run("echo password=hunter2secret")
        await talk.run({"text": "0123456789" * 10, "repeat": 600})
        page = await talk.done("GET", "/history")
        items, pages = page["items"], 1
        while (cursor := page["next_cursor"]) is not None:
            page = await talk.done("GET", f"/history?cursor={cursor}")
            items, pages = items + page["items"], pages + 1
        assert pages > 1
        assert [part["kind"] for part in items if part["part"] == 0].count("user") == 2
        assert "".join(part["text"] for part in items if part["kind"] == "assistant").endswith("0123456789")
        assert "hunter2secret" not in json.dumps(items)
        assert page["complete"]


async def test_history_is_refused_during_a_run_and_for_a_cursor_of_before_it(two: Two):
    async with conversation(two.edge) as talk:
        await talk.run({"text": "0123456789" * 10, "repeat": 600})
        cursor = (await talk.done("GET", "/history"))["next_cursor"]
        run_id = await talk.say({"sleep_s": 600}, {"text": "never"})
        await talk.event("run_started", run_id=run_id)
        for path in ("/history", "/models"):
            refused = await talk.ask("GET", path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
            assert "a run is active" in refused.json()["error"]["message"]
        await talk.done("POST", "/cancel")
        assert (await talk.ask("GET", f"/history?cursor={cursor}")).status_code == 409
        for wrong in ("nothing", "%20", "x" * 257, "a&cursor=b"):
            assert (await talk.ask("GET", f"/history?cursor={wrong}")).status_code == 400


async def test_a_session_that_never_spoke_starts_its_child_for_a_question(two: Two):
    async with conversation(two.edge) as talk:
        answers = await asyncio.gather(
            talk.done("GET", "/models"), talk.done("GET", "/history"), talk.done("GET", "/models")
        )
        assert {model["model"] for model in answers[0]["items"]} == {"rules", "echo", "rules-deep"}
        assert answers[0] == answers[2]
        assert answers[0]["selection"]["model"] == "rules"
        assert answers[1] == {"items": [], "next_cursor": None, "complete": True}
        assert two.owner.children()
        assert await talk.logged() == ["session_created"], "a question leaves no event"


async def test_another_model_is_in_effect_from_the_next_run_on(two: Two):
    async with conversation(two.edge) as talk:
        wanted = {"provider": "demo", "model": "echo"}
        selected = await talk.done("PUT", "/model", wanted)
        assert selected["selection"]["model"] == "echo"
        assert await talk.run("list tools") == "list tools"
        assert (await talk.done("GET", "/models"))["selection"]["model"] == "echo"
        for body in ({**wanted, "model": "none"}, {**wanted, "effort": "max"}, {**wanted, "effort": "much"}, {}):
            assert (await talk.ask("PUT", "/model", body)).status_code == 400


async def test_a_token_reads_the_history_and_chooses_no_model(two: Two):
    async with conversation(two.edge) as talk:
        bearer = {"Authorization": f"Bearer {talk.token}"}
        assert (await talk.ask("GET", "/history", **bearer)).status_code == 200
        assert (await talk.ask("GET", "/models", **bearer)).status_code == 403
        assert (await talk.ask("PUT", "/model", {"provider": "demo", "model": "echo"}, **bearer)).status_code == 403


async def test_where_no_node_has_the_agent_a_question_says_when_to_ask_again(two: Two):
    async with conversation(two.edge, "other") as talk:
        refused = await talk.ask("GET", "/history")
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert (await talk.ask("GET", "/nothing")).status_code == 404


async def test_one_key_is_one_input_over_both_protocols(two: Two):
    async with conversation(two.edge) as talk:
        key, text = str(uuid.uuid4()), script({"text": "once"})
        body = {"type": "input", "text": text}
        bearer = {"Authorization": f"Bearer {talk.token}"}
        said = await talk.done("POST", "/events", body, **{"Idempotency-Key": key}, **bearer)
        address = two.edge.url.replace("http", "ws") + "/v1/ws"
        async with connect(address, subprotocols=["toolrelay.v1"], proxy=None) as socket:  # type: ignore[list-item]

            async def op(number: int, op: str, **fields: object) -> dict[str, object]:
                await socket.send(json.dumps({"id": number, "op": op, "session_id": talk.id, **fields}))
                async with asyncio.timeout(20):
                    while (frame := json.loads(await socket.recv())).get("id") != number:
                        pass
                return frame

            await op(1, "attach", token=talk.token)
            again = await op(2, "input", text=text, idempotency_key=key)
            assert again["ok"] == said, again
            other = await op(3, "input", text="echo another", idempotency_key=key)
            assert other["error"]["code"] == "conflict"  # type: ignore[index]
            fresh = await op(4, "input", text=text, idempotency_key="socket first")
        repeated = await talk.done("POST", "/events", body, **{"Idempotency-Key": "socket first"}, **bearer)
        assert repeated == fresh["ok"]
        await talk.end(repeated["run_id"])
        assert len(talk.of("run_queued")) == 2
