"""The node that runs a session is killed, or stands still and comes back (bridge 9, 10)."""

import asyncio
import os
import signal
import time

from tests.doubles.nodes import Node, demo_agent
from tests.doubles.nodes_session import ENDS, Conversation, calls, conversation, follow, tool
from tests.doubles.valkey_servers import Server
from tests.faults.conftest import Fleet, assert_lifetimes

TOOL = tool("look")
CALL = calls("client__web__look")
SAY = {"text": "It said: {{results}}"}
SETTLED_S = 5.0
SHARED_RUN_S = 25.0
HOME_WAIT_S = 15.0


async def _open_call(at: Conversation) -> tuple[str, str]:
    """A run with an open call at the node that is asked: it becomes the owner."""
    client = await at.register("web", TOOL)
    run_id = await at.say(CALL, SAY)
    (call,) = await client.dispatched()
    return run_id, call["call_id"]


async def _pair(fleet: Fleet, redis: Server) -> list[Node]:
    storage = fleet.folder / "common"
    agents = [demo_agent(fleet.folder / "home"), demo_agent(storage, "shared", storage="shared")]
    one = {"agents": agents, "limits": {"home_wait_s": HOME_WAIT_S}}
    return await fleet.nodes(redis.url, a=one, b=one)


def _terminal_once(talk: Conversation) -> None:
    """One end for each call and each run."""
    for call in talk.of("client_tool_dispatched"):
        assert len(talk.of("tool_result", call_id=call["call_id"])) == 1
    for run in talk.of("run_queued"):
        assert len(talk.of(*ENDS, run_id=run["run_id"])) == 1


async def test_sigkill_of_an_owner(fleet: Fleet, redis: Server):
    a, b = await _pair(fleet, redis)
    async with conversation(a, "shared") as begun, conversation(a) as kept, b.http() as http:
        async with follow(http, begun.id) as shared, follow(http, kept.id) as home:
            opened = [(shared, *await _open_call(begun)), (home, *await _open_call(kept))]
            assert (len(a.children()), len(b.children())) == (2, 0)
            await asyncio.to_thread(a.kill)
            killed = time.monotonic()
            for talk, run_id, call_id in opened:
                left = SETTLED_S - (time.monotonic() - killed)
                failed = await talk.event("client_tool_failed", call_id=call_id, within=left)
                assert (failed["reason"], failed["outcome"]) == ("run_gone", "not_started")
                ended = await talk.end(run_id, within=1)
                assert ended["type"] == "run_failed"
                assert ended["error"].startswith("owner_gone: ")

            asked = time.monotonic()
            waits = await home.say("echo too late")
            follows = await shared.say("echo on the other node")
            assert time.monotonic() - asked < 1, "an input is taken at once"
            end = await shared.end(follows, within=SHARED_RUN_S - (time.monotonic() - killed))
            assert end["type"] == "run_completed"
            assert shared.said() == "on the other node"

            end = await home.end(waits, within=HOME_WAIT_S + 3)
            assert end["type"] == "run_failed"
            assert end["error"].startswith("home_gone: ")

            in_time = await home.say("echo back")
            await asyncio.to_thread(a.start)
            assert (await home.end(in_time))["type"] == "run_completed"
            assert home.said() == "back"
            for talk in (shared, home):
                _terminal_once(talk)
    await assert_lifetimes(redis.url)


async def test_an_owner_that_stood_still_for_20_s_acts_on_nothing_that_it_lost(fleet: Fleet, redis: Server):
    a, b = await _pair(fleet, redis)
    async with conversation(a, "shared") as begun, b.http() as http, follow(http, begun.id) as talk:
        client = await talk.register("web", TOOL)
        run_id = await begun.say(CALL, {"text": "what the lost run says"})
        (lost,) = await client.dispatched()
        children = a.children()
        assert len(children) == 1
        os.kill(a.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            await talk.event("client_tool_failed", call_id=lost["call_id"], within=SETTLED_S)
            await talk.end(run_id, within=1)
            # The other node has the session, and waits for the child that the old owner still keeps.
            second = await talk.say(CALL, SAY)
            assert (await client.post(lost, "result", {"text": "late"})).status_code == 409
            await asyncio.sleep(20 - (time.monotonic() - stopped))
            assert not talk.of(*ENDS, run_id=second)
        finally:
            os.kill(a.pid, signal.SIGCONT)

        _, fresh = await client.dispatched(2, within=10)

        async def ready() -> None:
            async with a.http() as own:
                while (await own.get("/readyz")).status_code != 200 or a.children():
                    await asyncio.sleep(0.1)

        await asyncio.wait_for(ready(), 15)
        await client.answer(fresh, "seen")
        assert (await talk.end(second))["type"] == "run_completed"
        assert "seen" in talk.said()
        assert "lost run" not in str(talk.of("message_assistant"))
        _terminal_once(talk)
        async with a.http() as own, follow(own, begun.id) as again:
            await again.run("echo through the old owner's door")
            assert again.said() == "through the old owner's door"
            assert again.events[: len(talk.events)] == talk.events
        assert "Traceback" not in a.everything()
