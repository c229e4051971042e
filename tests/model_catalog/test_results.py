"""Results fit the child's frame, whole or in parts, and nothing is lost (bridge 6; stdio protocol, Seen)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model.clean import ModelJson, ModelText
from gateway.model.error_texts import CallError, client_says, error_text
from gateway.model.results import Fitted, fit_result, part_text, split_text

ROOT = Path(__file__).parents[2]
CALL = "11111111-2222-4333-8444-555555555555"


def frame(text: str, structured: bytes | None) -> bytes:
    params: dict[str, Any] = {
        "instance_id": "i" * 36,
        "session_id": "s" * 36,
        "run_id": "r" * 36,
        "call_id": CALL,
        "task_id": "g1",
        "subagent_id": "call_1_0/" * 100,
        "status": "success",
        "text": text,
    }
    if structured is not None:
        params["structured"] = json.loads(structured)
    head = {"protocol": "magi-code.local-agent", "version": 1, "id": "x" * 64, "method": "client.tool.result"}
    return json.dumps({**head, "params": params}, ensure_ascii=False, separators=(",", ":")).encode()


OVERHEAD = len(frame("", None))


def fit(text: str, structured: Any = None, line: str | None = None) -> Fitted:
    raw = None if structured is None else json.dumps(structured, ensure_ascii=False, separators=(",", ":")).encode()
    made = fit_result(
        ModelText(text),
        None if raw is None else ModelJson(raw),
        call_id=CALL,
        overhead=OVERHEAD,
        line=None if line is None else ModelText(line),
    )
    shown = [part_text(made.parts, n + 1, call_id=CALL) for n in range(len(made.parts))]
    for sent, value in [(made.text, made.structured), *((part, None) for part in shown)]:
        assert sent is not None
        assert len(frame(sent, value)) <= 65_536
        assert len(sent.encode()) + len(value or b"") <= 32_768
    return made


@pytest.mark.parametrize("unit", ["a", '"', "\\", "\n", "\t", "é", "😀", "\u2028", 'x"\n'])
@pytest.mark.parametrize("count", [1, 32_400, 32_768, 32_769, 65_536])
def test_any_text_reaches_the_model_whole(unit: str, count: int) -> None:
    text = (unit * count)[:count]
    made = fit(text)
    if made.parts:
        assert "".join(made.parts) == text
        assert made.text.startswith(made.parts[0])
        assert f"part 1 of {len(made.parts)}; client__more" in made.text
        assert CALL in made.text
    else:
        assert made.text == text


def test_what_just_fits_goes_whole() -> None:
    assert fit("a" * 32_768).parts == ()
    assert len(fit("a" * 32_769).parts) == 2
    quotes = (65_536 - OVERHEAD) // 2
    assert fit('"' * quotes).parts == ()
    assert len(fit('"' * (quotes + 1)).parts) == 2


def test_a_structured_value_goes_as_such_when_it_fits() -> None:
    assert fit("t", {"a": [1]}) == Fitted(ModelText("t"), ModelJson(b'{"a":[1]}'))
    assert fit("t", None).structured is None
    made = fit("t", {"a": "x" * 32_768})
    assert made.structured is None
    assert "".join(made.parts) == "t\nstructured: " + json.dumps({"a": "x" * 32_768}, separators=(",", ":"))
    half = fit("t" * 20_000, "x" * 20_000)
    assert half.structured is None
    assert "".join(half.parts).endswith('structured: "' + "x" * 20_000 + '"')


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_a_structured_value_is_at_most_24_deep() -> None:
    assert fit("t", nested(24)).structured is not None
    assert fit("t", nested(25)) == Fitted(ModelText("t\nstructured: " + "[" * 25 + "1" + "]" * 25))
    assert fit("t", nested(100)).text.endswith("]" * 100)


def test_parts_end_at_lines_where_one_is_near() -> None:
    text = ("x" * 99 + "\n") * 1000
    parts = split_text(ModelText(text))
    assert all(part.endswith("\n") for part in parts)
    assert "".join(parts) == text
    far = "y\n" + "x" * 80_000
    assert len(split_text(ModelText(far))[0]) == 30_000


def test_the_line_about_tools_goes_along_and_is_bounded() -> None:
    assert fit("t", line="[changed]").text == "t\n\n[changed]"
    made = fit("t" * 32_768, line="[changed]")
    assert len(made.parts) == 2
    assert made.text.endswith("\n\n[changed]")
    assert len(fit('"' * 65_536, line="😀" * 10_000).parts) >= 2


def test_client_more_knows_its_parts() -> None:
    made = fit("a" * 70_000)
    assert part_text(made.parts, 0, call_id=CALL) is None
    assert part_text(made.parts, len(made.parts) + 1, call_id=CALL) is None
    last = part_text(made.parts, len(made.parts), call_id=CALL)
    assert last is not None
    assert last.endswith(f"[part {len(made.parts)} of {len(made.parts)}, the last]")


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50), st.integers(1, 3_000), st.booleans())
def test_parts_joined_are_the_text(unit: str, times: int, structured: bool) -> None:
    text = unit * times
    made = fit(text, unit if structured else None)
    if made.parts:
        assert "".join(made.parts).startswith(text)
        assert all(made.parts)


@pytest.mark.parametrize("error", CallError)
def test_error_texts_say_what_it_is_and_what_became_of_the_work(error: CallError) -> None:
    code, _, outcome = error.value
    text = error_text(error, "the limit")
    assert text.startswith(f"Error {code}: ")
    assert f"Outcome {outcome}: " in text
    assert "{detail}" not in text


def test_a_text_is_said_by_the_gateway_and_stands_in_one_place() -> None:
    """Each error has its use, and no module has a text of its own beside the table."""
    sources = {
        path: path.read_text(encoding="utf-8")
        for part in ("gateway", "adapters")
        for path in (ROOT / part).rglob("*.py")
        if path.name != "error_texts.py"
    }
    unused = [
        error.name for error in CallError if not any(f"CallError.{error.name}" in text for text in sources.values())
    ]
    assert not unused
    assert [path.name for path, text in sources.items() if re.search(r"[\"']Error [a-z_]+: ", text)] == []


def test_a_clients_own_error_begins_with_what_it_is() -> None:
    assert client_says("no such row") == "Error tool_failed: no such row"
    assert client_says("Error 7") == "Error 7"
    assert client_says(" ") == "Error tool_failed: the client says no more."
