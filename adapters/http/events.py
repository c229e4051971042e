"""A session's log and its runs: pages, inputs, cancel, approvals. Owns these answers; events go out as stored."""

from typing import Final

from msgspec import UNSET, json

from adapters.http import wire
from adapters.http.ask import Ask
from gateway.auth.principals import ApiKeyHolder
from gateway.bus.log import Entry
from gateway.model.errors import Code, Refusal
from gateway.model.limits import EVENTS_PAGE
from gateway.web.replies import Reply, json_reply

OLDEST: Final = b"toolrelay-oldest-seq"
_PAGE: Final = 100
_input: Final = json.Decoder(wire.Input)
_decision: Final = json.Decoder(wire.Decision)


async def page(ask: Ask) -> Reply:
    """``GET …/events``: newest first unless ``order=asc``. What is no longer kept is left out, and the header says
    which event is the oldest."""
    limit = ask.limit(_PAGE, EVENTS_PAGE)
    after, before, ascending = ask.seq("after_seq"), ask.seq("before_seq"), ask.order()
    http = ask.http
    head = await http.log.head(ask.session_id)  # 404 where there is no session
    entries = await http.log.page(ask.session_id, after=after, before=before, descending=not ascending, count=limit + 1)
    shown = entries[:limit]
    cursor = shown[-1].seq if len(entries) > limit else None
    headers = await _trimmed(ask, shown, (after or 0) + 1, min(before or head + 1, head + 1), ascending, cursor)
    events = b",".join(entry.event for entry in await http.feeds.executing.joined(ask.session_id, shown))
    body = b'{"items":[%s],"next_cursor":%s}' % (events, b"null" if cursor is None else b"%d" % cursor)
    return Reply(200, body, headers)


async def _trimmed(
    ask: Ask, shown: list[Entry], first: int, end: int, ascending: bool, cursor: int | None
) -> tuple[tuple[bytes, bytes], ...]:
    """The header where the page reached events that are gone: some of ``first`` up to ``end`` were asked for."""
    if shown:
        lowest = shown[0].seq if ascending else shown[-1].seq
        reached = lowest > first and (ascending or cursor is None)
        return ((OLDEST, b"%d" % lowest),) if reached else ()
    if first >= end:
        return ()
    return ((OLDEST, b"%d" % await ask.http.log.oldest(ask.session_id)),)


async def post(ask: Ask) -> Reply:
    """``POST …/events``: queues an input."""
    wanted = await ask.body(_input)
    if ask.http.draining():
        raise Refusal(Code.DRAINING)
    run_id = await ask.http.conversations.submit(ask.session_id, wanted.text, ask.input_idempotency(wanted.text))
    return json_reply(200, wire.Submitted("new_run", run_id))


async def cancel(ask: Ask) -> Reply:
    """``POST …/cancel``: answers when the run has ended, after ten seconds at most."""
    return json_reply(200, wire.Cancelled(await ask.http.conversations.cancel(ask.session_id, ask.idempotency())))


async def approve(ask: Ask) -> Reply:
    """``POST …/approvals/{call_id}``: the ``approval_resolved`` event."""
    approval_id = ask.call_id()
    decision = await ask.body(_decision)
    if isinstance(decision, wire.Allow) and decision.message is not UNSET:
        raise Refusal(Code.INVALID_REQUEST, "message: may stand beside deny only")
    message = decision.message if isinstance(decision, wire.Deny) else None
    principal = ask.principal
    by = f"api_key:{principal.label}" if isinstance(principal, ApiKeyHolder) else "session_token"
    event = await ask.http.conversations.approve(
        ask.session_id,
        approval_id,
        "deny" if isinstance(decision, wire.Deny) else "allow",
        message,
        by,
        ask.idempotency(),
    )
    return Reply(200, event)
