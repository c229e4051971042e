"""Repeats of a settled answer: no effect, and nothing grows by them (bridge 7; issue: 10,000 of them)."""

import asyncio
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.doubles.nodes import Node, demo_agent, shared_server
from tests.doubles.nodes_session import Conversation, calls, conversation, tool

WARM = 500  # what is made once is made by then
GROWTH_KIB = 4 * 1024
AT_ONCE = 20


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with shared_server() as url:
        yield url


@pytest.fixture(scope="module")
def fast(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that counts no requests."""
    folder = tmp_path_factory.mktemp("repeats")
    limits = {"requests_per_second": 100_000, "request_burst": 100_000}
    with Node(folder, redis=server, agents=[demo_agent(folder / "demo")], limits=limits) as node:
        yield node
        node.assert_clean()


def resident_kib(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


async def repeat(talk: Conversation, path: str, count: int) -> set[int]:
    """The same answer again and again, each with a key of its own, as the SDK sends it: the statuses."""
    left = iter(range(count))

    async def one_after_another() -> set[int]:
        found: set[int] = set()
        for number in left:
            text = "done" if number % 2 else "something else"
            answer = await talk.ask("POST", path, {"text": text}, **{"Idempotency-Key": str(uuid.uuid4())})
            assert answer.status_code == (204 if number % 2 else 409), answer.text
            found.add(answer.status_code)
        return found

    return set().union(*await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE))))


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.nightly)])
async def test_repeats_of_a_settled_answer_change_nothing(fast: Node, server: str, count: int) -> None:
    bus = redis.Redis.from_url(server)
    async with conversation(fast) as talk:
        client = await talk.register("web", tool("look"))
        run_id = await talk.say(calls("client__web__look"), {"text": "It said: {{results}}"})
        (call,) = await client.dispatched()
        await client.answer(call, "done")
        await talk.end(run_id)
        path = f"/clients/{client.id}/calls/{call['call_id']}/result"
        await repeat(talk, path, WARM)
        events, keys, before = len(talk.events), bus.dbsize(), resident_kib(fast.pid)
        memory = bus.info("memory")["used_memory"]
        assert await repeat(talk, path, count) == {204, 409}
        grown = resident_kib(fast.pid) - before
        assert grown < GROWTH_KIB, f"{grown} KiB more after {count} repeats"
        assert bus.dbsize() == keys
        assert bus.info("memory")["used_memory"] - memory < 512 * 1024
        assert await talk.run("echo what happened?") == "what happened?"
        new = [event["type"] for event in talk.events[events:]]
        assert new == ["run_queued", "run_started", "message_user", "message_assistant", "run_completed"]
    bus.close()
