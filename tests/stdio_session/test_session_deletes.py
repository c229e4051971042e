"""A session that ends while its child starts for a question. The fixture asserts that nothing is left of either."""

import asyncio
from pathlib import Path

import pytest

from gateway.model.enquiries import AskModels
from gateway.model.errors import Code, Refusal
from tests.doubles.agent_world import Talk, demo_agent, eventually, settling_world

START_S = 3.0


async def ask(talk: Talk) -> None:
    await talk.runner.enquire(AskModels())


@pytest.mark.parametrize("after_s", [0.0, START_S / 10])
async def test_a_question_to_a_session_that_ends_leaves_no_child(
    redis_url: str, tmp_path: Path, after_s: float
) -> None:
    slow = demo_agent(tmp_path, "slow", {"start_s": START_S})
    async with settling_world(redis_url, [demo_agent(tmp_path), slow]) as world:
        talk = await world.talk("slow")
        await talk.run("echo one")
        runner = talk.runner
        await runner._lineage.stop()
        asking = [asyncio.ensure_future(ask(talk)) for _ in range(2)]  # the second waits for the first
        await eventually(runner._turns.taken)
        await asyncio.sleep(after_s)
        await world.gateway.sessions.delete(talk.id)
        for outcome in await asyncio.gather(*asking, return_exceptions=True):
            assert isinstance(outcome, Refusal)
            assert outcome.code is Code.DRAINING
        await eventually(lambda: not world.gateway.capacity.taken)
        assert runner._lineage.current is None
