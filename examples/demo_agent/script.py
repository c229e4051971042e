"""Prompts that are scripts: ``{"steps": […]}`` is played step by step, in place of a model.

The README lists every key. Steps that speak to the client are here; steps that misbehave are in ``faults``.
"""

import json
import re
import uuid
from collections.abc import Callable
from typing import Any, Final, cast

import faults
from calls import CallFailed
from redact import results_json
from runs import Delegate, Failed, Run

SIDE_BY_SIDE: Final = 4
DEPTH: Final = 2

Step = dict[str, Any]


def find(text: str) -> list[Step] | None:
    """The steps of the first script in a text, if it has one."""
    for match in re.finditer(r'\{\s*"steps"', text):
        try:
            value: Any = json.JSONDecoder().raw_decode(text, match.start())[0]
        except ValueError:
            continue
        steps = value["steps"]
        if isinstance(steps, list) and all(isinstance(step, dict) for step in cast("list[Any]", steps)):
            return cast("list[Step]", steps)
    return None


def _arguments(call: Step) -> Any:
    given = call.get("arguments", {})
    sized: dict[str, int] = call.get("sized", {})
    return {**given, **{name: "x" * size for name, size in sized.items()}} if sized else given


def _hook(call: Step) -> Callable[[Any], Any] | None:
    """What stands between the model and the client: it refuses a call, or makes its arguments anew."""
    if "hook" not in call:
        return None
    hook: Step = call["hook"]

    def run(arguments: Any) -> Any:
        if hook.get("refuse"):
            raise CallFailed("blocked: a hook of this agent refuses the call")
        return _arguments(hook) if "arguments" in hook or "sized" in hook else arguments

    return run


class Player:
    """Plays one script for one agent of a run: its own, or a subagent, whose words nobody but its caller hears."""

    def __init__(self, run: Run, who: Delegate | None = None) -> None:
        self.run = run
        self.who = who or Delegate()
        self.results: list[str] = []
        self.said: list[str] = []

    def play(self, steps: list[Step]) -> None:
        """All steps, until one says something and calls nothing: that ends a turn."""
        for step in steps:
            if self._step(step):
                return
        self._say({"text": "(script ended)"})

    def _step(self, step: Step) -> bool:
        run = self.run
        run.pause(step.get("sleep_s", 0))
        if "approval" in step:
            run.approve(step["approval"]["summary"], step["approval"].get("expires_in_ms", 60_000))
        if "activity" in step:
            with run.activity(step["activity"].get("kind", "tool"), step["activity"]["name"]):
                run.pause(step["activity"].get("sleep_s", 0))
        if "diagnostic" in step:
            run.diagnose(step["diagnostic"]["code"], step["diagnostic"]["summary"])
        if "status" in step:
            raise Failed("execution_failed")
        if "fail" in step:
            raise Failed(step["fail"].get("code", "execution_failed"), step["fail"].get("persistence", "durable"))
        self.results += faults.play(run, step)
        if "text" in step:
            self._say(step)
        if "calls" in step:
            self._calls(step)
        return "text" in step and "calls" not in step

    def _say(self, step: Step) -> None:
        text = step["text"].replace("{{results}}", results_json(self.results)) * step.get("repeat", 1)
        if self.who.task_id is None:
            self.run.say(text, step.get("chunk", 0), step.get("chunk_s", 0))
        else:
            self.said.append(text)

    def _calls(self, step: Step) -> None:
        run, calls = self.run, cast("list[Step]", step["calls"])
        who = self.who
        if "delegate" in step:
            who = Delegate(step["delegate"].get("task_id"), step["delegate"].get("subagent_id"), depth=1)
        call_id = str(uuid.uuid4()) if step.get("reuse_call_id") else None
        if step.get("parallel") or step.get("abandon"):
            begun = [run.begin(call["name"], _arguments(call), who, call_id, _hook(call)) for call in calls]
            if step.get("abandon"):
                run.abandoned += [started.call for started in begun if not isinstance(started.call, str)]
                return
            waits = [lambda started=started: run.end(started) for started in begun]
            self.results += [answer.text for answer in run.side_by_side(waits, len(waits))]
            return
        for number, call in enumerate(calls):
            arguments = _arguments(call)
            if call["name"] == "subagents":
                self.results.append(self._subagents(arguments, f"call_{len(self.results) + 1}_{number}"))
            else:
                started = run.begin(call["name"], arguments, who, call_id, _hook(call))
                if step.get("same_call_id") and not isinstance(started.call, str):
                    run.output.event("client.tool.call", started.call.data)
                self.results.append(run.end(started).text)

    def _subagents(self, arguments: Step, label: str) -> str:
        tasks = cast("list[Step]", arguments.get("tasks", []))
        run = self.run
        if self.who.depth >= DEPTH:
            return "subagents cannot nest deeper"
        with run.activity("tool", f"subagents · {len(tasks)} tasks"):
            work = [self._delegate(task, label) for task in tasks]
            results = run.side_by_side(work, SIDE_BY_SIDE)
        return json.dumps({"summary": {"total": len(tasks), "completed": len(tasks)}, "results": results}, indent=2)

    def _delegate(self, task: Step, label: str) -> Callable[[], Step]:
        run = self.run
        with run.output.room:
            run.tasks += 1
            task_id = f"g{run.tasks}"
        path = "/".join(part for part in (self.who.subagent_id, label, task_id) if part)
        who = Delegate(task_id, path, self.who.depth + 1)

        def work() -> Step:
            player = Player(run, who)
            steps = find(task.get("context", "")) or [{"text": task.get("context", "")}]
            with run.activity("subagent", f"{task_id} · depth {who.depth} · {task.get('intent', '')}", announce=2):
                player.play(steps)
            output = "\n".join(player.said)
            return {"id": task_id, "status": "completed", "intent": task.get("intent"), "output": output}

        return work
