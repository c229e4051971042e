"""What may be asked of an idle child beside runs: its history, its models, another model. Owns the pages and what of
them may be seen; must never start a run.

Sources: the base protocol's ``history.page``, ``model.catalog``, ``selection.set``; bridge 11. Cursors are handed out
with the revision that they belong to: a page of a history that has moved on is refused, never mixed.
"""

from typing import Final

from adapters.stdio.child import ChildError, ChildRefusedError
from adapters.stdio.generation import Generation
from adapters.stdio.requests import Request, RequestError, TooLargeError
from adapters.stdio.results import HistoryPage, ModelPage, Result, Selected, Selection, Status
from gateway.model import enquiries
from gateway.model.clean import LogText
from gateway.model.enquiries import CURSOR_CHARS, Effort, History, HistoryPart, Model, Models
from gateway.model.errors import Code, Refusal
from gateway.model.redaction import Redactor
from gateway.model.text import clean_text

ANSWER_S: Final = 20.0

_STALE: Final = frozenset({"stale_revision", "stale_catalog", "stale_selection", "stale_session"})
_INVALID: Final = frozenset({"selection_invalid", "effort_unsupported", "invalid_params"})


async def history(generation: Generation, revision: str, cursor: str | None, redactor: Redactor) -> History:
    """A page from the beginning, or from behind a cursor. Raises Refusal(CONFLICT, INVALID_REQUEST, CHILD_TIMEOUT)."""
    inner = None
    if cursor is not None:
        revision, inner = _split(cursor)
    page = await _ask(generation, generation.child.protocol.history_page(generation.session_id, revision, inner))
    assert isinstance(page, HistoryPage)
    parts = [
        HistoryPart(e.message_id, e.kind, _shown(e.text, redactor), e.partial, e.part, e.last_part)
        for e in page.entries
    ]
    return History(parts, _join(page.revision, page.next_cursor), page.complete)


async def models(generation: Generation, cursor: str | None, redactor: Redactor) -> Models:
    """A page of the models. Raises Refusal(CONFLICT, INVALID_REQUEST, CHILD_TIMEOUT)."""
    revision, inner = _split(cursor) if cursor is not None else (None, None)
    page = await _ask(generation, generation.child.protocol.model_catalog(revision, inner))
    assert isinstance(page, ModelPage)
    found = [
        Model(
            _shown(choice.provider, redactor),
            _shown(choice.model, redactor),
            _shown(choice.provider_name, redactor) if choice.provider_name is not None else None,
            _shown(choice.model_name, redactor) if choice.model_name is not None else None,
            _shown(choice.availability, redactor),
            _shown(choice.effort_support, redactor),
            [_shown(effort, redactor) for effort in choice.permitted_efforts],
        )
        for choice in page.choices
    ]
    selection = await _selection(generation)
    shown = shown_selection(selection, redactor) if selection is not None else None
    return Models(found, _join(page.revision, page.next_cursor), shown)


async def select_model(generation: Generation, provider: str, model: str, effort: Effort | None) -> Selected:
    """Another model from the next run on. Raises Refusal(INVALID_REQUEST) for one that there is not."""
    selection = await _selection(generation)
    if selection is None:
        raise Refusal(Code.CONFLICT, "the agent has no model that could be replaced")
    page = await _ask(generation, generation.child.protocol.model_catalog())
    assert isinstance(page, ModelPage)
    request = generation.child.protocol.selection_set(
        generation.session_id, selection.revision, page.revision, provider, model, effort
    )
    selected = await _ask(generation, request)
    assert isinstance(selected, Selected)
    return selected


def shown_selection(selection: Selection, redactor: Redactor) -> enquiries.Selection:
    """A selection as others may see it."""
    effective = selection.effective_effort
    return enquiries.Selection(
        _shown(selection.provider, redactor),
        _shown(selection.model, redactor),
        _shown(selection.requested_effort, redactor),
        _shown(effective, redactor) if effective is not None else None,
        _shown(selection.effort_support, redactor),
        [_shown(effort, redactor) for effort in selection.permitted_efforts],
    )


def _shown(text: str, redactor: Redactor) -> LogText:
    return redactor.log_text(clean_text(text))


async def _selection(generation: Generation) -> Selection | None:
    status = await _ask(generation, generation.child.protocol.status())
    assert isinstance(status, Status)
    return status.selection


async def _ask(generation: Generation, request: Request) -> Result:
    try:
        return await generation.child.request(request, ANSWER_S)
    except ChildRefusedError as refused:
        if refused.code in _STALE:
            raise Refusal(Code.CONFLICT, "this has changed since: read it again from its beginning") from None
        if refused.code in _INVALID:
            raise Refusal(Code.INVALID_REQUEST, f"the agent refused it: {refused.code}") from None
        raise Refusal(Code.CONFLICT, f"the agent refused it: {refused.code}") from None
    except TooLargeError as large:
        raise Refusal(Code.INVALID_REQUEST, f"the agent takes no {large.bound} of that size") from None
    except (ChildError, RequestError):
        raise Refusal(Code.CHILD_TIMEOUT) from None


def _join(revision: str, cursor: str | None) -> str | None:
    return None if cursor is None else f"{revision}~{cursor}"


def _split(cursor: str) -> tuple[str, str]:
    revision, found, inner = cursor.partition("~")
    if not found or not inner or len(cursor) > CURSOR_CHARS:
        raise Refusal(Code.INVALID_REQUEST, "cursor: not one of this list")
    return revision, inner
