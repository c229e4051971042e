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

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/agents",
        name="list_agents",
        summary="The agents that this gateway is configured with.",
        handler=sessions.agents,
        needs="key",
        query=("limit", "after", "order"),
        answers={200: wire.AgentPage},
    ),
    Operation(
        method="POST",
        path="/v1/sessions",
        name="create_session",
        summary="Makes a session with its first token, which is shown once.",
        handler=sessions.create,
        needs="key",
        request=wire.CreateSession,
        key=True,
        answers={201: wire.Session, 200: wire.Session},
        errors=(404, 409, 503),
    ),
    Operation(
        method="GET",
        path="/v1/sessions",
        name="list_sessions",
        summary="Sessions, newest first.",
        handler=sessions.page,
        needs="key",
        query=("limit", "after", "order"),
        answers={200: wire.SessionPage},
    ),
    Operation(
        method="GET",
        path=_SESSION,
        name="get_session",
        summary="One session.",
        handler=sessions.get,
        needs="token",
        answers={200: wire.Session},
    ),
    Operation(
        method="DELETE",
        path=_SESSION,
        name="delete_session",
        summary="Removes a session with all that is kept of it.",
        handler=sessions.delete,
        needs="key",
        answers={204: None},
    ),
    Operation(
        method="POST",
        path=f"{_SESSION}/tokens",
        name="mint_session_token",
        summary="Another token of the session, shown once.",
        handler=sessions.mint,
        needs="key",
        key=True,
        answers={201: wire.NewToken, 200: wire.TokenReceipt},
        errors=(409,),
    ),
    Operation(
        method="DELETE",
        path=f"{_SESSION}/tokens/{{token_id}}",
        name="revoke_session_token",
        summary="Revokes a token; streams that stand on it end within a second.",
        handler=sessions.revoke,
        needs="key",
        answers={204: None},
    ),
    Operation(
        method="GET",
        path=f"{_SESSION}/events",
        name="list_session_events",
        summary="A page of the log.",
        handler=events.page,
        needs="token",
        query=("limit", "after_seq", "before_seq", "order"),
        answers={200: wire.EventPage},
    ),
    Operation(
        method="POST",
        path=f"{_SESSION}/events",
        name="post_session_event",
        summary="Queues an input.",
        handler=events.post,
        needs="token",
        request=wire.Input,
        key=True,
        answers={200: wire.Submitted},
        errors=(409, 503),
    ),
    Operation(
        method="GET",
        path=f"{_SESSION}/events/stream",
        name="stream_session_events",
        summary="The log as server-sent events: from a position, then live.",
        handler=stream,
        needs="token",
        query=("after_seq", "deltas"),
        answers={200: None},
        errors=(503,),
    ),
    Operation(
        method="POST",
        path=f"{_SESSION}/cancel",
        name="cancel_session_run",
        summary="Ends the active run, or the oldest that waits.",
        handler=events.cancel,
        needs="token",
        key=True,
        answers={200: wire.Cancelled},
        errors=(409,),
    ),
    Operation(
        method="POST",
        path=f"{_SESSION}/approvals/{{call_id}}",
        name="resolve_approval",
        summary="Answers an approval.",
        handler=events.approve,
        needs="approve",
        request=wire.Allow | wire.Deny,  # pyright: ignore[reportArgumentType]
        key=True,
        answers={200: EVENT},
        errors=(409,),
    ),
    Operation(
        method="GET",
        path=f"{_SESSION}/history",
        name="get_session_history",
        summary="The agent's own history, oldest first; with no agent running one is started.",
        handler=enquiries.history,
        needs="token",
        query=("cursor",),
        answers={200: History},
        errors=(409,),
    ),
    Operation(
        method="GET",
        path=f"{_SESSION}/models",
        name="list_session_models",
        summary="The models that may be selected, and the one in use; with no agent running one is started.",
        handler=enquiries.models,
        needs="key",
        query=("cursor",),
        answers={200: Models},
        errors=(409,),
    ),
    Operation(
        method="PUT",
        path=f"{_SESSION}/model",
        name="select_session_model",
        summary="Another model from the next run on.",
        handler=enquiries.select,
        needs="key",
        request=wire.SelectModel,
        answers={200: Selected},
        errors=(409,),
    ),
    Operation(
        method="GET",
        path=f"{_SESSION}/clients",
        name="list_clients",
        summary="The live registrations.",
        handler=clients.page,
        needs="token",
        answers={200: wire.ClientPage},
    ),
    Operation(
        method="POST",
        path=f"{_SESSION}/clients",
        name="register_client",
        summary="Registers a client with its tools.",
        handler=clients.register,
        needs="token",
        request=wire.Register,
        key=True,
        answers={201: wire.Registered},
        errors=(409,),
    ),
    Operation(
        method="DELETE",
        path=_CLIENT,
        name="leave_client",
        summary="Ends a registration; its open calls fail.",
        handler=clients.leave,
        needs="token",
        answers={204: None},
    ),
    Operation(
        method="PUT",
        path=f"{_CLIENT}/tools",
        name="update_client_tools",
        summary="Replaces a client's whole list of tools.",
        handler=clients.replace,
        needs="token",
        request=wire.Tools,
        answers={200: EVENT},
    ),
    Operation(
        method="POST",
        path=f"{_CLIENT}/ping",
        name="ping_client",
        summary="Says that a client is still there.",
        handler=clients.ping,
        needs="token",
        key=True,
        answers={200: wire.Ping},
    ),
    Operation(
        method="POST",
        path=f"{_CALL}/ack",
        name="ack_client_call",
        summary="Says that a client works on a call.",
        handler=clients.ack,
        needs="token",
        key=True,
        answers={200: EVENT},
        errors=(409,),
    ),
    Operation(
        method="POST",
        path=f"{_CALL}/result",
        name="answer_client_call",
        summary="Answers a call.",
        handler=clients.result,
        needs="token",
        request=wire.Result,
        key=True,
        answers={204: None},
        errors=(409,),
    ),
    Operation(
        method="GET",
        path=f"{_SESSION}/catalog",
        name="get_catalog",
        summary="The tools that the session's model can reach, and how.",
        handler=clients.catalog,
        needs="token",
        answers={200: wire.Catalog},
    ),
    Operation(
        method="GET",
        path=f"{_SESSION}/calls",
        name="list_calls",
        summary="The session's calls, newest first.",
        handler=clients.calls,
        needs="token",
        query=("limit", "after", "state"),
        answers={200: wire.CallPage},
    ),
)
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
