# pyright: reportUntypedBaseClass=false, reportOptionalMemberAccess=false
"""The real child on one node and the real HTTP client on another: what the client answers is what the model sees.

The SDK needs Python >= 3.12; without it this file is skipped by name.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.doubles.nodes import API_KEY
from tests.doubles.nodes_session import agent_id, calls, script

pytestmark = pytest.mark.peers

pydantic = pytest.importorskip("pydantic", reason="the SDK (Python >= 3.12) is not in this environment")
subako = pytest.importorskip("subako", reason="the SDK (Python >= 3.12) is not in this environment")
models = pytest.importorskip("subako.generated.models")

WITHIN_S = 30.0
SAY = {"text": "It said: {{results}}"}


class Row(pydantic.BaseModel):
    row_id: str


class Span(pydantic.BaseModel):
    first: int = pydantic.Field(ge=0)
    last: int | None = None


class Mark(pydantic.BaseModel):
    """A nested model: pydantic prints definitions and references for it, titles, and unions with null."""

    spans: list[Span]
    colour: str | None = None


class Talk:
    """A session with the SDK's own connection."""

    def __init__(self, client: Any, session: Any, connection: Any) -> None:
        self.client, self.session, self.connection = client, session, connection
        self.mark = uuid.uuid4().hex

    async def first(self, match: Callable[[Any], bool], within: float = WITHIN_S) -> Any:
        async with asyncio.timeout(within):
            async for event in self.connection:
                if match(event):
                    return event
        raise AssertionError(f"the connection ended: {self.connection.error}")

    async def run(self, *steps: Any) -> Any:
        """One run; its last event. The prompt bears the session's mark for the model's log."""
        said = await self.connection.send(self.mark + script(*steps))
        run_id = str(said.run_id)
        ends = ("run_completed", "run_failed", "run_cancelled")
        return await self.first(lambda event: event.type in ends and event.run_id == run_id)

    async def serve(self, name: str = "web", **tools: Any) -> Any:
        client = self.connection.create_tool_client(name, on_error=lambda error: pytest.fail(repr(error)))
        for tool, declared in tools.items():
            client.add_tool(tool, declared)
        await client.ready()
        return client


@asynccontextmanager
async def sdk(pair: Any, agent: str = "magi") -> AsyncGenerator[Talk]:
    async with subako.SubakoClient(base_url=pair.edge.url, api_key=API_KEY) as client:
        session = await client.sessions.create(models.CreateSessionBody(agent_id=agent_id(agent)))
        async with client.sessions.connect(session.id, after_seq=0) as connection:
            yield Talk(client, session, connection)


def tool(execute: Callable[[Any], Any], parameters: type[Any] = Row, description: str = "A tool.") -> Any:
    async def run(arguments: Any, _call: Any) -> Any:
        value = execute(arguments)
        return await value if asyncio.iscoroutine(value) else value

    return subako.Tool(description=description, parameters=parameters, execute=run)


async def test_the_model_sees_the_clients_answer(pair):
    async with sdk(pair) as talk:
        await talk.serve(highlight_row=tool(lambda row: f"Row {row.row_id} is highlighted."))
        end = await talk.run(calls("client__web__highlight_row", {"row_id": "42"}), SAY)
        assert end.type == "run_completed"
        assert pair.model.results(talk.mark) == ["Row 42 is highlighted."]


async def test_the_transcript_shows_the_call_with_its_result(pair):
    async with sdk(pair) as talk:
        await talk.serve(highlight_row=tool(lambda row: f"Row {row.row_id} is highlighted."))
        await talk.run({"text": "Let me see.", **calls("client__web__highlight_row", {"row_id": "7"})}, SAY)
        made = [call for message in talk.connection.transcript for call in message.tool_calls]
        (call,) = made
        assert (call.name, dict(call.arguments)) == ("client__web__highlight_row", {"row_id": "7"})
        assert not call.result.is_error
        assert call.result.content[0].data.text == "Row 7 is highlighted."
        roles = [str(message.role.value) for message in talk.connection.transcript]
        assert roles == ["user", "assistant", "assistant", "assistant"]
        assert not talk.connection.is_running
        async with talk.client.sessions.connect(talk.session.id, history=True) as again:
            assert again.transcript == talk.connection.transcript


async def test_a_nested_schema_is_native(pair):
    seen: list[Mark] = []
    async with sdk(pair) as talk:
        await talk.serve(mark=tool(lambda mark: (seen.append(mark), "marked")[1], Mark))
        given = {"spans": [{"first": 1, "last": 2}, {"first": 5, "last": None}], "colour": None}
        end = await talk.run(calls("client__web__mark", given), SAY)
        assert end.type == "run_completed"
        assert seen == [Mark.model_validate(given)]
        offered = pair.model.tools(talk.mark)["client__web__mark"]
        assert offered["properties"]["spans"]["items"]["properties"]["first"]["minimum"] == 0
        assert "$ref" not in json.dumps(offered)


async def test_arguments_that_do_not_fit_never_reach_the_client(pair):
    async with sdk(pair) as talk:
        await talk.serve(mark=tool(lambda _: pytest.fail("it was called"), Mark))
        await talk.run(calls("client__web__mark", {"spans": [{"first": -1}]}), SAY)
        (result,) = pair.model.results(talk.mark)
        assert result.startswith("Error invalid_arguments")
        assert "first" in result


async def test_a_page_that_navigates(pair):
    """The list changes before the answer: in that run client__use reaches the new tool, in the next it is native."""
    async with sdk(pair) as talk:
        client = None

        def go(_: Row) -> str:
            client.remove_tool("go")
            client.add_tool("fill", tool(lambda row: f"filled {row.row_id}"))
            return "another page"

        client = await talk.serve(go=tool(go))
        inner = {"tool": "client__web__fill", "arguments": {"row_id": "9"}}
        end = await talk.run(
            calls("client__web__go", {"row_id": "1"}),
            calls("client__use", inner),
            calls("client__web__go", {"row_id": "2"}),
            SAY,
        )
        assert end.type == "run_completed"
        went, used, gone = pair.model.results(talk.mark)
        assert went.startswith("another page")
        assert "client__web__fill" in went
        assert "client__use" in went
        assert used == "filled 9"
        assert gone.startswith("Error tool_gone")
        assert "client__web__fill" not in pair.model.tools(talk.mark)
        await talk.run(calls("client__web__fill", {"row_id": "10"}), SAY)
        assert pair.model.results(talk.mark)[-1] == "filled 10"
        offered = pair.model.tools(talk.mark)
        assert "client__web__fill" in offered
        assert "client__web__go" not in offered


async def test_a_long_result_is_read_on(pair):
    text = "\n".join(f"line {number} of the long result" for number in range(1900))
    assert 32_768 < len(text) < 65_536
    async with sdk(pair) as talk:
        await talk.serve(read=tool(lambda _: text))
        await talk.run(calls("client__web__read", {"row_id": "1"}), SAY)
        (first,) = pair.model.results(talk.mark)
        assert len(first.encode()) <= 32_768
        assert "client__more" in first


async def test_a_long_result_is_whole_after_client_more(pair):
    text = "\n".join(f"line {number} of the long result" for number in range(1900))
    async with sdk(pair) as talk:

        def steps(call_id: str) -> str:
            return script(calls("client__more", {"call_id": call_id, "part": 2}), SAY)

        await talk.serve(read=tool(lambda _: text), more=tool(lambda _: "unused"))
        await talk.run(calls("client__web__read", {"row_id": "1"}), SAY)
        call = next(event for event in talk.connection.events if event.type == "client_tool_dispatched")
        first = pair.model.results(talk.mark)[0]
        said = await talk.connection.send(talk.mark + steps(call.call_id))
        await talk.first(lambda event: event.type == "run_completed" and event.run_id == str(said.run_id))
        second = pair.model.results(talk.mark)[-1]
        joined = [line for part in (first, second) for line in part.splitlines() if line.startswith("line ")]
        assert joined == text.splitlines()


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ('She said "no" \\ and left', 'She said "no" \\ and left'),
        ("größer 🦀 日本語 \u2028 end", "größer 🦀 日本語 \u2028 end"),
        ("a\u0000b\u0001c\u001b[31mred\u001b[0m\r\nnext\ttab", "abcred\nnext\ttab"),
        ("", " "),  # what the real child makes of an empty text
    ],
    ids=["quotes", "emoji", "controls", "empty"],
)
async def test_what_a_result_may_hold(pair, text: str, seen: str):
    async with sdk(pair) as talk:
        await talk.serve(read=tool(lambda _: text))
        end = await talk.run(calls("client__web__read", {"row_id": "1"}), {"text": "done"})
        assert end.type == "run_completed"
        assert pair.model.results(talk.mark) == [seen]


async def test_an_error_of_the_clients_tool_is_told_as_one(pair):
    async with sdk(pair) as talk:
        refused = models.ClientCallResultBody(text="there is no such row", is_error=True)
        await talk.serve(read=tool(lambda _: refused))
        await talk.run(calls("client__web__read", {"row_id": "1"}), SAY)
        (result,) = pair.model.results(talk.mark)
        assert result == "Error tool_failed: there is no such row"
        logged = next(event for event in talk.connection.events if event.type == "tool_result")
        assert logged.is_error


async def test_a_cancel_stops_the_clients_work(pair):
    stopped = asyncio.Event()

    async def slow(_: Row) -> str:
        try:
            await asyncio.sleep(600)
        finally:
            stopped.set()
        return "never"

    async with sdk(pair) as talk:
        client = await talk.serve(read=tool(slow))
        said = await talk.connection.send(talk.mark + script(calls("client__web__read", {"row_id": "1"}), SAY))
        await talk.first(lambda event: event.type == "client_tool_acked")
        assert (await talk.connection.cancel()).run_id == said.run_id
        end = await talk.first(lambda event: event.type == "run_cancelled")
        assert end.run_id == str(said.run_id)
        failed = next(event for event in talk.connection.events if event.type == "client_tool_failed")
        assert failed.reason.value == "run_gone"
        await client.leave()
        assert client.status.value == "left"


async def test_a_client_that_leaves_mid_call_is_gone_for_the_model(pair):
    async with sdk(pair) as talk:
        client = await talk.serve(read=tool(lambda _: asyncio.sleep(600)))
        await talk.connection.send(talk.mark + script(calls("client__web__read", {"row_id": "1"}), SAY))
        await talk.first(lambda event: event.type == "client_tool_acked")
        await client.leave()
        await talk.first(lambda event: event.type == "run_completed")
        (result,) = pair.model.results(talk.mark)
        assert result.startswith("Error client_gone")


async def test_both_agents_have_their_turns_in_two_sessions_at_once(pair):
    async with sdk(pair) as one, sdk(pair) as two:
        await one.serve(read=tool(lambda row: f"one {row.row_id}"))
        await two.serve(read=tool(lambda row: f"two {row.row_id}"))
        step = calls("client__web__read", {"row_id": "5"})
        ends = await asyncio.gather(one.run(step, SAY), two.run(step, SAY))
        assert [end.type for end in ends] == ["run_completed", "run_completed"]
        assert pair.model.results(one.mark) == ["one 5"]
        assert pair.model.results(two.mark) == ["two 5"]


async def test_a_session_goes_on_in_the_next_turn(pair):
    async with sdk(pair) as talk:
        await talk.serve(read=tool(lambda row: f"row {row.row_id}"))
        for number in ("1", "2"):
            await talk.run(calls("client__web__read", {"row_id": number}), SAY)
        assert pair.model.results(talk.mark) == ["row 1", "row 2"]


async def test_the_sdk_reads_what_the_gateway_lists(pair):
    async with sdk(pair) as talk:
        read = await talk.client.sessions.get(talk.session.id)
        assert read.id == talk.session.id
        page = await talk.client.sessions.list()
        assert talk.session.id in [item.id for item in page.items]
        token = await talk.client.sessions.mint_token(talk.session.id)
        assert token.session_token
        agents = await talk.client.agents.list()
        assert {"magi", "demo"} <= {agent.name for agent in agents.items}
        await talk.run({"text": "hello"})
        await talk.client.sessions.delete(talk.session.id)
        with pytest.raises(subako.SubakoError):
            await talk.client.sessions.get(talk.session.id)
