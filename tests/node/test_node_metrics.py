"""``/metrics`` of a whole node: each metric that a node's work moves has moved, and its own port serves them alone."""

import re
import socket
from pathlib import Path

import httpx

from tests.doubles.nodes import API_KEY, Node, demo_agent
from tests.doubles.nodes_session import calls, conversation, tool

Samples = dict[str, float]
HEADERS = {"authorization": f"Bearer {API_KEY}"}


def read(text: str) -> Samples:
    """The samples of an exposition by name and labels."""
    rows = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


async def scraped(node: Node) -> Samples:
    async with node.http() as http:
        return read((await http.get("/metrics")).text)


async def test_a_node_counts_what_it_does(tmp_path: Path):
    with Node(tmp_path, agents=[demo_agent(tmp_path / "agent")]) as node:
        async with conversation(node) as talk:
            client = await talk.register("web", tool("look"), tool("slow", timeout_ms=1000))
            run = await talk.say(calls("client__web__look", {}), {"text": "{{results}}"})
            call = (await client.dispatched())[0]
            during = await scraped(node)
            assert during["toolrelay_calls_open"] == 1
            assert during['toolrelay_children{state="running"}'] == 1
            assert (await client.post(call, "result", {"text": 3})).status_code == 400
            await client.answer(call, "password=hunter2hunter2")
            await talk.end(run)
            await talk.end(await talk.say(calls("client__web__slow", {}), {"text": "so be it"}))
        after = await scraped(node)
        assert after["toolrelay_ready"] == after["toolrelay_bus_connected"] == 1
        assert any(name.startswith("toolrelay_build_info{version=") for name in after)
        assert after['toolrelay_children{state="running"}'] == 0
        assert after['toolrelay_children{state="ready"}'] == 1
        assert after["toolrelay_child_starts_total"] >= 1
        assert after["toolrelay_calls_open"] == 0
        assert after['toolrelay_calls_total{outcome="done",reason="answered"}'] == 1
        assert after['toolrelay_calls_total{outcome="not_started",reason="ack_timeout"}'] == 1
        assert after["toolrelay_call_seconds_count"] == 2
        assert after['toolrelay_answers_refused_total{reason="invalid_request"}'] == 1
        assert after["toolrelay_bus_seconds_count"] >= 1
        assert after["toolrelay_bus_reconnects_total"] == 0
        assert sum(value for name, value in after.items() if name.startswith("toolrelay_redactions_total")) >= 1
        assert sum(value for name, value in after.items() if name.startswith("toolrelay_requests_total")) > 5


async def test_metrics_have_a_port_of_their_own(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Node(tmp_path, agents=[demo_agent(tmp_path / "agent")], server={"metrics_port": port}) as node:
        async with node.http() as http:
            assert (await http.get("/metrics")).status_code == 404
            assert (await http.get("/readyz")).status_code == 200
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as own:
            answer = await own.get("/metrics")
            assert answer.status_code == 200
            assert re.match(r"text/plain; version=0\.0\.4", answer.headers["content-type"])
            assert read(answer.text)["toolrelay_ready"] == 1
            for path in ("/v1/agents", "/readyz", "/"):
                assert (await own.get(path, headers=HEADERS)).status_code == 404
        assert node.stop() == 0
        node.assert_clean()


def test_a_taken_metrics_port_is_one_clear_line(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = Node(tmp_path, agents=[demo_agent(tmp_path / "agent")], server={"metrics_port": port})
        node.launch()
        assert node.wait() == 1
    assert f"toolrelay: cannot listen on 127.0.0.1:{port}: " in node.everything()
    assert "Traceback" not in node.everything()


async def test_the_operator_key_reaches_every_agent(tmp_path: Path):
    key = "tro-test-key-of-the-operator"
    node = Node(tmp_path, agents=[demo_agent(tmp_path / "agent")])
    node.config.write_text(node.config.read_text().replace("[auth]\n", f'[auth]\noperator_key = "{key}"\n'))
    with node:
        async with node.http(Authorization=f"Bearer {key}") as http:
            assert [item["name"] for item in (await http.get("/v1/agents")).json()["items"]] == ["demo"]
        async with node.http(Authorization=f"Bearer {key}x") as http:
            assert (await http.get("/v1/agents")).status_code == 401
