"""One child with the registry it started with, attached to its session. Owns start, fallback and attachment.

A child's tools are fixed at its start (stdio protocol, "Client tools"), so a list that has changed needs another child:
children of a session follow each other as generations (bridge 1, 3).
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, LiteralString

from adapters.stdio.child import (
    Child,
    ChildError,
    ChildEvent,
    ChildGoneError,
    ChildRefusedError,
    ChildStuckError,
    ChildTimeoutError,
    Exited,
    spawn,
)
from adapters.stdio.failures import RunFailure
from adapters.stdio.launch import LaunchError, LaunchSpec, ProcessLimits
from adapters.stdio.population import Counted
from adapters.stdio.protocol import ChildProtocol
from adapters.stdio.requests import RequestError, ToolDescriptor
from adapters.stdio.results import Attached
from adapters.stdio.services import StdioServices
from gateway.config.settings import Agent
from gateway.model.catalog import Catalog, Descriptor, own_descriptors
from gateway.model.clean import DiagnosticText
from gateway.observe import metrics
from gateway.observe.log import get_logger

log = get_logger("generation")

_MIB: Final = 1024 * 1024
INITIALIZE_S: Final = 20.0
ATTACH_S: Final = 20.0
_BUSY_S: Final = 25.0  # an owner that was cut off keeps its child for `isolation_s`; its stop takes some seconds more
_BUSY_PAUSE_S: Final = (0.02, 0.5)  # the first and the longest: each question costs a request id

_LOST: Final = frozenset({"session_missing", "session_invalid", "cwd_mismatch", "history_limit"})
_EXPLAINED: Final[Mapping[str, RunFailure]] = {
    code: RunFailure.of_child(code, "the agent could not go on with its session") for code in _LOST
}


@dataclass(frozen=True, slots=True)
class Generation:
    """A child that is ready. ``native`` are the model names in its registry, ``refused`` says that the child took none
    of the clients' own tools."""

    child: Child
    fingerprint: str
    native: frozenset[str]
    refused: bool
    counted: Counted = field(repr=False)
    session_id: str = ""
    revision: str = ""

    @property
    def alive(self) -> bool:
        """Whether it can be asked for something."""
        return self.child.exit is None and self.child.protocol.violation is None


class LostSession(Exception):
    """The child does not find, or does not take, the session that it was to open; ``failure`` says why."""

    def __init__(self, failure: RunFailure) -> None:
        super().__init__(failure.text)
        self.failure = failure


def launch_spec(agent: Agent, session_id: str) -> LaunchSpec:
    """The process of an agent for a session; its folder is made where each session has one of its own."""
    own = "{session_id}" in agent.cwd
    cwd = Path(agent.cwd.replace("{session_id}", session_id)).expanduser()
    if own:
        cwd.mkdir(parents=True, exist_ok=True, mode=0o700)
    return LaunchSpec(agent.command, cwd, agent.environment(), process_limits(agent))


def process_limits(agent: Agent) -> ProcessLimits:
    """What a child of the agent, and all that it starts, may take. 0 in the settings leaves the node's own limit."""
    return ProcessLimits(
        open_files=agent.max_open_files or None,
        memory_bytes=agent.max_memory_mib * _MIB or None,
        file_bytes=agent.max_file_mib * _MIB or None,
        cpu_s=agent.max_cpu_s or None,
    )


async def start(
    services: StdioServices,
    agent: Agent,
    session_id: str,
    catalog: Catalog,
    on_event: Callable[[ChildEvent], None],
    *,
    requests: int,
) -> Generation:
    """A child that has taken its registry, not attached to a session yet. Raises RunFailure; then no child is left.

    A registry that the child refuses as a whole is tried again on the same child with the gateway's own tools alone.
    """
    counted: list[Counted] = []

    def heard(event: ChildEvent) -> None:
        if isinstance(event, Exited):
            counted[0].gone()
        on_event(event)

    try:
        spec = launch_spec(agent, session_id)
        protocol = ChildProtocol(requests=requests)
        child = await spawn(spec, heard, reaper=services.reaper, protocol=protocol)
        counted.append(Counted())
    except LaunchError as error:
        log.warning("a child could not be started", session_id=session_id, agent=agent.name, fault=error.fault)
        raise RunFailure.of_child(error.fault, "the agent could not be started") from None
    except OSError as error:
        log.warning("a child's folder could not be made", session_id=session_id, agent=agent.name, error=error)
        raise RunFailure.of("cwd_missing", "the agent's folder could not be made") from None
    try:
        return await _initialize(services, agent, session_id, catalog, child, counted[0])
    except BaseException:
        with suppress(ChildStuckError):
            await child.stop(grace=0)
        raise


async def _initialize(
    services: StdioServices, agent: Agent, session_id: str, catalog: Catalog, child: Child, counted: Counted
) -> Generation:
    try:
        try:
            await _offer(child, catalog.descriptors)
        except (ChildRefusedError, RequestError) as refusal:
            if isinstance(refusal, ChildRefusedError) and refusal.code != "invalid_params":
                raise
            # An unfit descriptor is a defect of ours, and no reason to take every other tool and the run along.
            count = len(catalog.descriptors)
            log.error("the agent refused the clients' tools", session_id=session_id, tools=count, error=refusal)
            metrics.REGISTRY_REFUSALS.inc()
            own = own_descriptors(dynamic_tools=agent.dynamic_tools)
            await _offer(child, own)
            names = frozenset(descriptor.name for descriptor in own)
            return Generation(child, catalog.native_fingerprint, names, refused=True, counted=counted)
    except ChildRefusedError as refusal:
        failure = RunFailure.of_child(refusal.code, "the agent refused to start")
        raise failure.with_last_words(await _last_words(services, child)) from None
    except ChildGoneError:
        failure = _gone(child, session_id, "while it started")
        raise failure.with_last_words(await _last_words(services, child)) from None
    except ChildTimeoutError:
        raise RunFailure.of("start_timeout", "the agent was not ready in time") from None
    except (ChildError, RequestError) as error:
        log.error("a child could not be initialised", session_id=session_id, error=error)
        raise RunFailure.of("start_failed", "the agent could not be initialised") from None
    names = frozenset(descriptor.name for descriptor in catalog.descriptors)
    return Generation(child, catalog.native_fingerprint, names, refused=False, counted=counted)


async def _offer(child: Child, descriptors: tuple[Descriptor, ...]) -> None:
    """``initialize``, with cards where the child has them: one that has not refuses before anything starts."""
    tools = [ToolDescriptor(d.name, d.description, d.input_schema, d.timeout_ms) for d in descriptors]
    try:
        await child.request(child.protocol.initialize(tools, cards=True), INITIALIZE_S)
    except ChildRefusedError as refusal:
        if refusal.code != "unsupported_capability":
            raise
        await child.request(child.protocol.initialize(tools), INITIALIZE_S)


def _gone(child: Child, session_id: str, when: LiteralString) -> RunFailure:
    """Why a child is gone before its first run: it ended by itself, or was ended as it broke its protocol."""
    violation = child.protocol.violation
    if violation is None:
        return RunFailure.of("child_exited", "the agent ended " + when)
    log.error("violation", session_id=session_id, reason=violation.reason)
    return RunFailure.of_child(violation.reason, "the agent broke its protocol " + when)


async def _last_words(services: StdioServices, child: Child) -> DiagnosticText:
    with suppress(ChildStuckError):
        await child.stop(grace=0)
    return child.stderr_tail(services.redactor.diagnostic)


async def attach(generation: Generation, durable_session: str | None, *, session_id: str) -> Generation:
    """The generation with its session: the durable one opened, or a new one where nothing was persisted.

    ``session_id`` is ours, for the log; ``durable_session`` is the child's. Raises RunFailure, LostSession. The child
    stays as it is.
    """
    child = generation.child
    deadline = asyncio.get_running_loop().time() + _BUSY_S
    pause, longest = _BUSY_PAUSE_S
    while True:
        try:
            if durable_session is None:
                request = child.protocol.session_create()
            else:
                request = child.protocol.session_open(durable_session)
            attached = await child.request(request, ATTACH_S)
        except ChildRefusedError as refusal:
            if refusal.code == "session_busy" and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest)
                continue
            if refusal.code in _LOST:
                raise LostSession(_EXPLAINED[refusal.code]) from None
            raise RunFailure.of_child(refusal.code, "the agent could not attach its session") from None
        except ChildGoneError:
            raise _gone(child, session_id, "while it attached its session") from None
        except (ChildError, RequestError):
            raise RunFailure.of("attach_failed", "the agent could not attach its session") from None
        assert isinstance(attached, Attached)
        return replace(generation, session_id=attached.session_id, revision=attached.revision)
