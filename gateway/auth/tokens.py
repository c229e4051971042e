"""Credentials that this gateway makes: their form, their checksum, their hash. Never stores one.

``trs_<session's uuid, 32 hex>_<43 base64url>_<checksum>`` opens one session; ``trk_<43 base64url>_<checksum>`` is an
API key; ``trr_<43 base64url>_<checksum>`` takes a registration up again. 43 characters are 256 random bits. The prefix
lets scanners and our own redaction find one; the checksum (6 of 0-9a-z, CRC-32 of all before it) tells a typing error
from a wrong token without asking anybody. A session token names its session, so looking it up stays in one partition.
"""

import binascii
import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Final
from uuid import UUID

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_SESSION: Final = re.compile(r"trs_([0-9a-f]{32})_[A-Za-z0-9_-]{43}_[0-9a-z]{6}")


def _checksum(text: str) -> str:
    rest = binascii.crc32(text.encode())
    digits = ""
    for _ in range(6):
        rest, digit = divmod(rest, 36)
        digits = _DIGITS[digit] + digits
    return digits


def _finish(head: str) -> str:
    return f"{head}_{_checksum(head)}"


def mint_session_token(session_id: str) -> str:
    """A new token of a session."""
    return _finish(f"trs_{UUID(session_id).hex}_{secrets.token_urlsafe(32)}")


def mint_api_key() -> str:
    """A new API key."""
    return _finish(f"trk_{secrets.token_urlsafe(32)}")


def mint_resume_key() -> str:
    """A new key that takes up one registration."""
    return _finish(f"trr_{secrets.token_urlsafe(32)}")


@dataclass(frozen=True, slots=True)
class SessionToken:
    """What a session token says of itself."""

    session_id: str


def read_session_token(text: str) -> SessionToken | None:
    """The session that a token names, or None for anything that is no token of ours (checksum included)."""
    match = _SESSION.fullmatch(text)
    if match is None or not text.endswith(_checksum(text[:-7])):
        return None
    return SessionToken(str(UUID(hex=match[1])))


def digest(secret: str) -> str:
    """What is stored of a credential and compared: SHA-256, hex. The input has 256 random bits, so no salt is due."""
    return hashlib.sha256(secret.encode()).hexdigest()
