"""Servers that should be updated. Owns the table of fixed versions; warns, and never refuses."""

from typing import Final

from gateway.bus.wire import Server

# Lua: use after free that a script can reach, code execution (CVE-2025-49844, with -46817 and -46818): per release
# line the first fixed version. Lines that are not listed and lie below the last one were never fixed.
_LUA: Final = {
    "redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}
# Use after free around blocked clients (CVE-2026-23479).
_BLOCKED: Final = ((7, 2, 0), (8, 6, 2))


def warnings(server: Server) -> list[str]:
    """One sentence per known fault of this version; empty for a version without one, or an unknown server."""
    lines = _LUA.get(server.name)
    if lines is None or len(server.version) < 3:
        return []
    version = server.version[:3]
    shown = f"{server.name} {'.'.join(map(str, version))}"
    found: list[str] = []
    fixed = lines.get(version[:2])
    if version[:2] <= max(lines) and (fixed is None or version[2] < fixed):
        found.append(f"{shown} lets a script reach freed memory (CVE-2025-49844): update it")
    if server.name == "redis" and _BLOCKED[0] <= version <= _BLOCKED[1]:
        found.append(f"{shown} has a use after free around blocked clients (CVE-2026-23479): update to 8.6.3 or later")
    return found
