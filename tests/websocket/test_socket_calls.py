"""A call over a socket: attach, register, dispatch, ack, answer; lists, leaving, inputs."""

import asyncio

from tests.doubles.socket_world import NEVER, TOOL, TTL, World


async def test_attach_register_ack_and_answer(bus_world: World) -> None:
    node = await bus_world.node()
    session_id, token = await node.session()
    epoch = await node.own(session_id)
    client = await bus_world.client(node)
    attached = await client.ok("attach", session_id=session_id, token=token)
    assert attached == {"seq": 1, "status": "idle"}
    registered = await client.ok("register", session_id=session_id, name="web", lifetime=TTL, tools=[TOOL])
    assert registered["name"] == "web"
    assert registered["expires_at"] is None
    assert registered["resume_key"].startswith("trr_")
    joined = await client.event("client_registered")
    assert joined["seq"] == 2
    assert joined["client_id"] == registered["client_id"]
    assert "trr_" not in str(client.pushes)
    call_id = await node.dispatch(session_id, epoch, registered["client_id"])
    dispatched = await client.event("client_tool_dispatched")
    assert dispatched["call_id"] == call_id
    assert dispatched["arguments"] == {"row": 3}
    acked = await client.ok("ack", client_id=registered["client_id"], call_id=call_id)
    assert acked["type"] == "client_tool_acked"
    assert (await client.event("client_tool_acked")) == acked
    assert await client.ok("result", client_id=registered["client_id"], call_id=call_id, text="done") == {}
    result = await client.event("tool_result")
    assert result["content"] == [{"type": "text", "data": {"text": "done"}}]
    again = await client.call("result", client_id=registered["client_id"], call_id=call_id, text="done")
    assert "ok" in again
    other = await client.error("result", client_id=registered["client_id"], call_id=call_id, text="other")
    assert other["code"] == "conflict"
    assert await client.ok("leave", client_id=registered["client_id"]) == {}
    assert (await client.event("client_left"))["reason"] == "departed"


async def test_a_list_sent_before_an_answer_is_there_before_it(bus_world: World) -> None:
    node = await bus_world.node()
    session_id, token = await node.session()
    epoch = await node.own(session_id)
    client = await bus_world.attached(node, session_id, token)
    mine = await client.ok("register", session_id=session_id, name="web", lifetime=NEVER, tools=[TOOL])
    ids = [await node.dispatch(session_id, epoch, mine["client_id"]) for _ in range(8)]
    for number, call_id in enumerate(ids):
        tool = {**TOOL, "name": f"t{number}"}
        await client.send("tools", client_id=mine["client_id"], tools=[tool])
        await client.send("result", client_id=mine["client_id"], call_id=call_id, text=str(number))
    order: list[str] = []
    while len(order) < 16:
        event = (await client.push("event"))["event"]
        if event["type"] in ("client_tools_updated", "tool_result"):
            order.append(event["type"])
    assert order == ["client_tools_updated", "tool_result"] * 8


async def test_input_and_cancel(bus_world: World) -> None:
    node = await bus_world.node()
    session_id, token = await node.session()
    client = await bus_world.attached(node, session_id, token)
    first = await client.ok("input", session_id=session_id, text="hello", idempotency_key="k")
    assert first["outcome"] == "new_run"
    assert await client.ok("input", session_id=session_id, text="hello", idempotency_key="k") == first
    assert (await client.error("input", session_id=session_id, text="x", idempotency_key="k"))["code"] == "conflict"
    assert (await client.error("input", session_id=session_id, text="  "))["code"] == "invalid_request"
    assert await client.ok("cancel", session_id=session_id) == {"run_id": first["run_id"]}
    assert await client.ok("cancel", session_id=session_id) == {"run_id": None}
    assert (await client.event("run_cancelled"))["run_id"] == first["run_id"]


async def test_everything_since_a_place_then_live(bus_world: World) -> None:
    node = await bus_world.node()
    session_id, token = await node.session()
    epoch = await node.own(session_id)
    for number in range(600):
        await node.say(session_id, epoch, f"message {number}")
    client = await bus_world.attached(node, session_id, token, after_seq=0)
    live = asyncio.ensure_future(node.say(session_id, epoch, "live"))
    seqs = [(await client.push("event"))["event"]["seq"] for _ in range(602)]
    await live
    assert seqs == list(range(1, 603))
