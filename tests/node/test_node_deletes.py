"""Sessions that are deleted while they are in use, at the node that runs them and at another: no node has a fault to
report, and the agents end."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.doubles.nodes import Node, demo_agent, shared_server, wait_until
from tests.doubles.nodes_session import Conversation, calls, conversation, tool

ROUNDS = 5
AT_ONCE = 4
MANY = [{"text": f"Part {number}. " * 20} for number in range(3)]


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    """The node that runs the sessions, and one that runs none."""
    folder = tmp_path_factory.mktemp("deletes")
    limits = {"requests_per_second": 100_000, "request_burst": 100_000}
    agents = [demo_agent(folder / "demo")]
    with (
        shared_server() as url,
        Node(folder / "one", redis=url, agents=agents, limits=limits) as one,
        Node(folder / "two", redis=url, roles=["edge"], agents=agents, limits=limits) as two,
    ):
        yield one, two
        one.assert_clean()
        two.assert_clean()


async def in_use(talk: Conversation, moment: int) -> None:
    """A run is active at one moment or another of its life, with calls that are open; inputs wait behind it."""
    client = await talk.register("web", tool("look"))
    await talk.say(calls("client__web__look", *({"n": number} for number in range(4)), parallel=True), *MANY)
    for text in ("next", "last"):
        await talk.say(f"echo {text}")
    match moment % 4:
        case 0:
            await talk.event("run_started")
        case 1:
            await client.dispatched(4)
        case 2:
            await client.answer((await client.dispatched(1))[0], "done")
        case _:
            for call in (await client.dispatched(4))[:4]:
                await client.answer(call, "done")


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_sessions_in_use_are_deleted(pair: tuple[Node, Node], elsewhere: bool) -> None:
    one, two = pair
    async with (two if elsewhere else one).http() as http:

        async def made_and_deleted(moment: int) -> None:
            async with conversation(one) as talk:
                await in_use(talk, moment)
                answer = await http.delete(talk.path)
                assert answer.status_code == 204, answer.text
                assert (await http.get(talk.path)).status_code == 404

        for _ in range(ROUNDS):
            await asyncio.gather(*map(made_and_deleted, range(AT_ONCE)))
    await asyncio.to_thread(wait_until, lambda: not one.children(), 30, "the end of the agents")
