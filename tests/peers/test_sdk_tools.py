# pyright: reportMissingImports=false
"""The unmodified SDK on two nodes: tool clients and their answers, scenario by scenario.

Every request of a client lands on the other node (HTTP protocol; issue: the original's clients must not notice).
"""

import asyncio
import uuid
from typing import Any

import pytest

pytestmark = pytest.mark.peers

subako = pytest.importorskip("subako", reason="the SDK (Python >= 3.12) is not in this environment")
models = pytest.importorskip("subako.generated.models")

from tests.doubles.nodes_session import calls  # noqa: E402
from tests.doubles.sdk_talk import SCALE, Talk, sdk_client, sdk_tool  # noqa: E402

HIGHLIGHT = calls("client__web__highlight", {"row_id": "3"})
SAY = {"text": "It said: {{results}}"}


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
