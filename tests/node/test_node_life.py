"""A whole node's start, its end, and what it finds again (issue of the embedded server, bridge 9 and 10)."""

import signal
import socket
from pathlib import Path

import httpx

from tests.doubles.nodes import Node, alive, children_of, demo_agent, wait_until
from tests.doubles.nodes_session import Conversation, calls, conversation, follow, tool

ROW = tool("highlight_row", {"type": "object", "properties": {"row_id": {"type": "string"}}, "required": ["row_id"]})
HIGHLIGHT = calls("client__web__highlight_row", {"row_id": "3"})
SAY = {"text": "It said: {{results}}"}


def one(folder: Path, **options: object) -> Node:
    return Node(folder, agents=[demo_agent(folder / "agent")], **options)  # type: ignore[arg-type]


async def _first_life(node: Node) -> tuple[str, int, str]:
    async with conversation(node) as talk:
        client = await talk.register("web", ROW)
        async with client.serve(lambda _, given: f"row {given['row_id']}"):
            await talk.run(HIGHLIGHT, SAY)
        return talk.id, talk.stream.position, client.id


async def _second_life(talk: Conversation, client_id: str) -> None:
    listed = await talk.done("GET", "/clients")
    assert [(item["id"], item["name"]) for item in listed["items"]] == [(client_id, "web")]
    run = await talk.say(HIGHLIGHT, SAY)
    call = await talk.event("client_tool_dispatched", client_id=client_id)
    answer = await talk.ask("POST", f"/clients/{client_id}/calls/{call['call_id']}/result", {"text": "again"})
    assert answer.status_code == 204
    assert (await talk.end(run))["type"] == "run_completed"
    assert "again" in talk.said()


async def test_a_restart_finds_everything_again(tmp_path: Path):
    node = one(tmp_path)
    with node:
        session_id, position, client_id = await _first_life(node)
        names = (tmp_path / "state/node_name").read_text()
        async with node.http() as http:
            before = (await http.get(f"/v1/sessions/{session_id}/events?order=asc&limit=200")).json()["items"]
        assert node.stop() == 0
        node.assert_clean()
        node.start()
        assert (tmp_path / "state/node_name").read_text() == names
        async with node.http() as http:
            after = (await http.get(f"/v1/sessions/{session_id}/events?order=asc&limit=200")).json()["items"]
            assert after[: len(before)] == before
            async with follow(http, session_id, after=position) as talk:
                await _second_life(talk, client_id)
                assert not talk.of("run_failed", "error")
        assert node.stop() == 0
        node.assert_clean()


async def test_a_killed_node_is_taken_up_again(tmp_path: Path):
    """Its active run fails as owner_gone, its open call as run_gone; inputs that waited run."""
    node = one(tmp_path)
    with node:
        session_id, _, client_id = await _first_life(node)
        async with node.http() as http, follow(http, session_id, after=0) as talk:
            run = await talk.say(HIGHLIGHT, SAY)
            call = await talk.event("client_tool_dispatched", client_id=client_id, since=12)
            waiting = await talk.say({"text": "I waited."})
            await talk.event("run_queued", run_id=waiting)
            position = talk.stream.position
            node.kill()
        node.start()
        async with node.http() as http, follow(http, session_id, after=position) as talk:
            end = await talk.end(run)
            assert end["type"] == "run_failed"
            assert end["error"].startswith("owner_gone: ")
            failed = await talk.event("client_tool_failed", call_id=call["call_id"])
            assert failed["reason"] == "run_gone"
            late = await talk.ask("POST", f"/clients/{client_id}/calls/{call['call_id']}/result", {"text": "late"})
            assert late.status_code == 409
            assert (await talk.end(waiting))["type"] == "run_completed"
            await _second_life(talk, client_id)
        assert node.stop() == 0


async def test_sigterm_drains_and_leaves_nothing(tmp_path: Path):
    with one(tmp_path) as node:
        async with conversation(node) as talk:
            await talk.run("echo hello")
            under = children_of(node.pid)
            assert len(node.children()) == 1
            assert node.stop() == 0
            await talk.stream.ended.wait()
        assert not any(alive(pid) for pid in under)
        assert "Traceback" not in node.everything()


async def test_a_run_goes_on_while_the_node_drains(tmp_path: Path):
    """A run that ends within drain_s is not cut short by SIGTERM."""
    node = one(tmp_path, limits={"drain_s": 20})
    with node:
        async with conversation(node) as talk:
            run = await talk.say({"sleep_s": 1.5}, {"text": "done in time"})
            await talk.event("message_user")
            session_id = talk.id
            node._running.send_signal(signal.SIGTERM)
            assert node.wait() == 0
        node.start()
        async with node.http() as http, follow(http, session_id) as talk:
            assert (await talk.end(run))["type"] == "run_completed"


def _refused(node: Node) -> str:
    """The one line with which a node that cannot start ends."""
    node.launch()
    assert node.wait() == 1
    lines = [line for line in node.errors if "note:" not in line and not line.startswith("{")]
    assert len(lines) == 1, lines
    assert "Traceback" not in node.everything()
    return lines[0]


def test_a_redis_that_is_not_there(tmp_path: Path):
    node = one(tmp_path, redis=f"unix://{tmp_path}/nobody")
    try:
        assert _refused(node).startswith("toolrelay: redis.url: ")
    finally:
        node.close()


def test_a_redis_port_that_nobody_serves(tmp_path: Path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        node = one(tmp_path, redis=f"redis://127.0.0.1:{closed.getsockname()[1]}")
        try:
            assert _refused(node).startswith("toolrelay: redis.url: ")
        finally:
            node.close()


def test_an_agents_command_that_does_not_exist(tmp_path: Path):
    agent = demo_agent(tmp_path)
    broken = type(agent)("demo", ("/nowhere/agent", "serve"), agent.cwd)
    node = Node(tmp_path, agents=[broken])
    try:
        line = _refused(node)
        assert "agent demo" in line
        assert "/nowhere/agent" in line
    finally:
        node.close()


def test_a_port_that_is_taken(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = one(tmp_path, server={"port": port})
        try:
            line = _refused(node)
            assert f"127.0.0.1:{port}" in line
        finally:
            node.close()


def test_a_state_folder_that_another_node_holds(tmp_path: Path):
    with one(tmp_path) as node:
        second = one(tmp_path)
        try:
            line = _refused(second)
            assert str(node.pid) in line
        finally:
            second.close()
        assert httpx.get(f"{node.url}/readyz").status_code == 200


async def test_capacity_goes_to_whoever_has_work(tmp_path: Path):
    """With one place the longest idle child gives its up; a run that is under way keeps it."""
    node = one(tmp_path, limits={"max_children": 1, "start_wait_s": 1})
    with node:
        async with conversation(node) as first, conversation(node) as second:
            assert await first.run("echo one") == "one"
            (child,) = node.children()
            assert await second.run("echo two") == "two"
            assert not alive(child)
            assert await first.run("echo three") == "three"
            assert len(node.children()) == 1
            slow = await first.say({"sleep_s": 30}, {"text": "slow"})
            await first.event("run_started", run_id=slow)
            await first.event("message_user", since=first.of("run_started", run_id=slow)[0]["seq"])
            end = await second.end(await second.say("echo four"))
            assert end["type"] == "run_failed"
            assert end["error"].startswith("no_capacity: ")
            await first.done("POST", "/cancel")
            assert await second.run("echo five") == "five"
        assert node.stop() == 0
        node.assert_clean()


async def test_a_session_goes_on_in_its_own_child_session(tmp_path: Path):
    """Each generation opens the session of the one before: the demo agent keeps its history by it."""
    with one(tmp_path) as node:
        async with conversation(node) as talk:
            await talk.run("echo one")
            sessions = _child_sessions(tmp_path)
            await talk.register("web", ROW)
            await talk.run("echo two")
            await talk.register("other", ROW)
            await talk.run("echo three")
            assert _child_sessions(tmp_path) == sessions
            assert not talk.of("error")
            (before,) = node.children()
            node_children = wait_until(node.children, 5, "the child")
            assert node_children == [before]


def _child_sessions(folder: Path) -> list[str]:
    files = [path for path in (folder / "agent/home").rglob("*") if path.is_file()]
    return sorted(path.name for path in files if "lock" not in path.name)
