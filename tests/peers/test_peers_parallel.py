"""Sixteen calls of one child at once, from a node to a client on another: each answer goes to its own call."""

import asyncio
import json
import random

import pytest

from tests.doubles.nodes_session import calls, conversation, tool

pytestmark = pytest.mark.peers


async def test_sixteen_calls_open_at_once(pair):
    number = tool("double", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    async with conversation(pair.edge) as talk:
        client = await talk.register("web", number)
        step = calls("client__web__double", *({"n": n} for n in range(16)), parallel=True)
        run = await talk.say(step, {"text": "{{results}}"})
        opened = await client.dispatched(16)
        assert len({call["call_id"] for call in opened}) == 16
        assert not talk.of("tool_result")
        random.Random(7).shuffle(opened)
        await asyncio.gather(*(client.answer(call, f"{2 * call['arguments']['n']}") for call in opened))
        assert (await talk.end(run))["type"] == "run_completed"
        assert json.loads(talk.said()) == [f"{2 * n}" for n in range(16)]
        by_call = {event["call_id"]: event["content"][0]["data"]["text"] for event in talk.of("tool_result")}
        assert by_call == {call["call_id"]: f"{2 * call['arguments']['n']}" for call in opened}
