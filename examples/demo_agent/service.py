"""The requests of a child: what each method checks, in which order, and what it answers. Owns the child's state.

Everything here happens in the loop's thread. Work that the real child gives to its one worker (the start, sessions,
history, catalogs, selection) is put off until all requests at hand were read, so requests that overlap it hear
``busy`` here too.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import catalog
import rules
import script
from calls import Broker
from desk import Desk
from faults import Settings
from frames import (
    PROMPT_BYTES,
    REQUESTS,
    Refused,
    Request,
    fields,
    is_bool,
    is_id,
    is_id_or_null,
    is_session_id,
    parse_request,
)
from handshake import Negotiated, negotiate
from output import Output
from runs import Run

if TYPE_CHECKING:
    from loop import Loop

Operation = Callable[[], dict[str, Any]]


def home_folder(environment: Mapping[str, str]) -> Path:
    """Where sessions are kept: ``MC_HOME``, which must be absolute, or a folder below HOME or TMPDIR."""
    if "MC_HOME" in environment:
        home = Path(environment["MC_HOME"])
        if not home.is_absolute():
            raise Refused("configuration_invalid")
        return home
    base = environment.get("HOME") or environment.get("TMPDIR") or "/tmp"  # noqa: S108 - as every Unix program does
    return Path(base) / ".demo-agent"


class Service:
    """One child's state, from ``initialize`` to its end."""

    def __init__(self, output: Output, host: "Loop", environment: Mapping[str, str], faults: Settings) -> None:
        self.output = output
        self.host = host
        self.environment = environment
        self.faults = faults
        self.ids: set[str] = set()
        self.state: str | None = None  # None, "starting", "ready" or a failed start's code
        self.negotiated = Negotiated()
        self.broker = Broker(output)
        self._desk: Desk | None = None  # there is one once the start has succeeded
        self.run: Run | None = None
        self.closing = False
        self.operation: tuple[str, Operation] | None = None

    @property
    def desk(self) -> Desk:
        """Sessions and models of a child that is ready."""
        if self._desk is None:
            raise Refused("not_initialized")
        return self._desk

    # Frames in.

    def line(self, line: bytes) -> None:
        """One line of input, without its LF."""
        try:
            request = parse_request(line)
            self._admit(request)
        except Refused as refused:
            self.output.respond(refused.request_id, error=refused.code)
            if refused.close:
                self.close()
            return
        try:
            METHODS.get(request.method, Service.unknown)(self, request)
        except Refused as refused:
            self.output.respond(request.id, error=refused.code)

    def _admit(self, request: Request) -> None:
        if request.id in self.ids:
            raise Refused("duplicate_id", request.id)
        if len(self.ids) >= REQUESTS:
            raise Refused("request_limit", request.id, close=True)
        self.ids.add(request.id)

    def close(self) -> None:
        """No more input; whatever runs is cancelled. The loop ends when all is said."""
        if self.closing:
            return
        self.closing = True
        if self.operation is not None:
            request_id, self.operation = self.operation[0], None
            code = "startup_cancelled" if self.state == "starting" else "operation_cancelled"
            self.state = code if self.state == "starting" else self.state
            self.output.respond(request_id, error=code)
        if self.run is not None:
            self.run.cancel("shutdown")

    def work(self) -> None:
        """Do what was put off."""
        if self.operation is None:
            return
        (request_id, operation), self.operation = self.operation, None
        try:
            result = operation()
        except Refused as refused:
            self.output.respond(request_id, error=refused.code)
        except OSError:
            self.output.respond(request_id, error="persistence_failed")
        else:
            self.output.respond(request_id, result=result)

    # Checks that several methods share.

    def _ready(self) -> None:
        if self.state in (None, "starting"):
            raise Refused("not_initialized")
        if self.state != "ready":
            raise Refused(str(self.state))

    def _idle(self) -> None:
        if self.operation is not None or self.run is not None:
            raise Refused("busy")

    def _put_off(self, request: Request, operation: Operation) -> None:
        self._idle()
        self.operation = (request.id, operation)

    # The connection.

    def unknown(self, _request: Request) -> None:
        """A method that there is not."""
        raise Refused("unsupported_method")

    def initialize(self, request: Request) -> None:
        """Checks first, then the start; a refused check may be tried again, a failed start may not."""
        if self.state is not None:
            raise Refused("already_initialized")
        negotiated = negotiate(request.params)
        most = self.faults.most_tools
        if most is not None and len(negotiated.tools or {}) > most:
            raise Refused("invalid_params")
        self.negotiated = negotiated
        self.broker.tools = self.negotiated.tools or {}
        self.state = "starting"
        self.operation = (request.id, self._begin)

    def _begin(self) -> dict[str, Any]:
        try:
            self.host.rest(self.faults.start_s)
            desk = Desk(home_folder(self.environment), os.path.realpath("."))
        except (Refused, OSError):
            self.state = "configuration_invalid"
            raise Refused(self.state) from None
        if self.faults.start_error:
            self.state = self.faults.start_error
            raise Refused(self.state)
        self._desk = desk
        self.state = "ready"
        return self.negotiated.result(self.describe())

    def describe(self) -> dict[str, Any]:
        """What ``status`` tells."""
        states = {"starting": ("starting", "initializing"), "ready": ("running" if self.run else "idle", "ready")}
        state, readiness = states.get(str(self.state), ("failed", self.state))
        desk = self._desk
        selection, session = (desk.selection, desk.session) if desk else (None, None)
        restrictions = {f"{name}_disabled": f"MC_DISABLE_{name.upper()}" in self.environment for name in RESTRICTIONS}
        return {
            "state": state,
            "readiness": readiness,
            "provider": selection and selection["provider"],
            "model": selection and selection["model"],
            "context_id": desk and desk.context_id,
            "session_id": session and session.id,
            "run_id": self.run and self.run.id,
            "selection": selection,
            "standard_speed_forced": "MC_FORCE_STANDARD_SPEED" in self.environment,
            "capability_restrictions": restrictions,
        }

    def status(self, request: Request) -> None:
        """Always answered once ``initialize`` was admitted."""
        if self.state is None:
            raise Refused("not_initialized")
        fields(request.params, {})
        self.output.respond(request.id, result=self.describe())

    def shutdown(self, request: Request) -> None:
        """Answered first, then everything ends."""
        fields(request.params, {})
        self.output.respond(request.id, result={"state": "stopping"})
        if not self.faults.ignore_end:
            self.close()

    def cancel_operation(self, request: Request) -> None:
        """Cancels what was put off, by its request id."""
        if not self.negotiated.offers(request.method):
            raise Refused("unsupported_capability")
        request_id = fields(request.params, {"request_id": is_id})["request_id"]
        if self.operation is None or self.operation[0] != request_id:
            raise Refused("operation_missing")
        self.operation = None
        self.output.respond(request.id, result={"state": "cancelling", "request_id": request_id})
        self.output.respond(request_id, error="operation_cancelled")

    # Sessions and models: checked here, done by the desk when it is their turn.

    def _open_for(self, request: Request) -> None:
        self._ready()
        if not self.negotiated.offers(request.method):
            raise Refused("unsupported_capability")

    def create(self, request: Request) -> None:
        """A fresh session takes the attached one's place."""
        self._open_for(request)
        fields(request.params, {})
        self._put_off(request, self.desk.create)

    def open(self, request: Request) -> None:
        """The attached session again, or one of an earlier child; a refusal leaves the attached one as it is."""
        self._open_for(request)
        session_id = fields(request.params, {"session_id": is_session_id})["session_id"]
        self._put_off(request, lambda: self.desk.open(session_id))

    def history(self, request: Request) -> None:
        """One page of the attached session's history."""
        self._open_for(request)
        value = fields(request.params, {"session_id": is_session_id, "revision": is_id}, {"cursor": is_id_or_null})
        self._put_off(
            request, lambda: self.desk.attached(value["session_id"]).page(value["revision"], value.get("cursor"))
        )

    def sessions(self, request: Request) -> None:
        """``session.list``, and ``session.discover`` for whoever required it."""
        self._open_for(request)
        page = catalog.page_params(request.params)
        self._put_off(request, lambda: self.desk.sessions(page, discover=request.method == "session.discover"))

    def models(self, request: Request) -> None:
        """``model.catalog``, and ``model.catalog.status`` for whoever required it."""
        self._open_for(request)
        page = catalog.page_params(request.params)
        self._put_off(request, lambda: self.desk.models(page, status=request.method == "model.catalog.status"))

    def refresh(self, request: Request) -> None:
        """Nothing to fetch, so it always succeeds; the catalog's revision is a new one."""
        self._open_for(request)
        fields(request.params, {"provider": catalog.is_provider})
        self._put_off(request, self.desk.refresh)

    def select(self, request: Request) -> None:
        """Another model for the turns to come; it makes the session durable."""
        self._open_for(request)
        value = fields(request.params, catalog.SELECTION_FIELDS, catalog.SELECTION_OPTIONAL)
        self._put_off(request, lambda: self.desk.select(value))

    # Turns.

    def start(self, request: Request) -> None:
        """Admission only; everything else is the run's to tell."""
        self._ready()
        value = fields(request.params, {"session_id": is_session_id, "prompt": _is_prompt})
        self._idle()
        session = self.desk.attached(value["session_id"])
        run = Run(
            output=self.output,
            broker=self.broker,
            session=session,
            prompt=value["prompt"],
            host=self.host,
            with_cards=self.negotiated.cards,
        )
        self.run = run
        self.output.respond(request.id, result={"run_id": run.id, "accepted": True})
        echo = self.desk.selection["model"] == "echo"
        run.start(_play_echo if echo else _play, self._run_ended)

    def _run_ended(self) -> None:
        self.run = None

    def cancel(self, request: Request) -> None:
        """Asks for the end of the run; its ``run.finished`` follows."""
        value = fields(request.params, {"session_id": is_session_id, "run_id": is_id})
        with self.output.room:
            run = self.run
            if run is None or run.session.id != value["session_id"] or run.id != value["run_id"]:
                raise Refused("stale_run")
            self.output.respond(request.id, result={"cancellation_requested": True})
            run.cancel("cancelled")

    def approve(self, request: Request) -> None:
        """The first answer to an approval that is open counts."""
        ids = dict.fromkeys(("run_id", "approval_id"), is_id)
        value = fields(request.params, {"session_id": is_session_id, **ids, "allow": is_bool})
        with self.output.room:
            run = self.run
            mine = run is not None and (run.session.id, run.id) == (value["session_id"], value["run_id"])
            waiting = run.approvals if run is not None and mine else {}
            if waiting.get(value["approval_id"], True) is not None:
                raise Refused("stale_approval")
            self.output.respond(request.id, result={"recorded": True})
            waiting[value["approval_id"]] = value["allow"]
            self.output.room.notify_all()

    def tool_result(self, request: Request) -> None:
        """The client's answer to a call."""
        if self.negotiated.tools is None:
            raise Refused("unsupported_method")
        self._ready()
        self.broker.settle(request.id, request.params)


def _is_prompt(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value.encode()) <= PROMPT_BYTES


def _play(run: Run) -> None:
    steps = script.find(run.prompt)
    if steps is None:
        rules.follow(run)
    else:
        script.Player(run).play(steps)


def _play_echo(run: Run) -> None:
    run.say(run.prompt)


RESTRICTIONS: Final = ("skills", "mcp", "subagents")
METHODS: Final[dict[str, Callable[[Service, Request], None]]] = {
    "initialize": Service.initialize,
    "status": Service.status,
    "shutdown": Service.shutdown,
    "session.create": Service.create,
    "session.open": Service.open,
    "session.list": Service.sessions,
    "session.discover": Service.sessions,
    "history.page": Service.history,
    "model.catalog": Service.models,
    "model.catalog.status": Service.models,
    "model.refresh": Service.refresh,
    "selection.set": Service.select,
    "operation.cancel": Service.cancel_operation,
    "turn.start": Service.start,
    "turn.cancel": Service.cancel,
    "approval.answer": Service.approve,
    "client.tool.result": Service.tool_result,
}
