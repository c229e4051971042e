"""The real child on one node, its clients on another, by HTTP and WebSocket as anybody may speak them."""

import asyncio
import json
import os
import signal
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.doubles.nodes import alive
from tests.doubles.nodes_session import Conversation, calls, conversation, script, tool

pytestmark = pytest.mark.peers

SAY = {"text": "It said: {{results}}"}
NUMBER = tool("double", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})


class Socket:
    """A raw client of ``toolrelay.v1``."""

    def __init__(self, link: ClientConnection) -> None:
        self.link = link
        self.pushed: list[dict[str, Any]] = []

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """One frame, and its answer; what is pushed meanwhile is kept."""
        number = uuid.uuid4().int % 1_000_000
        await self.link.send(json.dumps({"id": number, "op": op, **fields}))
        async with asyncio.timeout(30):
            while "id" not in (frame := await self.next()):
                self.pushed.append(frame)
        assert frame["id"] == number
        return frame

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(30):
            return json.loads(await self.link.recv())

    async def event(self, kind: str) -> dict[str, Any]:
        """The next event of a type."""
        async with asyncio.timeout(30):
            while True:
                frame = self.pushed.pop(0) if self.pushed else await self.next()
                if frame.get("event", {}).get("type") == kind:
                    return frame["event"]


@asynccontextmanager
async def attached(pair: Any, talk: Conversation) -> AsyncGenerator[Socket]:
    url = pair.edge.url.replace("http", "ws") + "/v1/ws"
    async with connect(url, subprotocols=["toolrelay.v1"], origin="https://app.example") as link:  # type: ignore[arg-type,list-item]
        socket = Socket(link)
        answer = await socket.ask("attach", session_id=talk.id, token=talk.token, after_seq=0)
        assert "ok" in answer, answer
        yield socket


def marked(*steps: Any) -> tuple[str, str]:
    """A script with a mark that the model's log is searched for."""
    mark = uuid.uuid4().hex
    return mark, mark + script(*steps)


async def test_a_websocket_client_answers_the_real_child(pair):
    async with conversation(pair.edge, "magi") as talk, attached(pair, talk) as socket:
        made = await socket.ask("register", session_id=talk.id, name="web", lifetime={"type": "never"}, tools=[NUMBER])
        mark, text = marked(calls("client__web__double", {"n": 21}), SAY)
        said = (await socket.ask("input", session_id=talk.id, text=text))["ok"]
        assert said["outcome"] == "new_run"
        call = await socket.event("client_tool_dispatched")
        assert (call["client_id"], call["tool"], call["arguments"]) == (made["ok"]["client_id"], "double", {"n": 21})
        assert 290_000 < call["remaining_ms"] <= 299_500  # the child's clock less the margin
        answer = await socket.ask(
            "result", client_id=call["client_id"], call_id=call["call_id"], text="42", structured={"n": 42}
        )
        assert answer["ok"] == {}
        assert (await socket.event("run_completed"))["run_id"] == said["run_id"]
        assert pair.model.results(mark) == ['42\nstructured: {"n":42}']


async def test_deltas_reach_a_socket(pair):
    """Best effort: what comes is text of the message, in its order, before the message itself."""
    async with conversation(pair.edge, "magi") as talk, attached(pair, talk) as socket:
        text = "".join(f"Plain words, said for the {number}th time. " for number in range(20))
        await talk.say({"text": text, "chunk": 40, "chunk_s": 0.02})
        seen: list[str] = []
        async with asyncio.timeout(30):
            while (frame := await socket.next()).get("event", {}).get("type") != "message_assistant":
                if "delta" in frame:
                    seen.append(frame["delta"]["text"])
        places = [text.find(piece.strip()) for piece in seen]
        assert len(places) > 1
        assert places == sorted(places)
        assert places[0] >= 0


async def test_calls_of_subagents_stand_open_side_by_side(pair):
    """The only way for several calls of one real child to be open at once; each gets its own answer."""
    async with conversation(pair.edge, "magi") as talk:
        client = await talk.register("web", NUMBER)
        tasks = [
            {"intent": f"task {n}", "context": script(calls("client__web__double", {"n": n}), SAY)} for n in range(4)
        ]
        run = await talk.say(calls("subagents", {"intent": "ask", "tasks": tasks}), SAY)
        opened = await client.dispatched(4)
        for call in reversed(opened):
            await client.answer(call, f"twice {call['arguments']['n']} is {2 * call['arguments']['n']}")
        end = await talk.end(run)
        assert end["type"] == "run_completed"
        said = talk.said()
        assert all(f"twice {n} is {2 * n}" in said for n in range(4))


async def test_code_mode_calls_a_client(pair):
    async with conversation(pair.edge, "magi") as talk:
        client = await talk.register("web", NUMBER)
        code = "return [1,2].map(n => tools.call('client__web__double', {n}))"
        mark, text = marked(calls("code_mode", {"intent": "double", "code": code}), SAY)
        async with client.serve(lambda _, given: f"twice {given['n']}"):
            assert (await talk.end(await talk.say(text)))["type"] == "run_completed"
        (result,) = pair.model.results(mark)
        assert "twice 1" in result
        assert "twice 2" in result


@pytest.mark.parametrize("decision", ["allow", "deny"])
async def test_an_approval_of_the_real_child(pair, decision: str):
    async with conversation(pair.edge, "careful") as talk:
        run = await talk.say(calls("bash", {"intent": "list", "command": f"echo {uuid.uuid4().hex}"}), SAY)
        asked = await talk.event("approval_requested")
        assert (asked["server"], asked["tool"]) == ("agent", "approval")
        assert asked["arguments"]["summary"]
        blocks = [block for event in talk.of("message_assistant") for block in event["message"]["content"]]
        assert asked["call_id"] in [block["data"].get("id") for block in blocks]
        resolved = await talk.done("POST", f"/approvals/{asked['call_id']}", {"decision": decision})
        assert (resolved["type"], resolved["decision"]) == ("approval_resolved", decision)
        end = await talk.end(run)
        assert end["type"] == ("run_completed" if decision == "allow" else "run_failed")
        assert talk.of("tool_result", call_id=asked["call_id"])
        again = await talk.ask("POST", f"/approvals/{asked['call_id']}", {"decision": decision})
        assert again.status_code == 409


async def test_a_child_that_is_killed_mid_call(pair):
    """Its call is run_gone, its run fails, and the next input goes on in the same child session."""
    async with conversation(pair.edge, "magi") as talk:
        client = await talk.register("web", NUMBER)
        before = set(pair.owner.children())
        run = await talk.say(calls("client__web__double", {"n": 1}), SAY)
        (call,) = await client.dispatched()
        (child,) = set(pair.owner.children()) - before
        os.kill(child, signal.SIGKILL)
        assert (await talk.end(run))["type"] == "run_failed"
        assert (await talk.event("client_tool_failed"))["reason"] == "run_gone"
        late = await client.post(call, "result", {"text": "2"})
        assert late.status_code == 409
        assert not alive(child)
        mark, text = marked({"text": "I am back."})
        assert (await talk.end(await talk.say(text)))["type"] == "run_completed"
        prompts = [str(message) for message in pair.model.requests(mark)[-1]["messages"]]
        assert any("client__web__double" in prompt for prompt in prompts), "the conversation was reopened"


async def test_a_registry_of_all_kinds_of_tools_is_taken_whole(pair):
    """More tools than the child may have, and schemas that it would refuse as they are."""
    odd = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        "type": "object",
        "properties": {
            "tree": {"$ref": "#/$defs/node"},
            "when": {"type": "string", "format": "date", "nullable": True},
        },
        "if": {"required": ["tree"]},
        "then": {"required": ["when"]},
        "unevaluatedProperties": False,
    }
    async with conversation(pair.edge, "magi") as talk:
        tools = [tool("odd-one", odd), *(tool(f"t{number}") for number in range(63))]
        client = await talk.register("web", *tools)
        await talk.register("second-page", tool("extra"))
        mark, text = marked(
            calls("client__tools"),
            calls("client__use", {"tool": "client__web__odd_one", "arguments": {"tree": {}, "when": "2026-01-01"}}),
            SAY,
        )
        async with client.serve(lambda name, _: f"called {name}"):
            assert (await talk.end(await talk.say(text)))["type"] == "run_completed"
        listed, used = pair.model.results(mark)
        assert used == "called odd-one"
        assert "client__second_page__extra" in listed
        offered = [name for name in pair.model.tools(mark) if name.startswith("client__")]
        assert len(offered) == 32
