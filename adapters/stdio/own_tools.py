"""The gateway's own tools as a child calls them: what is offered now, any tool by name, the rest of a long result.

Owns their answers (bridge 3, 6); descriptors and texts are ``gateway/model``'s.
"""

from collections.abc import Coroutine
from typing import Any, Final

from adapters.stdio.context import SessionContext
from gateway.model.catalog import DescriptorRedaction
from gateway.model.clean import ModelText
from gateway.model.error_texts import CallError, error_text
from gateway.model.limits import CHILD_RESULT_BYTES
from gateway.model.listing import list_text, tool_text
from gateway.model.names import MORE, TOOLS
from gateway.model.results import part_text, split_text
from gateway.services.answers import read_answer

_Answer = str | Coroutine[Any, Any, str]
_SURELY_WHOLE: Final = CHILD_RESULT_BYTES // 6
"""Characters that fit one answer however they are encoded and escaped."""
_KEPT: Final = 4


class OwnTools:
    """Answers of ``client__tools``, ``client__use`` and ``client__more`` for one run.

    Long answers of the gateway's own stand in no call's record: the session keeps the last few of them.
    """

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        redactor = context.services.redactor
        self._redaction = DescriptorRedaction(redactor.model_text, redactor.schema_json)

    def keep(self, call_id: str, text: ModelText) -> None:
        """An answer of ours that ``client__more`` may have to read on in."""
        if len(text) > _SURELY_WHOLE:
            answers = self._context.long_answers
            answers[call_id] = text
            while len(answers) > _KEPT:
                del answers[next(iter(answers))]

    def answer(self, name: str, arguments: dict[str, Any]) -> _Answer:
        """The text that answers ``client__tools`` or ``client__more``; the latter has to be read first."""
        if name == TOOLS:
            return self._tools(arguments)
        assert name == MORE
        return self._more(arguments)

    def _tools(self, arguments: dict[str, Any]) -> str:
        catalog, tool = self._context.catalog, arguments.get("tool")
        if isinstance(tool, str) and tool:
            item = catalog.by_name.get(tool)
            if item is None:
                return error_text(CallError.TOOL_GONE, tool[:64])
            return tool_text(item, self._redaction)
        query = arguments.get("query")
        return list_text(catalog, self._redaction, query if isinstance(query, str) else "")

    def use(self, arguments: dict[str, Any], *, delegated: bool) -> tuple[str, dict[str, Any] | None, str | None]:
        """What ``client__use`` is to call: (model name, arguments, None), or a text that says what is wrong."""
        tool, inner = arguments.get("tool"), arguments.get("arguments")
        if not isinstance(tool, str) or not isinstance(inner, dict):
            return "", None, error_text(CallError.USE_ARGUMENTS)
        if delegated and tool not in self._context.agent.delegated_use:
            return "", None, error_text(CallError.NOT_PERMITTED)
        return tool, inner, None  # pyright: ignore[reportUnknownVariableType]

    async def _more(self, arguments: dict[str, Any]) -> str:
        call_id, part = arguments.get("call_id"), arguments.get("part")
        if not isinstance(call_id, str) or not isinstance(part, int) or len(call_id) > 1024:
            return error_text(CallError.MORE_ARGUMENTS)
        if (kept := self._context.long_answers.get(call_id)) is not None:
            return _part(kept, part, call_id)
        record = await self._context.services.calls.get(self._context.session_id, call_id)
        if record is None or record.answer is None:
            return error_text(CallError.NO_SUCH_RESULT)
        answer = read_answer(record.answer)
        text = answer.text
        if answer.structured is not None:
            text = type(text)(f"{text}\nstructured: {answer.structured.decode()}")
        return _part(text, part, call_id)


def _part(text: ModelText, part: int, call_id: str) -> str:
    parts = split_text(text)
    return part_text(parts, part, call_id=call_id) or error_text(CallError.NO_SUCH_PART, str(len(parts)))
