# pyright: reportMissingImports=false
"""The unmodified SDK on two nodes: sessions, their logs, keys, tokens and runs, scenario by scenario.

Every request of a client lands on the other node (HTTP protocol; issue: the original's clients must not notice).
"""

import asyncio
import os
import signal
import uuid
from typing import Any

import pytest

pytestmark = pytest.mark.peers

subako = pytest.importorskip("subako", reason="the SDK (Python >= 3.12) is not in this environment")
models = pytest.importorskip("subako.generated.models")

from tests.doubles.nodes_session import calls  # noqa: E402
from tests.doubles.round_robin import round_robin  # noqa: E402
from tests.doubles.sdk_talk import Talk, new_session, sdk_client, sdk_talk  # noqa: E402
from tests.peers.conftest import SdkNodes, port_of  # noqa: E402

HIGHLIGHT = calls("client__web__highlight", {"row_id": "3"})
SAY = {"text": "It said: {{results}}"}


async def to_the_end(connection: Any) -> None:
    async with asyncio.timeout(20):
        async for _ in connection:
            pass


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


async def test_a_stream_outlives_its_node(sdk_nodes: SdkNodes):
    doomed = sdk_nodes.more().start()
    try:
        async with round_robin([port_of(doomed), port_of(sdk_nodes.both[0])]) as port:
            async with sdk_client(f"http://127.0.0.1:{port_of(sdk_nodes.both[1])}") as other:
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


async def revoke(sdk_nodes: SdkNodes, talk: Talk, receipt_key: str) -> None:
    """Revokes the token that was minted under a key: the SDK has no call for it."""
    receipt = await talk.client.sessions.mint_token(talk.id, subako.RequestOptions(idempotency_key=receipt_key))
    async with sdk_nodes.both[0].http() as http:
        assert (await http.delete(f"/v1/sessions/{talk.id}/tokens/{receipt.id}")).status_code == 204


async def minted(talk: Talk, key: str) -> str:
    made = await talk.client.sessions.mint_token(talk.id, subako.RequestOptions(idempotency_key=key))
    return made.session_token


async def test_a_token_is_refreshed_on_401(sdk_nodes: SdkNodes, url: str, talk: Talk):
    old, new = await minted(talk, "old"), await minted(talk, "new")
    await revoke(sdk_nodes, talk, "old")
    given = [old, new]
    async with sdk_client(url, lambda: given.pop(0)) as page:
        assert str((await page.sessions.get(talk.id)).id) == talk.id
        assert given == []


async def test_a_token_that_cannot_be_refreshed_is_refused(sdk_nodes: SdkNodes, url: str, talk: Talk):
    token = await minted(talk, "only")
    async with sdk_client(url, token) as page:
        await page.sessions.get(talk.id)
        await revoke(sdk_nodes, talk, "only")
        with pytest.raises(subako.UnauthorizedError):
            await page.sessions.get(talk.id)


async def test_a_revoked_token_ends_its_stream(sdk_nodes: SdkNodes, url: str, talk: Talk):
    token = await minted(talk, "stream")
    async with sdk_client(url, token) as page:
        async with page.sessions.connect(talk.id, after_seq=0) as connection:
            await revoke(sdk_nodes, talk, "stream")
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
