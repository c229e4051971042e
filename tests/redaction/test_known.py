"""Known secrets in every form that they may turn up in."""

import base64
import json
import re
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model.redaction import KnownSecret, Redactor
from gateway.model.redaction.known import KnownForms

VALUE = 'pässwort/with spaces+&"quotes"\\1'
REDACTOR = Redactor(
    [KnownSecret(VALUE, "redis password"), KnownSecret("scripted", "eight"), KnownSecret("seven77", "short")]
)


@pytest.mark.parametrize(
    "text",
    [
        VALUE,
        f"x{VALUE}y",
        json.dumps(VALUE),
        json.dumps(VALUE, ensure_ascii=False),
        json.dumps(json.dumps(VALUE)),
        quote(VALUE),
        quote(VALUE, safe=""),
        quote(VALUE, safe="").lower(),
        quote_plus(VALUE),
        VALUE.encode().hex(),
    ],
)
def test_forms(text: str) -> None:
    out = REDACTOR.log_text(f"before {text} after")
    assert "[redacted:redis-password]" in out
    assert out.startswith("before ")
    assert out.endswith(" after")
    assert "with" not in out
    assert "wort" not in out


@settings(max_examples=200, deadline=None)
@given(before=st.binary(max_size=7), behind=st.binary(max_size=7), url=st.booleans())
def test_base64_at_every_alignment(before: bytes, behind: bytes, url: bool) -> None:
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    text = encode(before + VALUE.encode() + behind).decode()
    # What stands before it may make it look like something else too, whose kind is named then.
    kept, hidden = re.subn(r"\[redacted:[^\]]+\]", "", REDACTOR.log_text(text))
    assert hidden
    assert len(kept) <= (len(before) + len(behind)) * 4 / 3 + 8


def test_short_ones_are_no_secrets_and_eight_characters_are() -> None:
    assert REDACTOR.log_text("seven77 and scripted") == "seven77 and [redacted:eight]"


def test_lines_of_a_long_secret_are_known_too() -> None:
    lines = ["first-line-of-the-secret", "second-line-of-the-secret"]
    redactor = Redactor([KnownSecret("\n".join(lines) + "\n", "file")])
    assert redactor.log_text(f"a {lines[1]} b") == "a [redacted:file] b"
    assert redactor.log_text("\n".join(lines)) == "[redacted:file]"


def test_one_secret_inside_another() -> None:
    redactor = Redactor([KnownSecret("abcdefgh", "inner"), KnownSecret("xx-abcdefgh-yy", "outer")])
    assert redactor.log_text("xx-abcdefgh-yy abcdefgh") == "[redacted:outer] [redacted:inner]"


def test_overlapping_secrets_leave_nothing() -> None:
    redactor = Redactor([KnownSecret("abcdefgh12", "one"), KnownSecret("gh12345678", "two")])
    assert redactor.log_text("-abcdefgh12345678-") == "-[redacted:one]-"


def test_a_value_is_never_shown() -> None:
    secret = KnownSecret(VALUE, "label")
    assert VALUE not in repr(secret)
    assert VALUE not in str(secret)


def test_no_secrets_at_all() -> None:
    assert KnownForms([]).live_from(b"abc", 0) == 3
    assert Redactor([]).log_text("abc") == "abc"


def test_a_thousand_secrets() -> None:
    redactor = Redactor([KnownSecret(f"secret/number-{at:05}-of-many", f"key-{at}") for at in range(1_000)])
    assert redactor.log_text("a secret/number-00777-of-many b") == "a [redacted:key-777] b"
    assert redactor.log_text("a secret/number-77777-of-many b") == "a secret/number-77777-of-many b"


def test_more_than_fits_is_refused_not_ignored() -> None:
    with pytest.raises(ValueError, match="too many known secrets"):
        Redactor([KnownSecret(f"{at:06}" + "x" * 3_000, "k") for at in range(400)])
