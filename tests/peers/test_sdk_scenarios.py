# pyright: reportMissingImports=false
"""The unmodified SDK against the demo agent on two nodes: what its users rely on, scenario by scenario.

Every request of a client lands on the other node (HTTP protocol; issue: the original's clients must not notice).
"""

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.peers

subako = pytest.importorskip("subako", reason="the SDK (Python >= 3.12) is not in this environment")
models = pytest.importorskip("subako.generated.models")

from tests.doubles.nodes import Node, demo_agent, shared_server  # noqa: E402
from tests.doubles.nodes_session import calls  # noqa: E402
from tests.doubles.round_robin import round_robin  # noqa: E402
from tests.doubles.sdk_talk import SCALE, Talk, new_session, sdk_client, sdk_talk, sdk_tool  # noqa: E402

HIGHLIGHT = calls("client__web__highlight", {"row_id": "3"})
SAY = {"text": "It said: {{results}}"}


class Nodes:
    """Two nodes of both roles; ``more`` starts a further edge on the same server."""

    def __init__(self, folder: Path, redis: str, agents: Any, both: list[Node]) -> None:
        self.folder, self.redis, self.agents, self.both = folder, redis, agents, both

    def more(self) -> Node:
        return Node(self.folder / uuid.uuid4().hex[:8], redis=self.redis, roles=["edge"], agents=self.agents)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("scenarios")
    agents = [
        demo_agent(folder / "demo"),
        demo_agent(folder / "open", "open", tokens_may_approve=True),
    ]
    with shared_server() as redis:
        with (
            Node(folder / "a", redis=redis, agents=agents) as a,
            Node(folder / "b", redis=redis, agents=agents) as b,
        ):
            yield Nodes(folder, redis, agents, [a, b])
            for node in (a, b):
                node.assert_clean()


async def to_the_end(connection: Any) -> None:
    async with asyncio.timeout(20):
        async for _ in connection:
            pass


def port_of(node: Node) -> int:
    return int(node.url.rpartition(":")[2])


@pytest.fixture
async def url(nodes: Nodes) -> AsyncGenerator[str]:
    async with round_robin([port_of(node) for node in nodes.both]) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def talk(url: str) -> AsyncGenerator[Talk]:
    async with sdk_talk(url) as made:
        yield made


async def raw_dispatch(talk: Talk) -> tuple[Any, Any]:
    """A registration without the SDK's own serving, and the first call to it."""
    tool = models.ClientToolBody(name="highlight", description="d", parameters={"type": "object"})
    body = models.RegisterClientBody(name="web", lifetime=models.NeverClientLifetimeForm(type="never"), tools=[tool])
    registered = await talk.client.sessions.register_client(talk.id, body)
    await talk.say(HIGHLIGHT, SAY)
    return registered, await talk.first("client_tool_dispatched")


def as_the_model_reads(client_name: str) -> str:
    """Agents take no ``-`` in a tool's name."""
    return f"client__{client_name.replace('-', '_')}__highlight"


def answer(text: str) -> Any:
    return models.ClientCallResultBody(text=text)


# --- reading


async def test_history_and_then_live(talk: Talk):
    await talk.run({"text": "first"})
    async with talk.client.sessions.connect(talk.id, history=True) as second:
        assert list(second.events) == list(talk.connection.events)
        again = Talk(talk.client, talk.session, second)
        assert await again.run({"text": "second"}) == "second"
        await talk.first("run_completed", run_id=second.events[-1].run_id)
        assert list(second.events) == list(talk.connection.events)
        assert [event.seq for event in second.events] == list(range(1, len(second.events) + 1))


async def test_without_a_position_a_connection_begins_at_the_head(talk: Talk):
    await talk.run({"text": "before"})
    async with talk.client.sessions.connect(talk.id) as second:
        assert await Talk(talk.client, talk.session, second).run({"text": "after"}) == "after"
        assert second.events[0].type == "run_queued"


async def test_from_a_position_only_what_follows_it(talk: Talk):
    await talk.run({"text": "one"})
    at = talk.connection.events[3].seq
    async with talk.client.sessions.connect(talk.id, after_seq=at) as second:
        again = Talk(talk.client, talk.session, second)
        await again.first("run_completed")
        assert list(second.events) == list(talk.connection.events)[4:]


async def test_a_live_transcript_is_that_of_the_history(talk: Talk):
    await talk.serve(highlight=lambda row: f"row {row.row_id}")
    assert "row 3" in await talk.run({"text": "Let me see.", **HIGHLIGHT}, SAY)
    made = [call for message in talk.connection.transcript for call in message.tool_calls]
    assert [(call.name, call.result.content[0].data.text) for call in made] == [("client__web__highlight", "row 3")]
    async with talk.client.sessions.connect(talk.id, history=True) as again:
        assert again.transcript == talk.connection.transcript
        assert not again.is_running


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_events_are_paged_in_both_orders(talk: Talk, order: str):
    await talk.run({"text": "one"})
    query = models.ListSessionEventsQuery(limit=2, order=models.OrderParam(order))
    page = await talk.client.sessions.list_events(talk.id, query)
    assert len(page.items) == 2
    found = [event async for event in page]
    expected = list(talk.connection.events)
    assert found == (expected if order == "asc" else expected[::-1])


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_sessions_are_paged_in_both_orders(talk: Talk, order: str):
    made = [talk.session.id, *[(await new_session(talk.client)).id for _ in range(3)]]
    page = await talk.client.sessions.list(models.ListSessionsQuery(limit=2, order=models.OrderParam(order)))
    found = [session.id async for session in page if session.id in made]
    assert found == (made if order == "asc" else made[::-1])


async def test_a_stream_outlives_its_node(nodes: Nodes):
    doomed = nodes.more().start()
    try:
        async with round_robin([port_of(doomed), port_of(nodes.both[0])]) as port:
            async with sdk_client(f"http://127.0.0.1:{port_of(nodes.both[1])}") as other:
                session = await new_session(other)
                async with sdk_client(f"http://127.0.0.1:{port}") as client:
                    async with client.sessions.connect(session.id, after_seq=0) as connection:
                        talk = Talk(other, session, connection)
                        await talk.first("session_created")
                        os.kill(doomed.pid, signal.SIGKILL)
                        said = await other.sessions.post_event(
                            session.id, models.PostSessionEventBody(type="input", text="echo still here")
                        )
                        await talk.end(str(said.run_id))
                        assert talk.said() == "still here"
                        seqs = [event.seq for event in connection.events]
                        assert seqs == list(range(1, len(seqs) + 1))
    finally:
        doomed.close()


# --- keys and tokens


async def test_a_replayed_creation_is_a_receipt(talk: Talk):
    options = subako.RequestOptions(idempotency_key=str(uuid.uuid4()))
    body = models.CreateSessionBody(agent_id=talk.session.agent_id)
    first = await talk.client.sessions.create(body, options)
    again = await talk.client.sessions.create(body, options)
    assert first.id == again.id
    assert first.session_token
    assert not hasattr(again, "session_token") or again.session_token is None
    named = body.model_copy(update={"display_name": "another"})
    with pytest.raises(subako.ConflictError):
        await talk.client.sessions.create(models.CreateSessionBody(**named.model_dump()), options)


async def test_a_replayed_minting_is_a_receipt(talk: Talk):
    options = subako.RequestOptions(idempotency_key="mint once")
    first = await talk.client.sessions.mint_token(talk.id, options)
    again = await talk.client.sessions.mint_token(talk.id, options)
    assert first.session_token
    assert again.session_id == talk.session.id
    assert again.expires_at == first.expires_at


async def test_a_replayed_input_is_one_run(talk: Talk):
    options = subako.RequestOptions(idempotency_key="say once")
    body = models.PostSessionEventBody(type="input", text="echo once")
    first, again = await asyncio.gather(*(talk.client.sessions.post_event(talk.id, body, options) for _ in range(2)))
    assert first.run_id == again.run_id
    await talk.end(str(first.run_id))
    assert len(talk.of("run_queued")) == 1
    with pytest.raises(subako.ConflictError):
        other = models.PostSessionEventBody(type="input", text="echo twice")
        await talk.client.sessions.post_event(talk.id, other, options)


async def revoke(nodes: Nodes, talk: Talk, receipt_key: str) -> None:
    """Revokes the token that was minted under a key: the SDK has no call for it."""
    receipt = await talk.client.sessions.mint_token(talk.id, subako.RequestOptions(idempotency_key=receipt_key))
    async with nodes.both[0].http() as http:
        assert (await http.delete(f"/v1/sessions/{talk.id}/tokens/{receipt.id}")).status_code == 204


async def minted(talk: Talk, key: str) -> str:
    made = await talk.client.sessions.mint_token(talk.id, subako.RequestOptions(idempotency_key=key))
    return made.session_token


async def test_a_token_is_refreshed_on_401(nodes: Nodes, url: str, talk: Talk):
    old, new = await minted(talk, "old"), await minted(talk, "new")
    await revoke(nodes, talk, "old")
    given = [old, new]
    async with sdk_client(url, lambda: given.pop(0)) as page:
        assert str((await page.sessions.get(talk.id)).id) == talk.id
        assert given == []


async def test_a_token_that_cannot_be_refreshed_is_refused(nodes: Nodes, url: str, talk: Talk):
    token = await minted(talk, "only")
    async with sdk_client(url, token) as page:
        await page.sessions.get(talk.id)
        await revoke(nodes, talk, "only")
        with pytest.raises(subako.UnauthorizedError):
            await page.sessions.get(talk.id)


async def test_a_revoked_token_ends_its_stream(nodes: Nodes, url: str, talk: Talk):
    token = await minted(talk, "stream")
    async with sdk_client(url, token) as page:
        async with page.sessions.connect(talk.id, after_seq=0) as connection:
            await revoke(nodes, talk, "stream")
            with pytest.raises(subako.UnauthorizedError):
                await to_the_end(connection)
            assert connection.status.value == "failed"


async def test_a_token_may_not_do_what_needs_a_key(url: str, talk: Talk):
    async with sdk_client(url, talk.session.session_token) as page:
        for refused in (page.sessions.mint_token(talk.id), page.sessions.delete(talk.id), page.sessions.list()):
            with pytest.raises(subako.ForbiddenError):
                await refused
        other = await new_session(talk.client)
        with pytest.raises(subako.NotFoundError):
            await page.sessions.get(other.id)


async def test_a_deleted_session_is_gone_everywhere(url: str, talk: Talk):
    await talk.client.sessions.delete(talk.id)
    with pytest.raises(subako.NotFoundError):
        await talk.client.sessions.get(talk.id)
    with pytest.raises(subako.NotFoundError):
        await to_the_end(talk.connection)


# --- tool clients


async def test_each_request_of_a_call_lands_elsewhere(talk: Talk):
    await talk.serve(highlight=lambda row: f"row {row.row_id} is highlighted")
    for _ in range(3):
        assert "row 3 is highlighted" in await talk.run(HIGHLIGHT, SAY)
    assert len(talk.of("client_tool_acked")) == 3


async def test_a_client_joins_empty_and_puts_its_tools(talk: Talk):
    client = await talk.serve()
    registered = await talk.first("client_registered")
    assert registered.tools == []
    client.add_tool("highlight", sdk_tool(lambda row: f"late {row.row_id}"))
    await talk.first("client_tools_updated")
    assert "late 3" in await talk.run(HIGHLIGHT, SAY)


async def test_a_list_that_changes_before_the_answer_is_the_next_turns(talk: Talk):
    client: Any = None

    def go(_: Any) -> str:
        client.remove_tool("highlight")
        client.add_tool("fill", sdk_tool(lambda row: f"filled {row.row_id}"))
        return "another page"

    client = await talk.serve(highlight=go)
    fill = calls("client__use", {"tool": "client__web__fill", "arguments": {"row_id": "9"}})
    said = await talk.run(HIGHLIGHT, fill, HIGHLIGHT, SAY)
    assert "another page" in said
    assert "filled 9" in said
    assert "tool_gone" in said
    order = [event.type for event in talk.of("client_tools_updated", "tool_result")]
    assert order[:2] == ["client_tools_updated", "tool_result"]


async def test_two_clients_of_one_name(talk: Talk):
    one = await talk.serve(highlight=lambda _: "the first")
    two = await talk.serve(highlight=lambda _: "the second")
    assert one.name == "web"
    assert two.name != "web"
    said = await talk.run(HIGHLIGHT, calls(as_the_model_reads(two.name), {"row_id": "1"}), SAY)
    assert "the first" in said
    assert "the second" in said


async def test_a_client_whose_pings_stop_lapses_and_registers_again(url: str, talk: Talk):
    lifetime = models.TtlClientLifetimeForm(type="ttl", data=models.TtlClientLifetimeFormData(seconds=5))

    async def never(_: float) -> None:
        await asyncio.Event().wait()

    async with sdk_client(url, sleep=never) as silent:
        async with silent.sessions.connect(talk.id, after_seq=0) as connection:
            mute = Talk(silent, talk.session, connection)
            client = await mute.serve(lifetime=lifetime, highlight=lambda row: f"again {row.row_id}")
            left = await mute.first("client_left", client_id=client.id, within=15)
            assert client.status.value == "left"
            await client.rejoin()
            assert client.status.value == "serving"
            assert client.id != left.client_id
            assert client.name != "web", "a name is spent for the session"
            assert "again 3" in await mute.run(calls(as_the_model_reads(client.name), {"row_id": "3"}), SAY)


async def test_an_answer_that_takes_longer_than_the_lifetime(talk: Talk):
    lifetime = models.TtlClientLifetimeForm(type="ttl", data=models.TtlClientLifetimeFormData(seconds=5))

    async def slow(_: Any) -> str:
        await asyncio.sleep(6)  # of the lifetime's five seconds: pings keep it
        return "at last"

    assert SCALE < 1
    await talk.serve(lifetime=lifetime, highlight=slow)
    assert "at last" in await talk.run(HIGHLIGHT, SAY)
    assert not talk.of("client_left")


async def test_a_client_that_leaves_mid_call_fails_it(talk: Talk):
    client = await talk.serve(highlight=lambda _: asyncio.sleep(600))
    run_id = await talk.say(HIGHLIGHT, SAY)
    await talk.first("client_tool_acked")
    await client.leave()
    await talk.end(run_id)
    assert "client_gone" in talk.said()
    assert (await talk.first("client_tool_failed")).reason.value == "client_gone"


async def test_a_connection_that_closes_takes_its_clients_along(talk: Talk):
    async with talk.client.sessions.connect(talk.id, after_seq=0) as second:
        client = await Talk(talk.client, talk.session, second).serve(highlight=lambda _: "unused")
        client_id = client.id
    await talk.first("client_left", client_id=client_id)


async def test_an_error_of_a_tool_reaches_the_model_as_one(talk: Talk):
    refused = models.ClientCallResultBody(text="there is no such row", is_error=True)
    await talk.serve(highlight=lambda _: refused)
    assert "there is no such row" in await talk.run(HIGHLIGHT, SAY)
    assert (await talk.first("tool_result")).is_error


async def test_arguments_that_do_not_fit_never_reach_the_client(talk: Talk):
    await talk.serve(highlight=lambda _: pytest.fail("it was called"))
    assert "invalid_arguments" in await talk.run(calls("client__web__highlight", {"row_id": 3}), SAY)


async def test_what_a_registration_may_not_be(talk: Talk):
    never = models.NeverClientLifetimeForm(type="never")
    tool = models.ClientToolBody(name="x", description="d", parameters={"type": "object"})
    body = models.RegisterClientBody.model_construct(name="Not A Name", lifetime=never, tools=[tool])
    with pytest.raises(subako.InvalidRequestError, match="name"):
        await talk.client.sessions.register_client(talk.id, body)
    twice = models.RegisterClientBody(name="web", lifetime=never, tools=[tool, tool])
    with pytest.raises(subako.InvalidRequestError, match="tools"):
        await talk.client.sessions.register_client(talk.id, twice)


# --- answers without the SDK's own serving


async def test_an_answer_twice_is_one_and_another_is_refused(talk: Talk):
    registered, call = await raw_dispatch(talk)
    place = (talk.id, registered.id, call.call_id)
    await talk.client.sessions.answer_call(*place, answer("done"))
    await talk.client.sessions.answer_call(*place, answer("done"))
    with pytest.raises(subako.ConflictError):
        await talk.client.sessions.answer_call(*place, answer("something else"))
    await talk.end(call.run_id if hasattr(call, "run_id") else (await talk.first("run_completed")).run_id)
    assert talk.said() == 'It said: ["done"]'
    assert len(talk.of("tool_result")) == 1


async def test_a_late_answer_is_told_what_became_of_the_call(talk: Talk):
    registered, call = await raw_dispatch(talk)
    await talk.connection.cancel()
    await talk.first("run_cancelled")
    with pytest.raises(subako.ConflictError, match="run_gone"):
        await talk.client.sessions.answer_call(talk.id, registered.id, call.call_id, answer("too late"))
    with pytest.raises(subako.ConflictError):
        await talk.client.sessions.ack_call(talk.id, registered.id, call.call_id)


async def test_a_foreign_answer_finds_no_call(talk: Talk):
    _, call = await raw_dispatch(talk)
    other = await talk.serve("other", highlight=lambda _: "unused")
    for place in ((other.id, call.call_id), (str(uuid.uuid4()), call.call_id), (other.id, "no-such-call")):
        with pytest.raises(subako.NotFoundError):
            await talk.client.sessions.answer_call(talk.id, *place, answer("mine"))
    assert not talk.of("tool_result")
    await talk.connection.cancel()


# --- runs


async def test_inputs_wait_for_their_turn(talk: Talk):
    runs = [await talk.say({"text": f"answer {number}"}) for number in range(3)]
    await talk.end(runs[-1])
    assert [event.run_id for event in talk.of("run_completed")] == runs


async def test_a_cancel_ends_the_run_and_the_tools_work(talk: Talk):
    stopped = asyncio.Event()

    async def slow(_: Any) -> str:
        try:
            await asyncio.sleep(600)
        finally:
            stopped.set()
        return "never"

    client = await talk.serve(highlight=slow)
    run_id = await talk.say(HIGHLIGHT, SAY)
    await talk.first("client_tool_acked")
    assert talk.connection.is_running
    assert str((await talk.connection.cancel()).run_id) == run_id
    assert (await talk.end(run_id)).type == "run_cancelled"
    assert (await talk.connection.cancel()).run_id is None
    await client.leave()
    await asyncio.wait_for(stopped.wait(), 10)


async def test_an_approval_that_is_allowed(talk: Talk):
    run_id = await talk.say({"approval": {"summary": "May I?"}}, {"text": "Thank you."})
    asked = await talk.first("approval_requested")
    assert [event.call_id for event in talk.connection.approvals] == [asked.call_id]
    decided = await talk.connection.resolve_approval(asked.call_id, models.ApprovalDecisionBody.allow)
    assert decided.decision.value == "allow"
    assert (await talk.end(run_id)).type == "run_completed"
    assert talk.said() == "Thank you."
    assert list(talk.connection.approvals) == []
    with pytest.raises(subako.ConflictError):
        await talk.connection.resolve_approval(asked.call_id, models.ApprovalDecisionBody.deny)


async def test_an_approval_that_is_denied(talk: Talk):
    run_id = await talk.say({"approval": {"summary": "May I?"}}, {"text": "never"})
    asked = await talk.first("approval_requested")
    await talk.connection.resolve_approval(asked.call_id, models.ApprovalDecisionBody.deny, "not today")
    resolved = await talk.first("approval_resolved")
    assert (resolved.call_id, resolved.decision.value) == (asked.call_id, "deny")
    assert (await talk.end(run_id)).type == "run_failed"


@pytest.mark.parametrize(("agent", "may"), [("demo", False), ("open", True)])
async def test_whether_a_token_may_approve_is_the_agents(url: str, agent: str, may: bool):
    async with sdk_talk(url, agent) as talk, sdk_client(url, talk.session.session_token) as page:
        await talk.say({"approval": {"summary": "May I?"}}, {"text": "Thank you."})
        asked = await talk.first("approval_requested")
        allow = models.ApprovalDecisionForm(models.AllowApprovalDecisionForm(decision="allow"))
        if may:
            await page.sessions.resolve_approval(talk.id, asked.call_id, allow)
            await talk.first("run_completed")
        else:
            with pytest.raises(subako.ForbiddenError):
                await page.sessions.resolve_approval(talk.id, asked.call_id, allow)
            await talk.connection.cancel()
