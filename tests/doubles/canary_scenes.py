"""Where canaries go in while everything is as it should be: what people, agents, clients and their tools say."""

import json
from collections.abc import Mapping
from typing import Any

from gateway.model.redaction import RULES
from tests.doubles.canary_stage import SHORT, Stage, parted, reading
from tests.doubles.nodes_session import agent_id, calls, tool
from tests.doubles.overheard import PIECE


async def prompts(stage: Stage) -> None:
    """Inputs, their idempotency keys, the names of sessions, messages of denials."""
    canaries = stage.canaries
    async with stage.talk() as talk:
        for at, text in enumerate(canaries.lines("prompt", 12_000)):
            run = await talk.say(f"mark-prompt-{at} {text}")
            await talk.end(run)
            stage.heard.must_show(f"mark-prompt-{at}", "the child", "clients", "Redis: commands", "Redis: values")
        await talk.end(await talk.say(canaries.text("prompt of lines")))
        for key in canaries.lines("idempotency key", 200):
            assert await stage.tried("POST", f"{talk.path}/cancel", headers={"Idempotency-Key": key}) == 200
        run = await talk.say({"approval": {"summary": f"mark-summary {stage.mouth.says(canaries.text('approval'))}"}})
        asked = await talk.event("approval_requested")
        denial = {"decision": "deny", "message": f"mark-denial {canaries.text('denial')[:3_900]}"}
        await talk.done("POST", f"/approvals/{asked['call_id']}", denial)
        await talk.end(run)
        stage.heard.must_show("mark-denial", "clients", "Redis: values")
        stage.heard.must_show("mark-summary", "clients", "Redis: values")
    for text in canaries.lines("session's name", 190):
        await stage.http.post("/v1/sessions", json={"agent_id": agent_id("demo"), "display_name": text})
        await stage.tried("POST", "/v1/sessions", json={"agent_id": text, "vault_ids": [text]})


async def words(stage: Stage) -> None:
    """What the child says: messages and their deltas, activities, diagnostics, unknown events, its environment."""
    canaries, mouth = stage.canaries, stage.mouth
    async with stage.talk() as talk, reading(stage, talk) as socket:
        for name in ("deltas", "halved deltas"):
            each = [canary.text for canary in canaries.each(name)]
            said = (" " * PIECE).join(map(mouth.halves if name.startswith("halved") else mouth.says, each))
            await talk.run({"text": f"mark-{name[:6]:11}{said}", "chunk": PIECE})  # a token is never cut
        many = mouth.says(canaries.text("activities"))
        await talk.run(
            {"activity": {"name": f"mark-activity {many}"}},
            {"diagnostic": {"code": "remark", "summary": f"mark-diagnostic {many}"}},
            {"report": ["env"]},
            {"text": "{{results}}"},
        )
        socket.cancel()
    for mark in ("mark-activity", "mark-diagnostic"):
        stage.heard.must_show(mark, "clients", "Redis: values")
    stage.heard.must_show("mark-deltas", "clients")
    stage.heard.must_show("mark-halved", "clients")


async def arguments(stage: Stage) -> None:
    """Arguments of calls: values, keys, values under names; by HTTP and by socket; checked, and refused with a path."""
    canaries, mouth = stage.canaries, stage.mouth
    for agent in ("demo", "strict"):
        async with stage.talk(agent) as talk, reading(stage, talk) as socket:
            number = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
            client = await talk.register("web", tool("read"), tool("count", number))
            async with client.serve(lambda name, given: f"mark-answer {name} {json.dumps(given)}"[:30_000]):
                for place in ("value", "key", "deep"):
                    for chunk in parted(canaries.lines(f"argument's {place}, {agent}", SHORT), 3):
                        said = [mouth.says(text) for text in chunk]
                        given: Any = {"mark-argument": said}
                        if place == "key":
                            given = {text: at for at, text in enumerate(said)}
                        if place == "deep":
                            given = {"a": [{"b": [{"c": {"d": text}} for text in said]}]}
                        await talk.run(calls("client__web__read", given), {"text": "{{results}}"})
                hidden = [canaries.value(f"argument under a name, {agent}") for _ in range(3)]
                if agent == "demo":
                    stage.heard.executing += hidden
                names = ("password", "apiKey", "client_secret")
                given = dict(zip(names, map(mouth.says, hidden), strict=True))
                await talk.run(calls("client__web__read", {"form": given}), {"text": "{{results}}"})
                wrong = mouth.says(canaries.lines(f"refused argument, {agent}", SHORT)[0])
                await talk.run(calls("client__web__count", {"n": wrong}, {wrong: 1}), {"text": "{{results}}"})
                await talk.run(calls("client__use", {"tool": wrong, "arguments": {}}), {"text": "{{results}}"})
                await talk.run(calls("client__more", {"call_id": wrong, "part": 1}), {"text": "{{results}}"})
                await talk.run(calls("client__tools", {"query": wrong}), {"text": "{{results}}"})
            socket.cancel()
    stage.heard.must_show("mark-argument", "clients", "Redis: values")
    stage.heard.must_show("mark-answer", "the child", "clients")


async def results(stage: Stage) -> None:
    """Answers: text, errors, structured values, keys and names, refused ones, late ones; by HTTP and by socket."""
    canaries = stage.canaries
    async with stage.talk() as talk:
        client = await talk.register("web", tool("read"))
        read = calls("client__web__read")

        async def answered(body: Mapping[str, Any], *refused: Any) -> None:
            before = len(talk.of("client_tool_dispatched"))
            run = await talk.say(read, {"text": "{{results}}"})
            opened = await client.dispatched(before + 1)
            for wrong in refused:
                answer = await client.post(opened[-1], "result", wrong)
                assert answer.status_code == 400, answer.text
            await client.answer(opened[-1], **body)
            end = await talk.end(run)
            assert end["type"] == "run_completed", end

        for mark, more in (("mark-result", {}), ("mark-error", {"is_error": True})):
            await answered({"text": f"{mark} {canaries.text(mark)}", **more})
            await answered({"text": json.dumps({mark: canaries.text(f"JSON of {mark}")}), **more})
        named = {name: canaries.value("structured under a name") for name in ("password", "authToken", "api_key")}
        for lines in parted(canaries.lines("structured", SHORT), 3):
            await answered({"text": "mark-text", "structured": {"mark-structured": lines, **named}})
        for lines in parted(canaries.lines("structured's keys", 400), 4):
            keyed = {f"{at} {line}": at for at, line in enumerate(lines)}
            await answered({"text": "mark-text", "structured": {"mark-keys": [keyed]}})
        secret = canaries.lines("refused answer", SHORT)[0]
        await answered(
            {"text": "corrected"}, {"text": {secret: 1}}, {secret: secret}, {"text": "x", "is_error": secret}, secret
        )
        github = [canary for canary in canaries.each("colliding keys") if canary.kind == "github-token"]
        github.append(canaries.of(next(rule for rule in RULES if rule.name == "github-token"), "colliding keys"))
        await answered({"text": "two in one", "structured": {canary.text: 1 for canary in github}})
        late = talk.of("client_tool_dispatched")[0]
        await client.post(late, "result", {"text": canaries.text("late answer")})
    for mark in ("mark-result", "mark-error"):
        stage.heard.must_show(mark, "the child", "clients", "Redis: values")
    for mark in ("mark-structured", "mark-keys"):
        stage.heard.must_show(mark, "the child")


async def schemas(stage: Stage) -> None:
    """Tools: descriptions, and every place of a schema where a text may stand."""
    canaries = stage.canaries
    async with stage.talk() as talk:
        client = await talk.register("web", tool("first"))
        read = calls("client__tools", {"tool": "client__web__read"})
        async with client.serve(lambda *_: "ok"):
            for lines in parted(canaries.lines("schema", 700), 3):
                text = lines[0]
                schema: dict[str, Any] = {
                    "type": "object",
                    "title": text,
                    "$comment": text,
                    "description": f"mark-schema {lines[-1]}",
                    "default": {"a": text},
                    "examples": [text],
                    "properties": {
                        "a": {"enum": lines},
                        "b": {"const": text, "description": text},
                        "c": {"default": text, "x-more": {text: text}},
                        lines[-1]: {"type": "string"},
                    },
                }
                await client.offer({"name": "read", "description": f"mark-tool {text}", "parameters": schema})
                await talk.run(calls("client__web__read", {"a": "no"}), read, {"text": "{{results}}"})
                for path in ("clients", "catalog", "calls", "history"):
                    await talk.ask("GET", f"/{path}")
        wrong = canaries.lines("refused schema", SHORT)[0]
        for bad in (
            {"type": wrong},
            {"$ref": wrong},
            {"properties": wrong},
            {"pattern": f"({wrong}", "type": "string"},
        ):
            answer = await talk.ask(
                "PUT", f"/clients/{client.id}/tools", {"tools": [{**tool("bad"), "parameters": bad}]}
            )
            assert answer.status_code in (200, 400), answer.text
    stage.heard.must_show("mark-schema", "the child", "clients", "Redis: commands")
    stage.heard.must_show("mark-tool", "the child", "clients", "Redis: commands")


async def names(stage: Stage) -> None:
    """Names that a client chooses: its own, its key, those of its tools."""
    async with stage.talk() as talk:
        client = await talk.register("web")
        for canary in stage.canaries.each("name"):
            answer = await talk.ask("PUT", f"/clients/{client.id}/tools", {"tools": [tool(canary.text)]})
            assert answer.status_code == 400, canary.kind
            body = {"lifetime": {"type": "never"}, "tools": []}
            for given in ({"name": canary.text, "key": "k-1"}, {"name": "n", "key": canary.text}):
                answer = await talk.ask("POST", "/clients", {**body, **given})
                assert answer.status_code == 400, answer.text
        for path in ("clients", "catalog"):
            await talk.ask("GET", f"/{path}")
