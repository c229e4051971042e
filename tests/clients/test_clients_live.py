"""Both client libraries against real nodes: calls, cuts, take-overs, ends. The test plays the session's owner."""

import asyncio
import json
from typing import Any

from gateway.bus.log import Log
from tests.clients.conftest import Scene
from tests.clients.driven import driven
from tests.doubles.socket_world import World
from tests.doubles.tcp_proxy import TcpProxy

WAIT_S = 20.0


async def log_of(scene: Scene) -> list[Any]:
    """The session's events."""
    entries = await Log(scene.node.store).after(scene.session_id, 0, 200)
    return [json.loads(entry.event) for entry in entries]


async def answer_of(scene: Scene, call_id: str) -> tuple[str, bool]:
    """The call's answer in the log, once it is there: text and whether it is an error."""
    async with asyncio.timeout(WAIT_S):
        while True:
            for event in await log_of(scene):
                if event["type"] == "tool_result" and event["call_id"] == call_id:
                    return event["content"][0]["data"]["text"], event["is_error"]
            await asyncio.sleep(0.02)


async def test_a_call_is_run_and_answered(scene: Scene) -> None:
    client_id = await scene.connect()
    call_id = await scene.dispatch(client_id, "echo")
    heard = await scene.client.hear("call", call_id=call_id)
    assert (heard["tool"], heard["args"], heard["attempt"]) == ("echo", {"row": 3}, 1)
    assert 0 < heard["remaining_ms"] <= 300_000
    assert await answer_of(scene, call_id) == ('{"row":3}', False)


async def test_errors_and_large_results_are_error_answers(scene: Scene) -> None:
    client_id = await scene.connect(tools=["large", "boom"])
    large = await answer_of(scene, await scene.dispatch(client_id, "large"))
    assert large == ("The tool's result is too large: at most 65536 characters.", True)
    text, failed = await answer_of(scene, await scene.dispatch(client_id, "boom"))
    assert failed
    assert text.startswith("The tool failed: ")
    assert text.endswith("on purpose")


async def test_a_changed_list_is_in_the_log_before_the_answer(scene: Scene) -> None:
    client_id = await scene.connect(tools=["grow"])
    call_id = await scene.dispatch(client_id, "grow")
    await answer_of(scene, call_id)
    log = await log_of(scene)
    types = [event["type"] for event in log]
    assert types.index("client_tools_updated") < types.index("tool_result")
    (updated,) = [event for event in log if event["type"] == "client_tools_updated"]
    assert [tool["name"] for tool in updated["tools"]] == ["grow", "grown"]


async def test_a_call_outlives_a_cut_and_runs_once(scene: Scene) -> None:
    async with TcpProxy(("127.0.0.1", scene.node.port)) as proxy:
        client_id = await scene.connect(proxy.port)
        call_id = await scene.dispatch(client_id, "hold")
        await scene.client.hear("call", call_id=call_id)
        proxy.cut()
        await scene.client.hear("state", state="waiting")
        await scene.client.do("finish", call_id=call_id, text="after the cut")
        await scene.client.hear("state", state="online")
        assert await answer_of(scene, call_id) == ("after the cut", False)
    types = [event["type"] for event in await log_of(scene)]
    assert types.count("client_registered") == 1
    assert types.count("tool_result") == 1
    assert scene.client.heard("call") == []


async def test_calls_of_the_cut_are_run_once_and_settled_ones_never(scene: Scene, bus_world: World) -> None:
    other = await bus_world.attached(scene.node, scene.session_id, scene.token)
    async with TcpProxy(("127.0.0.1", scene.node.port)) as proxy:
        client_id = await scene.connect(proxy.port)
        proxy.up.clear()
        proxy.down.clear()
        proxy.cut()
        await scene.client.hear("state", state="waiting")
        settled = await scene.dispatch(client_id, "echo")
        await other.ok("result", session_id=scene.session_id, client_id=client_id, call_id=settled, text="by hand")
        missed = await scene.dispatch(client_id, "echo")
        proxy.up.set()
        proxy.down.set()
        assert (await scene.client.hear("call"))["call_id"] == missed
        assert await answer_of(scene, missed) == ('{"row":3}', False)
        later = await scene.dispatch(client_id, "echo")
        assert (await scene.client.hear("call"))["call_id"] == later


async def test_a_node_that_goes_away_costs_no_call(scene: Scene, bus_world: World) -> None:
    other = await bus_world.node()
    async with TcpProxy(("127.0.0.1", scene.node.port)) as proxy:
        client_id = await scene.connect(proxy.port)
        call_id = await scene.dispatch(client_id, "hold")
        await scene.client.hear("call", call_id=call_id)
        proxy.target = ("127.0.0.1", other.port)
        await scene.node.sockets.drain()  # 1012
        await scene.client.hear("state", state="waiting")
        await scene.client.do("finish", call_id=call_id, text="from the other node")
        await scene.client.hear("state", state="online")
        assert await answer_of(scene, call_id) == ("from the other node", False)


async def test_a_newer_client_of_the_same_key_takes_the_place(scene: Scene) -> None:
    first = await scene.connect(tools=["hold", "hold_idempotent"])
    lost = await scene.dispatch(first, "hold")
    await scene.client.hear("call", call_id=lost)
    kept = await scene.node.dispatch(scene.session_id, scene.epoch, first, tool="hold_idempotent", idempotent=True)
    await scene.client.hear("call", call_id=kept)
    async with driven("python") as newer:
        there = Scene(scene.node, scene.session_id, scene.token, scene.epoch, newer)
        second = await there.connect(tools=["hold", "hold_idempotent"])
        assert second != first
        await scene.client.hear("state", state="yielded")
        await scene.client.hear("aborted", call_id=lost)
        again = await newer.hear("call")
        assert (again["call_id"], again["attempt"]) == (kept, 2)
        await newer.do("finish", call_id=kept, text="by the newer one")
        assert await answer_of(scene, kept) == ("by the newer one", False)
    assert scene.client.heard("error") in ([], [{"said": "error", "code": "taken_over"}])


async def test_a_registration_is_resumed_by_the_next_process(scene: Scene) -> None:
    await scene.client.do(
        "connect",
        url=f"http://127.0.0.1:{scene.node.port}",
        session=scene.session_id,
        token=scene.token,
        key="tab-1",
        ttl=60,
        tools=["hold"],
    )
    registration = await scene.client.hear("registration")
    await scene.client.hear("state", state="online")
    call_id = await scene.dispatch(registration["client_id"], "hold")
    await scene.client.hear("call", call_id=call_id)
    await scene.client.do("close", leave=False)
    await scene.client.hear("bye")
    async with driven("python") as next_one:
        there = Scene(scene.node, scene.session_id, scene.token, scene.epoch, next_one)
        registration.pop("said")
        await there.connect(tools=["hold"], registration=registration)
        assert (await next_one.hear("call"))["call_id"] == call_id
        await next_one.do("finish", call_id=call_id, text="resumed")
        assert await answer_of(scene, call_id) == ("resumed", False)


async def test_leaving_fails_open_calls_at_once(scene: Scene) -> None:
    client_id = await scene.connect()
    call_id = await scene.dispatch(client_id, "hold")
    await scene.client.hear("call", call_id=call_id)
    await scene.client.do("close", leave=True)
    await scene.client.hear("bye")
    types = [event["type"] for event in await log_of(scene)]
    assert types[-2:] == ["client_left", "client_tool_failed"] or "client_tool_failed" in types


async def test_a_wrong_token_is_final(scene: Scene) -> None:
    await scene.client.do(
        "connect",
        url=f"http://127.0.0.1:{scene.node.port}",
        session=scene.session_id,
        token="trs_wrong",
        key="tab-1",
        ttl=60,
        tools=[],
    )
    assert (await scene.client.hear("state", state="closed"))["code"] == "not_found"


async def test_what_is_said_is_taken_once(scene: Scene) -> None:
    async with TcpProxy(("127.0.0.1", scene.node.port)) as proxy:
        await scene.connect(proxy.port)
        proxy.down.clear()  # it comes through, and the answer does not
        await scene.client.do("send", text="hello", key="k1")

        async def queued() -> int:
            return [event["type"] for event in await log_of(scene)].count("run_queued")

        async with asyncio.timeout(WAIT_S):
            while True:
                if await queued():
                    break
                await asyncio.sleep(0.02)
        proxy.cut()
        proxy.down.set()
        assert (await scene.client.hear("sent"))["outcome"] == "new_run"
        assert await queued() == 1
