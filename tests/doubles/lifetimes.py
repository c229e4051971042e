"""Looks at a Redis for keys of the gateway that would stay for ever: each has a lifetime, or is on the permanent list.

``tests/conftest.py`` does so after every test that used one; servers that a test starts are looked at when they stop.
"""

import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import cast

import redis

from gateway.bus.keys import PERMANENT

# All in one script: a server that many tests share has thousands of keys.
_WITHOUT = """
local found, cursor = {}, '0'
repeat
  local page = redis.call('SCAN', cursor, 'COUNT', 1000)
  cursor = page[1]
  for _, name in ipairs(page[2]) do
    if redis.call('PTTL', name) == -1 then found[#found + 1] = name end
  end
until cursor == '0'
return found
"""
_OURS = re.compile(r"[^{}]*:(\{(?:p[0-7][0-9a-f]|g|nodes)\}:.*)", re.DOTALL)
_WITHIN_S = 2.0

WATCHED: set[str] = set()
"""Servers that many tests share."""


@contextmanager
def watched(url: str) -> Generator[None]:
    """After each test this server is looked at."""
    WATCHED.add(url)
    try:
        yield
    finally:
        WATCHED.discard(url)


def lasting(names: Iterable[str]) -> list[str]:
    """Of names of keys without a lifetime those that are the gateway's and may not be so."""
    found: list[str] = []
    for name in names:
        ours = _OURS.fullmatch(name)
        if ours is not None and not any(fnmatchcase(ours[1], pattern) for pattern in PERMANENT):
            found.append(name)
    return sorted(found)


def lasting_at(url: str) -> list[str]:
    """The same of a server (``redis://…``, ``unix://…``). One that does not let us look has nothing to show: it has
    ended, is stopped, is a Sentinel or a replica."""
    link = redis.Redis.from_url(url, socket_timeout=_WITHIN_S)  # pyright: ignore[reportUnknownMemberType]
    try:
        with link:
            return lasting(bytes(name).decode() for name in cast("list[bytes]", link.eval(_WITHOUT, 0)))
    except redis.RedisError:
        return []


def assert_lifetimes(url: str) -> None:
    """Fails with the names of keys that would stay."""
    found = lasting_at(url)
    assert not found, f"keys without a lifetime: {found[:20]}"
