"""The requests of a child: what each method checks, in which order, and what it answers. Owns the child's state.

Everything here happens in the loop's thread. Work that the real child gives to its one worker (the start, sessions,
history, catalogs, selection) is put off until all requests at hand were read, so requests that overlap it hear
``busy`` here too.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import catalog
import rules
import script
from calls import Broker
from faults import Settings
from frames import PROMPT_BYTES, REQUESTS, Refused, Request, fields, is_bool, is_id, is_session_id, parse_request
from handshake import Negotiated, negotiate
from output import Output
from runs import Run
from sessions import Session, Store

if TYPE_CHECKING:
    from loop import Loop

Operation = Callable[[], dict[str, Any]]


def home_folder(environment: Mapping[str, str]) -> Path:
    """Where sessions are kept: ``MC_HOME``, which must be absolute, or a folder below the user's or the temporary one."""
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
        self.store: Store | None = None
        self.context_id: str | None = None
        self.session: Session | None = None
        self.run: Run | None = None
        self.selection: dict[str, Any] | None = None
        self.closing = False
        self.operation: tuple[str, Operation] | None = None
        self.lists = {
            "session.list": catalog.Pager("sessions", "stale_revision"),
            "session.discover": catalog.Pager("sessions", "stale_revision"),
        }
        self.models = catalog.Pager("choices", "stale_catalog")

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

    def _attached(self, session_id: str) -> Session:
        if self.session is None:
            raise Refused("session_missing")
        if self.session.id != session_id:
            raise Refused("stale_session")
        return self.session

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
        self.negotiated = negotiate(request.params)
        self.broker.tools = self.negotiated.tools or {}
        self.state = "starting"
        self.operation = (request.id, self._begin)

    def _begin(self) -> dict[str, Any]:
        try:
            self.host.rest(self.faults.start_s)
            home = home_folder(self.environment)
            cwd = os.path.realpath(".")
            store = Store(home, cwd)
            store.prepare()
            if self.faults.start_error:
                raise Refused(self.faults.start_error)
        except (Refused, OSError) as error:
            self.state = error.code if isinstance(error, Refused) else "configuration_invalid"
            raise Refused(self.state) from None
        self.store = store
        self.context_id = hashlib.sha256(f"{cwd}\0{os.path.realpath(home)}".encode()).hexdigest()
        self.selection = catalog.selection("rules")
        self.state = "ready"
        return self.negotiated.result(self.describe())

    def describe(self) -> dict[str, Any]:
        """What ``status`` tells."""
        states = {"starting": ("starting", "initializing"), "ready": ("running" if self.run else "idle", "ready")}
        state, readiness = states.get(str(self.state), ("failed", self.state))
        restrictions = {f"{name}_disabled": f"MC_DISABLE_{name.upper()}" in self.environment for name in RESTRICTIONS}
        return {
            "state": state,
            "readiness": readiness,
            "provider": self.selection and self.selection["provider"],
            "model": self.selection and self.selection["model"],
            "context_id": self.context_id,
            "session_id": self.session and self.session.id,
            "run_id": self.run and self.run.id,
            "selection": self.selection,
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

    # Sessions.

    def create(self, request: Request) -> None:
        """A fresh session takes the attached one's place."""
        self._ready()
        fields(request.params, {})

        def operation() -> dict[str, Any]:
            assert self.store is not None
            return self._attach(self.store.create())

        self._put_off(request, operation)

    def open(self, request: Request) -> None:
        """The attached session again, or one of an earlier child; a refusal leaves the attached one as it is."""
        self._ready()
        session_id = fields(request.params, {"session_id": is_session_id})["session_id"]

        def operation() -> dict[str, Any]:
            assert self.store is not None
            mine = self.session is not None and self.session.id == session_id
            return self._attach(self.session if mine and self.session else self.store.open(session_id))

        self._put_off(request, operation)

    def _attach(self, session: Session) -> dict[str, Any]:
        if self.session is not None and self.session is not session:
            self.session.release()
        self.session = session
        chosen = [record for record in session.records if record["kind"] == "selection"]
        model, effort = (chosen[-1]["model"], chosen[-1]["effort"]) if chosen else ("rules", "default")
        self.selection = catalog.selection(model, effort)
        revision = session.renew()
        return {"session_id": session.id, "durable": session.durable, "revision": revision, "notices": []}

    def history(self, request: Request) -> None:
        """One page of the attached session's history."""
        self._ready()
        cursor = {"cursor": lambda value: value is None or is_id(value)}
        value = fields(request.params, {"session_id": is_session_id, "revision": is_id}, cursor)
        self._put_off(request, lambda: self._attached(value["session_id"]).page(value["revision"], value.get("cursor")))

    def sessions(self, request: Request) -> None:
        """``session.list``, and ``session.discover`` for whoever required it."""
        self._ready()
        if not self.negotiated.offers(request.method):
            raise Refused("unsupported_capability")
        revision, cursor, limit = catalog.page_params(request.params)
        pager = self.lists[request.method]

        def operation() -> dict[str, Any]:
            assert self.store is not None
            notices: list[str] = []
            if revision is None:
                found, notices = self.store.listing(self.session)
                pager.fresh(found)
            page = {**pager.page(revision, cursor, limit), "notices": notices}
            if request.method == "session.discover":
                page["consistency"] = "provisional_until_complete"
                page["progress"] = "complete" if page["complete"] else "page_entries"
                page["recovery"] = "none" if page["complete"] else "continue_cursor"
            return page

        self._put_off(request, operation)

    # Models.

    def catalog(self, request: Request) -> None:
        """``model.catalog``, and ``model.catalog.status`` for whoever required it."""
        self._ready()
        if not self.negotiated.offers(request.method):
            raise Refused("unsupported_capability")
        revision, cursor, limit = catalog.page_params(request.params)

        def operation() -> dict[str, Any]:
            if revision is None:
                self.models.fresh(catalog.choices())
            page = {**self.models.page(revision, cursor, limit), "notices": [], "source": "cache_only"}
            if request.method == "model.catalog.status":
                page |= {"configuration_reload": "restart_child", "providers": [catalog.PROVIDER_STATUS]}
            return page

        self._put_off(request, operation)

    def refresh(self, request: Request) -> None:
        """Nothing to fetch, so it always succeeds; the catalog's revision is a new one."""
        self._ready()
        if not self.negotiated.offers(request.method):
            raise Refused("unsupported_capability")
        provider = fields(request.params, {"provider": lambda value: value == catalog.PROVIDER})["provider"]

        def operation() -> dict[str, Any]:
            return {
                "provider": provider,
                "outcome": "refreshed",
                "reason": None,
                "catalog_revision": self.models.fresh(catalog.choices()),
                "catalog_error": None,
                "recovery": "reload_catalog",
                "configuration_reload": "restart_child",
                "selection_unchanged": True,
            }

        self._put_off(request, operation)

    def select(self, request: Request) -> None:
        """Another model for the turns to come; it makes the session durable."""
        self._ready()
        value = fields(request.params, catalog.SELECTION_FIELDS, catalog.SELECTION_OPTIONAL)

        def operation() -> dict[str, Any]:
            session = self._attached(value["session_id"])
            assert self.selection is not None
            if value["selection_revision"] != self.selection["revision"]:
                raise Refused("stale_selection")
            if value["catalog_revision"] != self.models.revision:
                raise Refused("stale_catalog")
            chosen = catalog.choose(self.selection, value)
            session.append("selection", model=chosen["model"], effort=chosen["requested_effort"])
            self.selection = chosen
            return {
                "session_id": session.id,
                "selection": chosen,
                "catalog_revision": self.models.revision,
                "scope": "session",
                "durable": True,
                "history_revision": session.renew(),
                "notices": [],
            }

        self._put_off(request, operation)

    # Turns.

    def start(self, request: Request) -> None:
        """Admission only; everything else is the run's to tell."""
        self._ready()
        value = fields(request.params, {"session_id": is_session_id, "prompt": _is_prompt})
        self._idle()
        session = self._attached(value["session_id"])
        run = Run(output=self.output, broker=self.broker, session=session, prompt=value["prompt"], host=self.host)
        self.run = run
        self.output.respond(request.id, result={"run_id": run.id, "accepted": True})
        echo = self.selection is not None and self.selection["model"] == "echo"
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
    "model.catalog": Service.catalog,
    "model.catalog.status": Service.catalog,
    "model.refresh": Service.refresh,
    "selection.set": Service.select,
    "operation.cancel": Service.cancel_operation,
    "turn.start": Service.start,
    "turn.cancel": Service.cancel,
    "approval.answer": Service.approve,
    "client.tool.result": Service.tool_result,
}
