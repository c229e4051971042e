"""Texts made from templates. Owns the templates' small language; must never hold a text that looks like a secret.

A template is text in which ``<class:length>`` stands for random characters (``<uuid>`` for a UUID, ``<nl>`` for a line
feed) and ``|`` for nothing: it splits fixed prefixes, so that no file of this project contains what a scanner of
repositories would stop.
"""

import base64
import re
import string
from random import Random
from typing import Final

_CLASSES: Final = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "lower": string.ascii_lowercase + string.digits,
    "upper": string.ascii_uppercase + string.digits,
    "letters": string.ascii_lowercase,
    "digit": string.digits,
    "hex": "0123456789abcdef",
    "heX": "0123456789ABCDEF",
    "b32": string.ascii_uppercase + "234567",
    "b64": string.ascii_letters + string.digits + "+/",
    "url": string.ascii_letters + string.digits + "_-",
    "bech": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "mixed": string.ascii_letters + string.digits + "!#%*+-.:?@^_~",
}
_PART = re.compile(r"<(\w+)(?::(\d+))?>|\|")


def made(template: str, rng: Random) -> tuple[str, tuple[str, ...]]:
    """The text, and those random parts of it (6 characters or more) that redaction must not let through."""
    parts: list[str] = []

    def part(found: re.Match[str]) -> str:
        kind, length = found.group(1), int(found.group(2) or 0)
        if kind is None:
            return ""
        if kind == "nl":
            return "\n"
        if kind == "uuid":
            made = "-".join(_pick("hex", n, rng) for n in (8, 4, 4, 4, 12))
        elif kind == "json64":
            made = base64.urlsafe_b64encode(
                f'{{"{_pick("letters", 3, rng)}":"{_pick("alnum", length, rng)}"}}'.encode()
            )
            made = made.decode().rstrip("=")
        else:
            made = _pick(kind, length, rng)
        if len(made) >= 6:
            parts.append(made)
        return made

    return _PART.sub(part, template), tuple(parts)


def _pick(kind: str, length: int, rng: Random) -> str:
    letters = _CLASSES[kind]
    edge = "".join(char for char in letters if char.isalnum())
    chars = [rng.choice(letters) for _ in range(length)]
    if length:
        chars[0], chars[-1] = rng.choice(edge), rng.choice(edge)
    if kind in ("mixed", "alnum", "lower", "upper") and length >= 6 and not any(map(str.isdigit, chars)):
        chars[length // 2] = rng.choice(string.digits)
    return "".join(chars)
