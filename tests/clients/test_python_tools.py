"""Functions as tools in the Python client: schemas, arguments, answers."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from toolrelay_client import Answer, Call, ToolError, tool
from toolrelay_client.options import socket_url
from toolrelay_client.tools import answer_of

CALL = Call("call-1", "a tool", 1, float("inf"))


@dataclass
class Place:
    street: str
    number: int = 1


async def ship(to: Place, kind: Literal["fast", "slow"], count: Annotated[int, Meta(ge=1)] = 1, *, call: Call) -> str:
    """Ship it."""
    return f"{count} {kind} to {to.street} {to.number} by {call.idempotency_key}"


def test_a_schema_comes_from_annotations() -> None:
    made = tool(timeout_s=5, idempotent=True)(ship).wire()
    assert (made["name"], made["description"], made["timeout_ms"], made["idempotent"]) == (
        "ship",
        "Ship it.",
        5_000,
        True,
    )
    assert made["parameters"] == {
        "type": "object",
        "properties": {
            "to": {"$ref": "#/$defs/Place"},
            "kind": {"enum": ["fast", "slow"]},
            "count": {"type": "integer", "minimum": 1, "default": 1},
        },
        "required": ["to", "kind"],
        "additionalProperties": False,
        "$defs": {
            "Place": {
                "title": "Place",
                "type": "object",
                "properties": {"street": {"type": "string"}, "number": {"type": "integer", "default": 1}},
                "required": ["street"],
            }
        },
    }


async def test_arguments_are_read_by_their_types() -> None:
    made = tool(ship)
    given = {"to": {"street": "Main St"}, "kind": "fast"}
    assert await made.run(given, CALL) == Answer("1 fast to Main St 1 by call-1")
    for bad, why in (
        ({"to": 1, "kind": "fast"}, "Expected `object`, got `int` - at `$.to`"),
        ({**given, "count": 0}, "Expected `int` >= 1 - at `$.count`"),
        ({**given, "more": 1}, "unknown field `more`"),
    ):
        answer = await made.run(bad, CALL)
        assert answer.is_error
        assert why in answer.text


async def test_a_function_that_is_not_async_runs_and_errors_are_answers() -> None:
    def fails(how: str) -> str:
        raise ToolError("There is no row 9.") if how == "known" else ValueError("boom")

    made = tool(fails)
    assert await made.run({"how": "known"}, CALL) == Answer("There is no row 9.", is_error=True)
    assert await made.run({"how": "else"}, CALL) == Answer("The tool failed: ValueError: boom", is_error=True)


def test_every_parameter_needs_a_name_and_a_type() -> None:
    def bare(row) -> str:  # type: ignore[no-untyped-def]
        return str(row)

    def star(*rows: int) -> str:
        return str(rows)

    for function in (bare, star):
        with pytest.raises(TypeError, match=r"row"):
            tool(function)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, Answer("Done.")),
        ("text", Answer("text")),
        ({"rows": [1]}, Answer('{"rows":[1]}')),
        (Place("Main St"), Answer('{"street":"Main St","number":1}')),
        (
            "x" * 65_537,
            Answer("The tool's result is too large: at most 65536 characters.", is_error=True),
        ),
        (
            Answer("", structured="x" * 65_536),
            Answer("The tool's structured result is too large: at most 65536 bytes.", is_error=True),
        ),
    ],
    ids=["nothing", "text", "json", "dataclass", "too long", "structured too large"],
)
def test_what_is_returned_is_an_answer(value: Any, expected: Answer) -> None:
    assert answer_of(value) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://a.example/base/", "wss://a.example/base/v1/ws"),
        ("ws://a.example/v1/ws?token=x", "ws://a.example/v1/ws"),
    ],
)
def test_addresses(given: str, expected: str) -> None:
    assert socket_url(given) == expected


@pytest.mark.parametrize("given", ["ftp://a.example", "a.example", "http://"])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(ValueError, match="address"):
        socket_url(given)
