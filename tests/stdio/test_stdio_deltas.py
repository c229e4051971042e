"""Live pieces of a message: whole characters only, whatever is held back; nothing of a secret around a hole."""

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
        deltas.add("m", text[at : at + piece], follows=True)
    deltas.close("m")
    assert "".join(json.loads(body)["text"] for body in published) == Redactor(()).log_text(text)
    assert [json.loads(body)["part"] for body in published] == list(range(len(published)))


VALUE = "0123456789abcdefghijklmnopqrstuvwxyz"
LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
SECRETS = {
    f"ghp_{VALUE}": VALUE,
    f"password = {VALUE}": VALUE,
    f"Authorization: Bearer {VALUE}": VALUE,
    "-----BEGIN PRIVATE KEY-----\n" + f"{LINE}\n" * 6 + "-----END PRIVATE KEY-----": LINE,
}


def shown_of(pieces: list[str], lost: int) -> str:
    published: list[bytes] = []
    deltas = Deltas(Redactor(()), published.append)
    for number, piece in enumerate(pieces):
        if number != lost:
            deltas.add("m", piece, follows=number != lost + 1)
    deltas.close("m")
    parts = [json.loads(body)["part"] for body in published]
    assert parts == sorted(set(parts))
    return "".join(json.loads(body)["text"] for body in published)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("size", [1, 5, 16])
async def test_a_lost_piece_lets_nothing_of_a_secret_through(secret: str, size: int):
    text = f"before {secret} behind\n\nafter"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    value = SECRETS[secret]
    parts = [value[at : at + 6] for at in range(len(value) - 5)]
    for lost in range(-1, len(pieces)):
        shown = shown_of(pieces, lost)
        assert not [part for part in parts if part in shown], (lost, shown)


@pytest.mark.parametrize("blank", ["\n\n", "\n\r\n"])
@pytest.mark.parametrize("size", [1, 2, 7])
async def test_a_reader_goes_on_at_the_blank_line_behind_a_hole(blank: str, size: int):
    text = "one two three\nfour" + blank + "five six"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert shown_of(pieces, 0) == "five six"
    assert shown_of(pieces, len(pieces)) == text
