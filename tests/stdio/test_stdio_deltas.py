"""Live pieces of a message: whole characters only, whatever is held back."""

import json

import pytest

from adapters.stdio.deltas import Deltas
from gateway.model.redaction import Redactor

TEXTS = ["é" * 300, "\u2028" * 300, "😀 ey" * 100, "token=\u2028" * 40, "x\u2028" * 200]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("piece", [1, 3, 7, 250])
async def test_pieces_of_any_size_give_the_whole_text(text: str, piece: int):
    published: list[bytes] = []
    deltas = Deltas(Redactor(()), published.append)
    for at in range(0, len(text), piece):
        deltas.add("m", text[at : at + piece], whole=True)
    deltas.close("m")
    assert "".join(json.loads(body)["text"] for body in published) == Redactor(()).log_text(text)
    assert [json.loads(body)["part"] for body in published] == list(range(len(published)))
