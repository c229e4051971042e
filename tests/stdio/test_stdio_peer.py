"""The real child: what the machine and the process layer promise holds with it too (stdio protocol, Seen)."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from adapters.stdio.child import Child, ChildRefusedError, Exited, spawn
from adapters.stdio.events import EndOfOutput, LostRequest, Noise, Response
from adapters.stdio.frames import (
    Activity,
    InputPersisted,
    MessageDelta,
    MessageReconcile,
    RunFinished,
    ToolCall,
    ToolCancel,
    ToolCard,
)
from adapters.stdio.launch import LaunchSpec
from adapters.stdio.messages import ClosedMessage, RunMessages
from adapters.stdio.reaper import Reaper
from adapters.stdio.reaper_process import session_members
from adapters.stdio.requests import ToolDescriptor
from adapters.stdio.results import Admitted, Attached, HistoryPage, Initialized, ResultAccepted
from gateway.model.clean import DiagnosticText, ModelJson, ModelText
from gateway.model.redaction import ours_for_model, ours_for_model_json
from tests.doubles.python_child import Listener
from tests.doubles.scripted_model import scripted_model, write_home

pytestmark = pytest.mark.peers

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
BINARY = CACHE / "toolrelay-peers/magi-code-0.104.0/bin/magi-code"
TOOL = ToolDescriptor(
    "client__page__read",
    ours_for_model("Reads a row."),
    ours_for_model_json('{"type":"object","properties":{"row":{"type":"integer"}}}'),
)
CALL = {"calls": [{"name": TOOL.name, "arguments": {"row": 42}}]}
SAY = {"text": "It said: {{results}}"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if not BINARY.exists():
        pytest.skip("magi-code 0.104.0 is not in the peers' cache")
    home = tmp_path_factory.mktemp("home")
    with scripted_model() as port:
        yield {**write_home(home / "magi", port), "HOME": str(home)}


class Agent:
    """One real child with its session, and a run of it."""

    def __init__(self, child: Child, heard: Listener, session: str) -> None:
        self.child, self.heard, self.session, self.run = child, heard, session, ""

    async def turn(self, *steps: object) -> None:
        prompt = ModelText(json.dumps({"steps": steps}))
        admitted = await self.child.request(self.child.protocol.turn_start(self.session, prompt), 10)
        assert isinstance(admitted, Admitted)
        self.run = admitted.run_id

    async def answer(self, call: ToolCall, text: str, structured: bytes | None = None) -> None:
        request = self.child.protocol.tool_result(
            call.call_id,
            status="success",
            text=ModelText(text),
            structured=None if structured is None else ModelJson(structured),
        )
        assert isinstance(await self.child.request(request, 10), ResultAccepted)

    def messages(self) -> list[ClosedMessage]:
        messages, closed = RunMessages(), list[ClosedMessage]()
        for event in self.heard.events:
            match event:
                case MessageDelta():
                    messages.delta(event)
                case MessageReconcile():
                    messages.reconcile(event)
                case Activity() | ToolCall():
                    closed += messages.close()
                case RunFinished():
                    closed += messages.finish()
                    assert messages.final
                    assert messages.incomplete == ()
                case _:
                    pass
        return closed


@pytest.fixture
async def launch(tmp_path: Path, environment: dict[str, str]) -> AsyncIterator[object]:
    reaper = Reaper()
    async with AsyncExitStack() as stack:
        stack.callback(reaper.close)

        async def begin(*, session: str | None = None, cards: bool = False) -> Agent:
            heard = Listener()
            spec = LaunchSpec((str(BINARY), "serve", "--stdio"), tmp_path, environment)
            child = await spawn(spec, heard, reaper=reaper)
            stack.push_async_callback(child.stop)
            ready = await child.request(child.protocol.initialize([TOOL], cards=cards), 10)
            assert isinstance(ready, Initialized)
            make = child.protocol.session_create() if session is None else child.protocol.session_open(session)
            attached = await child.request(make, 10)
            assert isinstance(attached, Attached)
            return Agent(child, heard, attached.session_id)

        yield begin


async def test_a_call_goes_round(launch):
    agent = await launch()
    await agent.turn({"text": "Let me look.", **CALL}, SAY)
    call = await agent.heard.first(ToolCall)
    assert json.loads(bytes(call.arguments)) == {"row": 42}
    assert call.timeout_ms == 300_000
    await agent.answer(call, "row\u2028é\u0001", b'{"cells":[1,"two"]}')
    finished = await agent.heard.first(RunFinished)
    assert (finished.outcome, finished.persistence, finished.error_code) == ("completed", "durable", None)
    first, last = agent.messages()
    assert first.text == "Let me look."
    assert "row\u2028é" in json.loads(last.text.removeprefix("It said: "))[0]
    history = await agent.child.request(agent.child.protocol.history_page(agent.session, finished.revision), 10)
    assert isinstance(history, HistoryPage)
    assert agent.heard.of(InputPersisted)[0].durable
    assert agent.heard.of(Noise) == []
    exited = await agent.child.stop()
    assert exited == Exited(0, None, "stopped", 0)
    assert agent.child.protocol.violation is None
    assert agent.child.stderr_tail(DiagnosticText) == ""


async def test_results_at_the_bounds_are_taken(launch):
    agent = await launch()
    await agent.turn(CALL, CALL, CALL, {"text": "done"})
    for number, text in enumerate(["x" * 32_768, '"' * 32_400, "\u0001" * 10_000]):
        await agent.answer((await agent.heard.many(ToolCall, number + 1))[number], text)
    assert (await agent.heard.first(RunFinished)).outcome == "completed"


async def test_the_largest_frame_that_may_be_written_does_not_end_the_child(launch):
    agent = await launch()
    await agent.turn(CALL, {"text": "done"})
    call = await agent.heard.first(ToolCall)
    room = agent.child.protocol.result_room(call.call_id)
    text = "\u0001" * 7_000 + "x" * (room.encoded - 42_000)
    await agent.answer(call, text + "xxx")  # the room is that of a request id with three digits more
    assert (await agent.heard.first(RunFinished)).outcome == "completed"


async def test_structured_may_be_as_deep_as_the_machine_allows(launch):
    agent = await launch()
    await agent.turn(CALL, {"text": "done"})
    await agent.answer(await agent.heard.first(ToolCall), "", b"[" * 30 + b"]" * 30)
    assert (await agent.heard.first(RunFinished)).outcome == "completed"
    assert agent.heard.of(LostRequest) == []


async def test_a_refused_result_leaves_the_call_open(launch):
    agent = await launch()
    await agent.turn(CALL, SAY)
    call = await agent.heard.first(ToolCall)
    colliding = json.dumps({"ghp_" + "a" * 36: 1, "ghp_" + "b" * 36: 2}).encode()
    with pytest.raises(ChildRefusedError) as info:
        await agent.answer(call, "", colliding)
    assert info.value.code == "invalid_params"
    assert call.call_id in agent.child.protocol.open_calls
    await agent.answer(call, "corrected")
    assert (await agent.heard.first(RunFinished)).outcome == "completed"


async def test_cancelling_a_turn_cancels_its_call(launch):
    agent = await launch()
    await agent.turn(CALL, SAY)
    await agent.heard.first(ToolCall)
    await agent.child.request(agent.child.protocol.turn_cancel(agent.session, agent.run), 10)
    assert (await agent.heard.first(ToolCancel)).reason == "cancelled"
    assert (await agent.heard.first(RunFinished)).outcome == "cancelled"
    assert not agent.child.protocol.open_calls


async def test_a_long_message_comes_whole(launch):
    agent = await launch()
    await agent.turn({"text": "0123456789", "repeat": 6_000, "chunk": 3_000})
    await agent.heard.first(RunFinished)
    (message,) = agent.messages()
    assert message.text == "0123456789" * 6_000


async def test_subagents_calls_are_told_apart(launch):
    agent = await launch()
    script = json.dumps({"steps": [CALL, SAY]})
    tasks = [{"intent": f"task {n}", "context": script} for n in range(4)]
    await agent.turn({"calls": [{"name": "subagents", "arguments": {"intent": "ask", "tasks": tasks}}]}, SAY)
    calls = await agent.heard.many(ToolCall, 4, within=20)
    assert len(agent.child.protocol.open_calls) == 4
    assert all(call.task_id and call.subagent_id for call in calls)
    for call in reversed(calls):
        await agent.answer(call, f"for {call.task_id}")
    assert (await agent.heard.first(RunFinished, within=20)).outcome == "completed"
    assert agent.child.protocol.violation is None


async def test_cards_keep_to_their_schema(launch):
    agent = await launch(cards=True)
    command = {"intent": "list", "command": "echo hello"}
    await agent.turn({"calls": [{"name": "bash", "arguments": command}]}, CALL, SAY)
    await agent.answer(await agent.heard.first(ToolCall), "row")
    await agent.heard.first(RunFinished)
    assert agent.heard.of(ToolCard)
    assert agent.child.protocol.violation is None


async def test_the_budget_is_the_childs_own(launch):
    agent = await launch()
    while agent.child.protocol.requests_left > 1:
        batch = [agent.child.protocol.status() for _ in range(min(16, agent.child.protocol.requests_left - 1))]
        await asyncio.gather(*(agent.child.request(request, 10) for request in batch))
    assert (await agent.child.stop()).code == 0
    assert [event.error for event in agent.heard.of(Response) if event.error] == []


async def test_a_killed_child_leaves_its_session_to_the_next_and_no_job(launch, tmp_path: Path):
    agent = await launch()
    job = {"intent": "wait", "command": "sleep 600 & echo started; sleep 600"}
    await agent.turn({"calls": [{"name": "bash", "arguments": job}]}, SAY)
    async with asyncio.timeout(10):
        while len(session_members(agent.child.pid)) < 3:
            await asyncio.sleep(0.01)
    groups = {os.getpgid(pid) for pid in session_members(agent.child.pid)}
    assert len(groups) > 1, "its jobs have groups of their own"
    agent.child.kill()
    exited = await agent.child.wait()
    assert (exited.cause, exited.left) == ("killed", 0)
    assert session_members(agent.child.pid) == []
    assert isinstance(agent.heard.events[-2], EndOfOutput)
    again = await launch(session=agent.session)
    assert again.session == agent.session
