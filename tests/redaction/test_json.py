"""JSON goes through byte by byte but for what is removed."""

import json
import re
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.model.redaction import RULES, KnownSecret, RedactionCollision, Redactor
from gateway.model.redaction.names import Strength, strength
from gateway.model.redaction.samples import made

KNOWN = 'Tr0ub4dor&3/é"x'
NUMBER = "918273645546"
REDACTOR = Redactor([KnownSecret(KNOWN, "trouble"), KnownSecret(NUMBER, "number")])
NAMED = b'"[redacted:named-value]"'
GITHUB = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def same(raw: bytes) -> bool:
    return REDACTOR.log_json(raw) is raw


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b"[]",
        b'""',
        b"null",
        b'{"id":9223372036854775807,"big":123456789012345678901234567890,"minus":-0,"inf":1e400,"f":1.0,"e":1E+2}',
        b'{"b":1,"a":2,"b":3}',
        b' { "a" : [ 1 , 2 ] }\n',
        b'{"s":"\\u00e9\\/\\n\\ud83d\\ude00\\ud800"}',
        '{"é":"€"}'.encode(),
        b'{"next_token":"abc123def456","token_count":12,"max_tokens":100,"key_id":"k1","author":"me","public_key":"ssh"}',
        b'{"password":null,"secret":true,"token":false,"api_key":""}',
    ],
)
def test_what_holds_no_secret_comes_back_as_the_same_object(raw: bytes) -> None:
    assert same(raw)


def test_everything_else_stays_to_the_byte() -> None:
    raw = (
        b' {"id":9223372036854775807,"n":-0, "x" : 1e400,"s":"\\u00e9\\/ok","dup":1,"dup":2,"t":"see '
        + GITHUB.encode()
        + b' \\u0041","z":[1.0,{}]} '
    )
    assert REDACTOR.log_json(raw) == (
        b' {"id":9223372036854775807,"n":-0, "x" : 1e400,"s":"\\u00e9\\/ok","dup":1,"dup":2,'
        b'"t":"see [redacted:github-token] A","z":[1.0,{}]} '
    )


@pytest.mark.parametrize("secret", [GITHUB, KNOWN])
def test_a_secret_written_with_escapes_is_found(secret: str) -> None:
    raw = ('{"a":"x ' + "".join(f"\\u{ord(char):04x}" for char in secret) + '"}').encode()
    out = json.loads(REDACTOR.log_json(raw))
    assert out["a"].startswith("x [redacted:")
    assert secret not in out["a"]


def test_a_secret_after_an_escaped_line_feed_is_found() -> None:
    raw = json.dumps({"a": f"one\n{GITHUB}\ttwo \\"}).encode()
    assert json.loads(REDACTOR.log_json(raw)) == {"a": "one\n[redacted:github-token]\ttwo \\"}


def test_escaped_backslashes_are_not_escapes() -> None:
    raw = json.dumps({"a": "C:\\new\\" + GITHUB, "b": "\\\\u0041"}).encode()
    out = json.loads(REDACTOR.log_json(raw))
    assert out == {"a": "C:\\new\\[redacted:github-token]", "b": "\\\\u0041"}


def test_json_inside_json_inside_json() -> None:
    inner = json.dumps({"password": "hunter2!hunter2", "t": f"\n{GITHUB}"})
    out = REDACTOR.log_json(json.dumps({"body": json.dumps({"inner": inner})}).encode())
    assert b"hunter2!hunter2" not in out
    assert GITHUB.encode() not in out
    json.loads(json.loads(out)["body"])


def test_keys_are_redacted_and_colliding_keys_refused() -> None:
    other = GITHUB[:-4] + "zzzz"
    assert REDACTOR.log_json(json.dumps({GITHUB: 1, "b": 2}).encode()) == b'{"[redacted:github-token]": 1, "b": 2}'
    with pytest.raises(RedactionCollision) as caught:
        REDACTOR.log_json(json.dumps({"o": {GITHUB: 1, other: 2}}).encode())
    assert GITHUB not in str(caught.value)
    with pytest.raises(RedactionCollision):
        REDACTOR.model_json(json.dumps({GITHUB: 1, "[redacted:github-token]": 2}).encode())
    same_key_twice = f'{{"{GITHUB}":1,"{GITHUB}":2}}'.encode()
    assert REDACTOR.log_json(same_key_twice) == b'{"[redacted:github-token]":1,"[redacted:github-token]":2}'
    REDACTOR.log_json(json.dumps({"a": {GITHUB: 1}, "b": {other: 2}}).encode())


def test_values_under_credential_like_keys() -> None:
    raw = (
        b'{"user":"me","password":"correct","pin_code":7,"apiKey":12345,'
        b'"passwords":["a",{"deep":["b",1,null,true]}],"z":1}'
    )
    assert REDACTOR.log_json(raw) == (
        b'{"user":"me","password":' + NAMED + b',"pin_code":7,"apiKey":' + NAMED + b',"passwords":[' + NAMED
        + b',{"deep":[' + NAMED + b"," + NAMED + b',null,true]}],"z":1}'
    )  # fmt: skip
    assert REDACTOR.dispatch_json(raw, by_name=False) is raw
    assert REDACTOR.dispatch_json(raw, by_name=True) == REDACTOR.log_json(raw)
    assert REDACTOR.model_json(raw) == REDACTOR.log_json(raw)


def test_an_escaped_key_is_still_a_name() -> None:
    assert REDACTOR.log_json(b'{"p\\u0061ssword":"correct"}') == b'{"p\\u0061ssword":' + NAMED + b"}"


def test_a_name_with_quotes_in_it_is_still_one() -> None:
    raw = b'{"my\\"password\\"":"correct","a \\"token\\": it":"stays","say \\"token\\" please":"stays"}'
    assert REDACTOR.log_json(raw) == raw.replace(b'"correct"', NAMED)


@pytest.mark.parametrize("name", ["API Key", "api - key", "connect-sid", "otp_value", "0PW", 'api\\"key', "auth2"])
def test_names_of_several_words(name: str) -> None:
    assert REDACTOR.log_json(f'{{"{name}":"correct"}}'.encode()) == f'{{"{name}":'.encode() + NAMED + b"}"


def test_a_placeholder_alone_may_stand_under_a_name() -> None:
    assert same(b'{"password":"[redacted:github-token]","token":["[redacted:x]"]}')
    assert REDACTOR.log_json(b'{"password":"[redacted:x] correct"}') == b'{"password":' + NAMED + b"}"


def test_a_name_reaches_no_further_than_its_value() -> None:
    raw = b'{"password" : "correct" , "token":{"a":1},"b":2,"auth":{"user":"me"},"secret":[],"c":["token",3]}'
    assert REDACTOR.log_json(raw) == raw.replace(b'"correct"', NAMED).replace(b'{"a":1}', b'{"a":' + NAMED + b"}")


def test_a_known_secret_beyond_the_basic_plane_is_found_in_its_escapes() -> None:
    known = "correct \U0001f600 horse"
    redactor = Redactor([KnownSecret(known, "horse")])
    for ascii_only in (True, False):
        raw = json.dumps({"a": f"<{known}>"}, ensure_ascii=ascii_only).encode()
        assert redactor.log_json(raw) == b'{"a": "<[redacted:horse]>"}'


def test_what_stands_in_two_strings_is_found_in_neither() -> None:
    raw = json.dumps([f"{GITHUB[:20]}", f"{GITHUB[20:]}", "Cookie", "sid=abcdefgh", "Bearer ", "abc123def456"]).encode()
    assert same(raw)


def test_a_key_far_from_its_colon_is_still_a_name() -> None:
    assert REDACTOR.log_json(b'{"password"' + b" " * 40 + b': "correct"}').endswith(NAMED + b"}")


def test_a_schema_of_a_property_called_password_stays() -> None:
    schema = {
        "type": "object",
        "properties": {
            "password": {"description": "what they type", "type": "string", "minLength": 8},
            "token": {"$ref": "#/$defs/token"},
            "secret": {"type": ["string", "null"], "default": "abcdefgh"},
        },
        "required": ["password"],
    }
    out = json.loads(REDACTOR.log_json(json.dumps(schema).encode()))
    schema["properties"]["secret"]["default"] = "[redacted:named-value]"  # type: ignore[index]
    assert out == schema


def test_an_object_under_a_name_with_a_type_that_is_no_schema_goes() -> None:
    out = json.loads(REDACTOR.log_json(b'{"credentials":{"type":"basic","user":"me","x":"s3"}}'))
    assert out == {"credentials": dict.fromkeys(("type", "user", "x"), "[redacted:named-value]")}


@pytest.mark.parametrize(
    "inside",
    [{"anyOf": "s3"}, {"oneOf": 7}, {"$ref": "s3cret"}, {"$ref": 1}, {"type": ["s3"]}, {"type": {"a": "string"}}],
)
def test_a_word_of_schemas_alone_makes_none(inside: dict[str, object]) -> None:
    out = REDACTOR.log_json(json.dumps({"password": inside}).encode())
    assert json.loads(out)["password"] != inside


def test_a_known_secret_that_is_a_number() -> None:
    assert REDACTOR.log_json(b'{"a":918273645546,"b":1}') == b'{"a":"[redacted:number]","b":1}'


def test_a_lone_surrogate_beside_a_secret_survives() -> None:
    out = REDACTOR.log_json(b'{"a":"\\ud800 ' + GITHUB.encode() + b'"}')
    assert json.loads(out) == {"a": "\ud800 [redacted:github-token]"}


@pytest.mark.parametrize(
    "raw",
    [
        b'{"password":"x',
        b'{"password":"x"',
        b'["password":"x"]]',
        b'{"password":"x"}"',
        b'{"password":',
        b'{"password":{"a":1}',
        b'{"a":"\xff","password":"x"}',
        b'{"a":"\xfd","b":"' + GITHUB.encode() + b'"}',
        b'["' + GITHUB.encode() + b'"',
        b'["' + GITHUB.encode(),
        b"[" * 100_000 + b'"' + GITHUB.encode() + b'"' + b"]" * 100_000,
    ],
    ids=lambda raw: raw[:24],
)
def test_what_is_not_json_is_refused_not_passed(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        REDACTOR.log_json(raw)


SCHEMA_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
keys = st.text(max_size=8) | st.sampled_from(
    ["password", "next_token", "apiKey", "auth", "a", "type", "$ref", "anyOf", "default", "const"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
    | st.sampled_from([GITHUB, KNOWN, f"\n{GITHUB}", f"a {KNOWN} b", "password=abc123xyz", "\\", '"', "#/a", "string"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def is_schema(value: dict[str, object]) -> bool:
    kind, to = value.get("type"), value.get("$ref")
    kinds = kind[:1] if isinstance(kind, list) else [kind]
    return (
        any(isinstance(one, str) and one in SCHEMA_TYPES for one in kinds)
        or (isinstance(to, str) and to.startswith("#"))
        or any(isinstance(value.get(word), list) for word in ("anyOf", "oneOf", "allOf"))
    )


def expected(value: object, removed: bool, reach: Strength, text: Redactor) -> object:
    """What the table of bridge 11 says, over the decoded value. ``reach``: the strength of its own name."""
    under = removed or reach is Strength.ALL
    if isinstance(value, dict):
        schema = under and not removed and is_schema(value)
        whole = ("default", "const", "enum", "example", "examples") if schema else ()
        return {
            text.log_text(key): expected(
                inner, under and not schema, Strength.ALL if key in whole else strength(key), text
            )
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [expected(inner, under, Strength.NONE, text) for inner in value]
    if (removed or reach) and not isinstance(value, bool | None) and value != "":
        return value if re.fullmatch(r"\[redacted:[A-Za-z0-9_.\-]+\]", str(value)) else "[redacted:named-value]"
    return text.log_text(value) if isinstance(value, str) else value


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(value=values, ascii_only=st.booleans(), indent=st.none() | st.just(1))
def test_json_is_redacted_as_its_strings_are(value: object, ascii_only: bool, indent: int | None) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    assert json.loads(REDACTOR.log_json(raw)) == expected(value, False, Strength.NONE, REDACTOR)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_example_is_found_in_every_encoding(rule: object) -> None:
    text, parts = made(next(r for r in RULES if r is rule).example, Random(7))
    for raw in (
        json.dumps({"a": [f"line\n{text}\n"]}).encode(),
        json.dumps({"a": json.dumps({"b": f"x\t{text}"})}).encode(),
        json.dumps({text: 1}).encode(),
        ('["' + "".join(f"\\u{ord(char):04x}" for char in text) + '"]').encode(),
    ):
        out = REDACTOR.log_json(raw)
        assert b"[redacted:" in out
        decoded = str(json.loads(out))
        assert not [part for part in parts if part in decoded]
