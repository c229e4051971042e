"""The table of the HTTP protocol's routes. Owns which path has which operations; the handlers live by topic."""

from collections.abc import Sequence
from typing import Final

from starlette.routing import BaseRoute

from adapters.http import clients, enquiries, events, sessions, wire
from adapters.http.description import description_routes
from adapters.http.paths import Paths
from adapters.http.resource import Operation, Resource
from adapters.http.services import HttpServices
from adapters.http.stream import stream
from gateway.model.enquiries import History, Models, Selected

_SESSION: Final = "/v1/sessions/{sid}"
_CLIENT: Final = f"{_SESSION}/clients/{{cid}}"
_CALL: Final = f"{_CLIENT}/calls/{{call_id}}"
EVENT: Final = dict
"""An event of the log: its shapes are the model's."""

_PAGED: Final = ("limit", "after", "order")

# fmt: off
OPERATIONS: Final = (
    Operation("GET", "/v1/agents", "list_agents", sessions.agents,
        "The agents that this gateway is configured with.",
        {200: wire.AgentPage}, needs="key", query=_PAGED),
    Operation("POST", "/v1/sessions", "create_session", sessions.create,
        "Makes a session with its first token, which is shown once.",
        {201: wire.Session, 200: wire.Session}, needs="key", request=wire.CreateSession, key=True, errors=(404,)),
    Operation("GET", "/v1/sessions", "list_sessions", sessions.page,
        "Sessions, newest first.",
        {200: wire.SessionPage}, needs="key", query=_PAGED),
    Operation("GET", _SESSION, "get_session", sessions.get,
        "One session.",
        {200: wire.Session}),
    Operation("DELETE", _SESSION, "delete_session", sessions.delete,
        "Removes a session with all that is kept of it.",
        {204: None}, needs="key"),
    Operation("POST", f"{_SESSION}/tokens", "mint_session_token", sessions.mint,
        "Another token of the session, shown once.",
        {201: wire.NewToken, 200: wire.TokenReceipt}, needs="key", key=True),
    Operation("DELETE", f"{_SESSION}/tokens/{{token_id}}", "revoke_session_token", sessions.revoke,
        "Revokes a token; streams that stand on it end within a second.",
        {204: None}, needs="key"),
    Operation("GET", f"{_SESSION}/events", "list_session_events", events.page,
        "A page of the log.",
        {200: wire.EventPage}, query=("limit", "after_seq", "before_seq", "order")),
    Operation("POST", f"{_SESSION}/events", "post_session_event", events.post,
        "Queues an input.",
        {200: wire.Submitted}, request=wire.Input, key=True),
    Operation("GET", f"{_SESSION}/events/stream", "stream_session_events", stream,
        "The log as server-sent events: from a position, then live.",
        {200: None}, query=("after_seq", "deltas")),
    Operation("POST", f"{_SESSION}/cancel", "cancel_session_run", events.cancel,
        "Ends the active run, or the oldest that waits.",
        {200: wire.Cancelled}, key=True),
    Operation("POST", f"{_SESSION}/approvals/{{call_id}}", "resolve_approval", events.approve,
        "Answers an approval.",
        {200: EVENT}, needs="approve", request=wire.Allow | wire.Deny, key=True),
    Operation("GET", f"{_SESSION}/history", "get_session_history", enquiries.history,
        "The agent's own history, oldest first; with no agent running one is started.",
        {200: History}, query=("cursor",), errors=(409,)),
    Operation("GET", f"{_SESSION}/models", "list_session_models", enquiries.models,
        "The models that may be selected, and the one in use; with no agent running one is started.",
        {200: Models}, needs="key", query=("cursor",), errors=(409,)),
    Operation("PUT", f"{_SESSION}/model", "select_session_model", enquiries.select,
        "Another model from the next run on.",
        {200: Selected}, needs="key", request=wire.SelectModel, errors=(409,)),
    Operation("GET", f"{_SESSION}/clients", "list_clients", clients.page,
        "The live registrations.",
        {200: wire.ClientPage}),
    Operation("POST", f"{_SESSION}/clients", "register_client", clients.register,
        "Registers a client with its tools.",
        {201: wire.Registered}, request=wire.Register, key=True),
    Operation("DELETE", _CLIENT, "leave_client", clients.leave,
        "Ends a registration; its open calls fail.",
        {204: None}),
    Operation("PUT", f"{_CLIENT}/tools", "update_client_tools", clients.replace,
        "Replaces a client's whole list of tools.",
        {200: EVENT}, request=wire.Tools),
    Operation("POST", f"{_CLIENT}/ping", "ping_client", clients.ping,
        "Says that a client is still there.",
        {200: wire.Ping}, key=True),
    Operation("POST", f"{_CALL}/ack", "ack_client_call", clients.ack,
        "Says that a client works on a call.",
        {200: EVENT}, key=True),
    Operation("POST", f"{_CALL}/result", "answer_client_call", clients.result,
        "Answers a call.",
        {204: None}, request=wire.Result, key=True),
    Operation("GET", f"{_SESSION}/catalog", "get_catalog", clients.catalog,
        "The tools that the session's model can reach, and how.",
        {200: wire.Catalog}),
    Operation("GET", f"{_SESSION}/calls", "list_calls", clients.calls,
        "The session's calls, newest first.",
        {200: wire.CallPage}, query=("limit", "after", "state")),
)
# fmt: on
"""Every operation, in the order in which the description lists them."""


def routes(http: HttpServices, operations: Sequence[Operation] = OPERATIONS) -> list[BaseRoute]:
    """The routes; whatever else is asked below a session is 404, as a browser may read it. The description goes with
    them."""
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    resources = {path: Resource(http, path, group) for path, group in by_path.items()}
    unknown = Resource(http, f"{_SESSION}/{{rest}}", ())
    return [Paths(resources, {_SESSION: unknown}), *description_routes(operations)]
