"""The corpus of the redaction benchmark, built by code. Owns what is a secret and what is not; holds no secret itself.

Secrets: every rule's example with fresh random parts, put where such things stand. Benign strings: lines of code and
prose of the packages that are installed beside this interpreter, and the values that programs are full of.
"""

import json
import re
import site
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import md5, sha1, sha256
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

from gateway.model.redaction import RULES
from gateway.model.redaction.samples import made

PER_RULE: Final = 18
BENIGN: Final = 24_000
_AROUND: Final = (
    "{}",
    "see {} now",
    '"{}"',
    "x: {}\n",
    "({})",
    "[{}]",
    "line\n{}\nline",
    "<td>{}</td>",
    "é {} €",
    "a,{},b",
)
_LINES_PER_FILE: Final = 40
_PROSE: Final = (".md", ".rst", ".txt")


@dataclass(frozen=True, slots=True)
class Secret:
    """A text with something in it that must go. ``parts``: what must not be left."""

    kind: str
    text: str
    parts: tuple[str, ...]


def secrets(seed: int = 1) -> list[Secret]:
    """At least 2,000 secrets of every kind, the same for the same ``seed``."""
    rng = Random(seed)
    found: list[Secret] = []
    for rule in RULES:
        for turn in range(PER_RULE):
            text, parts = made(rule.example, rng)
            text = _AROUND[turn % len(_AROUND)].replace("{}", text)
            if turn % 3 == 2:
                text = json.dumps({"note": text})
            found.append(Secret(rule.name, text, parts))
    return found


def _packages() -> list[Path]:
    roots = [Path(folder) for folder in site.getsitepackages()]
    return sorted(
        path for root in roots for path in root.rglob("*") if path.suffix in (".py", *_PROSE) and path.is_file()
    )


def _made_values(rng: Random) -> Iterator[str]:
    """What looks random and is none's secret: hashes, ids, versions, paths, base64 of pictures."""
    while True:
        raw = rng.randbytes(16)
        yield f"commit {sha1(raw).hexdigest()}"
        yield f"sha256:{sha256(raw).hexdigest()}"
        yield f"etag {md5(raw).hexdigest()}"
        yield str(UUID(bytes=raw))
        yield f"--hash=sha256:{sha256(raw).hexdigest()} \\"
        yield f"/srv/app/{raw.hex()[:8]}/main.{raw.hex()[8:14]}.js?v={rng.randrange(10**6)}"
        yield f'{{"id":"{raw.hex()}","next_token":"{raw.hex()[:12]}","max_tokens":{rng.randrange(9999)}}}'
        yield f"2026-01-{rng.randrange(10, 28)}T10:00:00Z INFO request {raw.hex()[:12]} took {rng.randrange(999)} ms"


def benign(seed: int = 1) -> list[str]:
    """At least 20,000 strings that hold no secret: nine of ten from installed packages, the rest made."""
    rng = Random(seed)
    paths = _packages()
    rng.shuffle(paths)
    lines: set[str] = set()
    for path in paths:
        if len(lines) >= BENIGN * 9 // 10:
            break
        text = path.read_text("utf-8", "replace")
        own = [
            line.strip() for line in text.splitlines() if 12 <= len(line.strip()) <= 400 and re.search("[a-z]{3}", line)
        ]
        lines.update(rng.sample(own, min(_LINES_PER_FILE, len(own))))
    made_values = _made_values(rng)
    found = sorted(lines)
    return found + [next(made_values) for _ in range(BENIGN - len(found))]
