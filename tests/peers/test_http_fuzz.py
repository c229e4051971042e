"""schemathesis against a real node with the demo agent, by the description that it serves itself: no 5xx, no answer
that is not described, nothing that is open without a credential, every valid request accepted and every other refused.

What a description cannot tell (ids and cursors that were handed out, models that there are) is put into valid requests
by ``tests.doubles.fuzz_hooks``, so single requests are held to all checks. The stream has no end, so it is left to its
own tests. In chains of requests ``negative_data_rejection`` is left out: it counts a header as sent that the fuzzer's
own client cannot send and drops. The coverage phase goes without ``positive_data_acceptance`` too: its valid values at
the edges name things that there are not.
"""

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.doubles.nodes import API_KEY, ROOT, Node, demo_agent
from tests.doubles.nodes_session import agent_id, tool

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(importlib.util.find_spec("schemathesis") is None, reason="schemathesis is not here"),
]

NEGATIVE = "negative_data_rejection"
RUN_S = 600
NIGHTLY_S = 600
LONG_S = 1_500


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("fuzz")
    limits = {
        "requests_per_second": 100_000,
        "request_burst": 100_000,
        "auth_failures_per_minute": 100_000,
        "max_sessions": 100_000,
    }
    agents = [demo_agent(folder / "demo", idle_timeout_s=2)]
    with Node(folder / "node", agents=agents, limits=limits) as running:
        yield running
        running.assert_clean()


def ready(node: Node) -> dict[str, str]:
    """A session with a client that every request may reach."""
    with httpx.Client(base_url=node.url, headers={"Authorization": f"Bearer {API_KEY}"}, timeout=30) as http:
        session = http.post("/v1/sessions", json={"agent_id": agent_id("demo")}).json()["id"]
        body = {"name": "web", "lifetime": {"type": "never"}, "tools": [tool("look")]}
        client = http.post(f"/v1/sessions/{session}/clients", json=body).json()["id"]
    return {"FUZZ_SESSION": session, "FUZZ_CLIENT": client}


def fuzz(
    node: Node,
    folder: Path,
    *,
    phases: str,
    examples: int,
    seed: int,
    known: dict[str, str],
    leave_out: str = "",
    within_s: float = RUN_S,
) -> None:
    """One run; its report is the failure."""
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        *("run", f"{node.url}/-/openapi.json", "--header", f"Authorization: Bearer {API_KEY}"),
        *("--checks", "all", *(("--exclude-checks", leave_out) if leave_out else ())),
        *("--exclude-operation-id", "stream_session_events"),
        *("--phases", phases, "--max-examples", str(examples), "--seed", str(seed)),
        *("--continue-on-failure", "--no-shrink", "--no-color", "--warnings", "off"),
        *("--request-timeout", "40", "--suppress-health-check", "all"),
    ]
    ran = subprocess.run(
        command,
        cwd=folder,
        env={
            **os.environ,
            **known,
            "FUZZ_AGENT": agent_id("demo"),
            "PYTHONPATH": str(ROOT),
            "SCHEMATHESIS_HOOKS": "tests.doubles.fuzz_hooks",
        },
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-12_000:] + ran.stderr[-2_000:]
    cases = re.search(r"(\d+) generated", ran.stdout)
    assert cases is not None, ran.stdout
    assert int(cases[1]) > examples, "it asked hardly anything"


def test_single_requests(node: Node, tmp_path: Path):
    fuzz(node, tmp_path, phases="fuzzing", examples=8, seed=1, known=ready(node))


def test_requests_that_follow_each_other(node: Node, tmp_path: Path):
    fuzz(node, tmp_path, phases="stateful", examples=10, seed=1, known={}, leave_out=NEGATIVE)


@pytest.mark.nightly
def test_ten_minutes_of_both(node: Node, tmp_path: Path):
    end, seed = time.monotonic() + NIGHTLY_S, int(time.time())
    while time.monotonic() < end:
        seed += 1
        fuzz(node, tmp_path, phases="fuzzing", examples=20, seed=seed, known=ready(node), within_s=LONG_S)
        fuzz(node, tmp_path, phases="stateful", examples=20, seed=seed, known={}, leave_out=NEGATIVE, within_s=LONG_S)
        edges = f"{NEGATIVE},positive_data_acceptance"
        fuzz(
            node,
            tmp_path,
            phases="coverage",
            examples=2,
            seed=seed,
            known=ready(node),
            leave_out=edges,
            within_s=LONG_S,
        )
