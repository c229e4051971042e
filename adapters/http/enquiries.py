"""What may be asked of a session's agent beside runs: history, models, another model. Owns these routes' answers.

The answer is the owner's, wherever that node is; it goes out as it came, redacted there.
"""

import re
from typing import Final

from msgspec import json

from adapters.http import wire
from adapters.http.ask import Ask
from gateway.model.enquiries import CURSOR_CHARS, AskHistory, AskModels, Question, SelectModel
from gateway.model.errors import Code, Refusal
from gateway.web.replies import Reply

_CURSOR: Final = re.compile(rf"[\x21-\x7e]{{1,{CURSOR_CHARS}}}")
_select: Final = json.Decoder(wire.SelectModel)


async def history(ask: Ask) -> Reply:
    """``GET …/history``: a page of the agent's own history, oldest first."""
    return await _asked(ask, AskHistory(_cursor(ask)))


async def models(ask: Ask) -> Reply:
    """``GET …/models``: a page of the models that may be selected, and the selection."""
    return await _asked(ask, AskModels(_cursor(ask)))


async def select(ask: Ask) -> Reply:
    """``PUT …/model``: what is in effect from the next run on."""
    wanted = await ask.body(_select)
    return await _asked(ask, SelectModel(wanted.provider, wanted.model, wanted.effort))


async def _asked(ask: Ask, question: Question) -> Reply:
    if ask.http.draining():
        raise Refusal(Code.DRAINING)
    return Reply(200, await ask.http.enquiries.ask(ask.session_id, question))


def _cursor(ask: Ask) -> str | None:
    text = ask.query("cursor")
    if text is not None and not _CURSOR.fullmatch(text):
        raise Refusal(Code.INVALID_REQUEST, "cursor: not one of this list")
    return text
