"""Every error code, brought about on the demo agent and on the real child by the same requests (stdio protocol,
Methods, Seen). The last test holds the table against the adapter's own list, both ways."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from adapters.stdio.frames import ERROR_CODES
from gateway.model.clean import ModelText
from tests.doubles.stdio_demo_alone import CODES
from tests.doubles.stdio_subject import CALL, SAY, Life, Subject

Case = Callable[[Subject], Awaitable[str]]
CASES: dict[str, Case] = {}


def case(code: str) -> Callable[[Case], Case]:
    """The requests that bring a code about."""

    def keep(made: Case) -> Case:
        CASES[code] = made
        return made

    return keep


def life_case(code: str) -> Callable[[Callable[[Life], Awaitable[str]]], None]:
    """A case of a child with a tool and a session."""

    def keep(made: Callable[[Life], Awaitable[str]]) -> None:
        async def run(subject: Subject) -> str:
            return await made(await subject.begin())

        CASES[code] = run

    return keep


@life_case("invalid_frame")
async def _(life: Life) -> str:
    return await life.raw(b'{"a":' * 33 + b"1" + b"}" * 33 + b"\n")


@life_case("invalid_request")
async def _(life: Life) -> str:
    return await life.raw(b"{}\n")


@life_case("invalid_params")
async def _(life: Life) -> str:
    return await life.forged("turn.start", {"session_id": life.session, "prompt": " \n"})


@life_case("protocol_mismatch")
async def _(life: Life) -> str:
    request = life.forge("status", {})
    data = request.data.replace(b'"version":1', b'"version":2')
    return await life.refused(type(request)(request.id, request.method, data))


@life_case("unsupported_method")
async def _(life: Life) -> str:
    return await life.forged("client.tool.register", {})


@case("unsupported_capability")
async def _(subject: Subject) -> str:
    life = await subject.start()
    code = await life.refused(life.protocol.initialize(None, capabilities=("time.travel",)))
    await life.initialize()  # a fresh id may try again
    return code


@case("not_initialized")
async def _(subject: Subject) -> str:
    life = await subject.start()
    return await life.refused(life.protocol.session_create())


@life_case("already_initialized")
async def _(life: Life) -> str:
    return await life.refused(life.protocol.initialize(None))


@life_case("duplicate_id")
async def _(life: Life) -> str:
    await life.forged("status", {}, "twice")
    return await life.forged("status", {}, "twice")


@life_case("request_limit")
async def _(life: Life) -> str:
    protocol = life.protocol
    while protocol.requests_left > 1:
        batch = [protocol.status() for _ in range(min(64, protocol.requests_left - 1))]
        await asyncio.gather(*(life.ask(request) for request in batch))
    await life.forged("status", {})  # the 4096th
    code = await life.forged("status", {})
    assert (await asyncio.wait_for(life.child.wait(), 10)).code == 0
    return code


@life_case("frame_too_large")
async def _(life: Life) -> str:
    code = await life.raw(b"x" * 65_537 + b"\n")
    assert (await asyncio.wait_for(life.child.wait(), 10)).code == 0
    return code


@life_case("incomplete_frame")
async def _(life: Life) -> str:
    life.child._stdin.write(b'{"half":')
    life.child._stdin.close()
    await life.child.wait()
    return life.heard.events[[type(e).__name__ for e in life.heard.events].index("LostRequest")].code  # pyright: ignore


@case("configuration_invalid")
async def _(subject: Subject) -> str:
    life = await subject.start(MC_HOME="relative")
    code = await life.refused(life.protocol.initialize(None))
    assert await life.refused(life.protocol.session_create()) == code
    status = await life.ask(life.protocol.status())
    assert (status.state, status.readiness) == ("failed", code)
    return code


@case("provider_unavailable")
async def _(subject: Subject) -> str:
    faults = {"DEMO_AGENT_FAULTS": json.dumps({"start_error": "provider_unavailable"})}
    nobody = {"MC_PROVIDER": "nobody", "MC_MODEL": "nothing"}
    life = await subject.start(**(faults if subject.name == "demo" else nobody))
    return await life.refused(life.protocol.initialize(None))


@case("startup_cancelled")
async def _(subject: Subject) -> str:
    life = await subject.start()
    first, last = life.protocol.initialize(None), life.protocol.shutdown()
    asking = asyncio.ensure_future(life.refused(type(first)(first.id, first.method, first.data + last.data)))
    return await asking


@life_case("busy")
async def _(life: Life) -> str:
    await life.turn(CALL, SAY)
    await life.call()
    code = await life.refused(life.protocol.turn_start(life.session, ModelText("second")))
    for request in (
        life.protocol.session_create(),
        life.protocol.session_list(),
        life.protocol.model_catalog(),
        life.protocol.history_page(life.session, life.revision),
    ):
        assert await life.refused(request) == code
    return code


@life_case("stale_session")
async def _(life: Life) -> str:
    return await life.refused(life.protocol.turn_start("another", ModelText("hello")))


@case("session_missing")
async def _(subject: Subject) -> str:
    life = await subject.start()
    await life.ask(life.protocol.initialize(None))
    code = await life.refused(life.protocol.turn_start("none", ModelText("hello")))
    assert await life.refused(life.protocol.session_open("0b8b4b40-0000-4000-8000-000000000000")) == code
    return code


async def _written(subject: Subject) -> str:
    life = await subject.begin()
    await life.turn({"text": "hello"})
    await life.finished()
    return life.session


@case("session_busy")
async def _(subject: Subject) -> str:
    session = await _written(subject)
    other = await subject.start()
    await other.ask(other.protocol.initialize(None))
    return await other.refused(other.protocol.session_open(session))


@case("session_invalid")
async def _(subject: Subject) -> str:
    session = await _written(subject)
    await subject.close()
    for file in subject.session_files():
        file.write_bytes(b"\x00 no session\n" * 3)
    other = await subject.start()
    await other.ask(other.protocol.initialize(None))
    return await other.refused(other.protocol.session_open(session))


@case("history_limit")
async def _(subject: Subject) -> str:
    session = await _written(subject)
    await subject.close()
    (file,) = subject.session_files()
    with file.open("ab") as more:
        more.write(b"{}\n" * 100_001)
    other = await subject.start()
    await other.ask(other.protocol.initialize(None))
    return await other.refused(other.protocol.session_open(session))


@case("cwd_mismatch")
async def _(subject: Subject) -> str:
    session = await _written(subject)
    await subject.close()
    other = await subject.start(cwd="elsewhere")
    await other.ask(other.protocol.initialize(None))
    return await other.refused(other.protocol.session_open(session))


@life_case("stale_revision")
async def _(life: Life) -> str:
    old = life.revision
    await life.turn({"text": "hello"})
    await life.finished()
    return await life.refused(life.protocol.history_page(life.session, old))


@case("operation_missing")
async def _(subject: Subject) -> str:
    life = await subject.start()
    await life.ask(life.protocol.initialize(None, capabilities=("operation.cancel",)))
    return await life.forged("operation.cancel", {"request_id": "none"})


async def _select(life: Life, *, selection: str | None = None, catalog: str | None = None) -> str:
    status = await life.ask(life.protocol.status())
    page = await life.ask(life.protocol.model_catalog())
    return await life.refused(
        life.protocol.selection_set(
            life.session, selection or status.selection.revision, catalog or page.revision, "nobody", "nothing"
        )
    )


@life_case("stale_catalog")
async def _(life: Life) -> str:
    return await _select(life, catalog="0b8b4b40-0000-4000-8000-000000000000")


@life_case("stale_selection")
async def _(life: Life) -> str:
    return await _select(life, selection="0b8b4b40-0000-4000-8000-000000000000")


@life_case("selection_invalid")
async def _(life: Life) -> str:
    return await _select(life)


@life_case("stale_run")
async def _(life: Life) -> str:
    run = await life.turn({"text": "hello"})
    await life.finished()
    return await life.refused(life.protocol.turn_cancel(life.session, run))


@life_case("stale_approval")
async def _(life: Life) -> str:
    run = await life.turn(CALL, SAY)
    await life.call()
    return await life.refused(life.protocol.approval_answer(life.session, run, "none", allow=True))


@life_case("execution_failed")
async def _(life: Life) -> str:
    await life.turn({"status": 401})
    finished = await life.finished()
    assert (finished.outcome, finished.persistence) == ("failed", "durable")
    return str(finished.error_code)


@life_case("stale_client_tool_call")
async def _(life: Life) -> str:
    await life.turn(CALL, SAY)
    call = await life.call()
    assert await life.forged("client.tool.result", life.identity(call, instance_id="another")) == (
        "stale_client_tool_call"
    )
    await life.ask(life.result(call))
    return await life.forged("client.tool.result", life.identity(call))


@pytest.mark.parametrize("code", sorted(CASES))
async def test_a_code_comes_about(subject: Subject, code: str):
    assert await CASES[code](subject) == code


@pytest.mark.parametrize("code", sorted(CODES))
async def test_a_code_that_only_the_demo_agent_can_be_brought_to(demo: Subject, code: str):
    life = await demo.begin()
    await life.turn({"fail": {"code": code, "persistence": "degraded"}})
    finished = await life.finished()
    assert (finished.error_code, finished.persistence) == (code, "degraded")


def test_every_code_that_the_adapter_knows_has_its_case():
    assert set(CASES) | set(CODES) == ERROR_CODES
    assert not set(CASES) & set(CODES)
