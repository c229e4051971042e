"""Names of credentials, and names that only look so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model.redaction import RULES
from gateway.model.redaction.names import (
    ALONE,
    BEFORE_KEY,
    BEFORE_PASS,
    ENDINGS,
    NAMED,
    NAMED_KEY,
    PASSED_OVER,
    VALUE_ONLY,
    Strength,
    strength,
)
from gateway.model.redaction.pattern import Pattern

CREDENTIALS = """
password passwd Password userPassword user_password user-password PASSWORD dbPassword DB_PASSWORD
password_confirmation new_password passwordHash secret client_secret clientSecret CLIENT-SECRET app.secret
token access_token accessToken access-token GITHUB_TOKEN github_token2 refresh_token id_token auth_token
api_token apiKey api_key API_KEY api-key apikey ApiKey x-api-key X-API-Key OPENAI_API_KEY private_key
privateKey ssh_private_key secret_key aws_secret_access_key access_key signing_key encryption_key
authorization Authorization Proxy-Authorization cookie Cookie set-cookie cookies credentials creds passphrase
pwd userPwd db_pass smtp_pass session_token csrf_token bearer auth JSESSIONID webhook_secret secret_value
connect.sid cvv otp token_b64 X-Auth-Token master_key storage_account_key
db_pw pw userPw DB_PW_OLD pgpassword MYSERVICEAPIKEY myaccesstoken ibm-iam_key softlayer_key sl_pass
""".split()  # noqa: SIM905 - read as prose
OTHERS = """
next_token nextToken next_page_token page_token NextPageToken continuation_token token_count tokenCount
max_tokens maxTokens total_tokens prompt_tokens tokens token_type tokenType token_limit token_url tokenizer
key_id keyId author authority authors public_key publicKey keyboard monkey key keys keyword primary_key
foreign_key sort_key cache_key password_length passwordLength password_policy has_password_field passive
passenger compass bypass pass passed secretary secret_name secretName secret_id cookie_policy cookie_count
credential_type authorized authorization_url auth_type auth_method session_id sessionId idempotency_key
eos_token pad_token bos_token sync_token user path compact PWD OLDPWD turkey hockey api_version access_level
private repository_key_name pwm pw_length spw iam_role
""".split()  # noqa: SIM905 - read as prose


@pytest.mark.parametrize("name", CREDENTIALS)
def test_names_of_credentials(name: str) -> None:
    assert strength(name) is not Strength.NONE


@pytest.mark.parametrize("name", OTHERS)
def test_other_names(name: str) -> None:
    assert strength(name) is Strength.NONE


@pytest.mark.parametrize("name", CREDENTIALS)
def test_the_first_look_never_misses(name: str) -> None:
    assert Pattern(NAMED).search(name.encode())


WORDS = sorted(
    {*ALONE, *VALUE_ONLY, *ENDINGS, *list(BEFORE_KEY)[:20], *list(BEFORE_PASS)[:20], *list(PASSED_OVER)[:20]}
    | {"key", "pass", "sid", "connect", "my", "next", "2", "é"}
)
words = st.sampled_from(WORDS).flatmap(lambda word: st.sampled_from([word, word.capitalize(), word.upper()]))
separators = st.sampled_from(["", "", "_", "-", ".", " ", " - ", "/", ":", "é"])


@given(st.lists(words | separators, max_size=8).map("".join) | st.text("aApPwWkKeEyY0_- oOtTuUhH", max_size=12))
def test_the_first_look_at_a_key_never_misses(name: str) -> None:
    if strength(name):
        assert Pattern(NAMED_KEY).search(name.encode())


def test_a_name_without_end_is_none() -> None:
    assert strength("a" * 500 + "_password") is Strength.NONE


def test_the_rules_with_names_use_the_same_words() -> None:
    assert sum("(?P<name>" in rule.lead for rule in RULES) >= 4
