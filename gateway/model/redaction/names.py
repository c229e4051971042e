"""Which names are those of credentials. Owns the words; must never look at a value.

A name is split into words (camel case, ``_``, ``-``, ``.``); its last words decide: ``github_token`` is a credential,
``token_count`` and ``next_token`` are not. Words that only qualify (``value``, ``old``, ``2``) are passed over.
"""

import re
from enum import IntEnum
from functools import lru_cache
from typing import Final


class Strength(IntEnum):
    """How far a name reaches: not at all, over a plain value, or over all that lies under it."""

    NONE = 0
    VALUE = 1
    ALL = 2


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALONE: Final = _words(
    "password passwd passwort passphrase passcode pwd pswd secret token apikey apitoken authtoken "
    "accesstoken refreshtoken idtoken bearertoken sessiontoken usertoken accesskey secretkey privatekey "
    "signingkey encryptionkey masterkey authkey clientsecret appsecret secrets passwords credential "
    "credentials creds cookie cookies authorization jsessionid phpsessid aspsessionid cvv cvc otp totp "
    "mnemonic userpass dbpass requirepass masterauth webhooksecret pw"
)
"""Last words that are enough by themselves."""

ENDINGS: Final = (
    "password", "passwd", "apikey", "secretkey", "accesskey", "privatekey", "apitoken", "authtoken", "accesstoken",
    "clientsecret",
)  # fmt: skip
"""Ends of last words that are enough: names are also written as one word (``pgpassword``, ``MYSERVICEAPIKEY``)."""

VALUE_ONLY: Final = frozenset({"auth", "bearer"})
"""Last words that name a credential only where the value is plain text."""

BEFORE_KEY: Final = _words(
    "api apis access private secret auth signing signature encryption decryption master account shared "
    "storage session service client deploy webhook app application consumer admin license host ssh rsa gpg "
    "pgp ssl tls hmac crypt subscription integration personal developer dev server write ingest ingestion "
    "sas root user project ibm iam softlayer slapi sl cloudant"
)
"""Words that make ``key`` a credential: ``api_key`` is one, ``public_key``, ``primary_key`` and ``key`` are not."""

BEFORE_PASS: Final = _words(
    "db database user smtp mysql postgres pg redis admin root ftp sftp mail email proxy ldap http basic auth "
    "wifi key store login account sudo ssh vnc api mongo imap pop3 rabbitmq amqp softlayer sl cloudant"
)
"""Words that make ``pass`` a credential."""

NOT_BEFORE_TOKEN: Final = _words(
    "next prev previous page pagination paging continuation continue cursor sync start end stop eos bos pad "
    "unk sep cls mask max min num total prompt completion input output special first last current word sub "
    "sentence text per resume nextpage change delta watch skip idempotency request placeholder image "
    "separator operator syntax lookahead parse parser lexer string number punctuation line name comment "
    "keyword whitespace newline expected unexpected cancellation cancel abort progress byte bad banned "
    "stream think thinking"
)
"""Words that make ``token`` something else: a place in a list, a piece of text, a handle."""

PASSED_OVER: Final = _words(
    "b sha md value values text str string raw plain plaintext cleartext old new current confirm confirmation "
    "confirmed repeat again encoded encrypted enc hash hashed digest bcrypt env "
    "prod production staging stage test dev default live sandbox primary secondary header base"
)
"""Last words that only qualify what stands before them."""


def _stem(between: str, short: str) -> str:
    one_word = (
        "passw|passphrase|passcode|pwd|pswd|secret|token|credential|creds|cookie|authorization|cvv|cvc|mnemonic|bearer"
    )
    sessions = rf"(?:j|php|asp)sess(?:ion)?id|connect{between}sid|masterauth"
    keys, passes = "|".join(sorted(BEFORE_KEY)), "|".join(sorted(BEFORE_PASS | {"require"}))
    return rf"(?:(?i:{one_word}|{sessions}|(?:{keys}){between}key|(?:{passes}){between}pass)|{short})"


NAMED: Final = _stem(r"[_\-.]?", r"(?i:otp\b|auth\b|(?:\b|_)pw(?:\b|_))|Pw")
"""The pattern that credential-like names in a text contain: a first look, before ``strength`` decides. It is a part of
many rules, so it is one that makes few states."""

NAMED_KEY: Final = _stem(r"[^A-Za-z0-9\x80-\xf4\"]*", r"(?i:otp|auth)(?:\b|[_0-9A-Z])|(?:[0-9_]|\b)pw|P[wW]")
"""The pattern that every credential-like key of JSON contains, which may be of several words."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\x00-\x7f]+")
_NAME_CHARS: Final = 128


@lru_cache(maxsize=4_096)
def strength(name: str) -> Strength:
    """Whether ``name`` is that of a credential, and how far it reaches. Names over 128 characters are not."""
    if len(name) > _NAME_CHARS or name in ("PWD", "OLDPWD"):
        return Strength.NONE
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and (words[-1] in PASSED_OVER or words[-1].isdigit()):
        words.pop()
    if not words:
        return Strength.NONE
    last = words[-1]
    before = words[-2] if len(words) > 1 else ""
    if last == "token":
        return Strength.NONE if before in NOT_BEFORE_TOKEN else Strength.ALL
    if last in ALONE or last.endswith(ENDINGS) or (last == "sid" and before == "connect"):
        return Strength.ALL
    if (last == "key" and before in BEFORE_KEY) or (last == "pass" and before in BEFORE_PASS):
        return Strength.ALL
    return Strength.VALUE if last in VALUE_ONLY else Strength.NONE
