"""Sessions on disk. Owns ``MC_HOME/sessions``: one file of JSON lines and one lock for each; knows nothing of runs.

A session's file appears with its first input, so one that was never used does not outlive its child. Its lock is held
by the kernel for the child that has it attached, so a killed owner leaves no lease behind.
"""

import contextlib
import fcntl
import json
import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from frames import Refused, compact

CHUNK_BYTES: Final = 12_000  # of a text part, escaped
PAGE_BYTES: Final = 32_768
PAGE_ENTRIES: Final = 100
HISTORY_BYTES: Final = 8 * 1024 * 1024
FILE_BYTES: Final = 64 * 1024 * 1024
FILE_LINES: Final = 100_000

Entry = dict[str, Any]


def parts(text: str, limit: int, *, escaped: bool = False) -> list[str]:
    """The text in pieces of at most ``limit`` UTF-8 bytes (as escaped JSON when asked), cut between characters."""
    pieces: list[str] = []
    start = size = 0
    for index, character in enumerate(text):
        width = len(compact(character)) - 2 if escaped else len(character.encode())
        if size + width > limit:
            pieces.append(text[start:index])
            start, size = index, 0
        size += width
    return [*pieces, text[start:]]


def fresh_revision() -> str:
    """A fresh opaque revision."""
    return str(uuid.uuid4())


@dataclass(eq=False)
class Session:
    """An attached session. ``records`` are what its file holds, or will hold once it is durable."""

    id: str
    path: Path
    cwd: str
    records: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    durable: bool = False
    revision: str = field(default_factory=fresh_revision)
    lock: int | None = None
    pages: "list[list[Entry]] | None" = None
    complete: bool = True

    def append(self, kind: str, **fields_of: Any) -> None:
        """Add one record and have it on disk. OSError when that fails."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() % 10**9:09}Z"
        record = {"kind": kind, "at": stamp, **fields_of}
        lines = [record] if self.durable else [{"kind": "session", "id": self.id, "cwd": self.cwd}, record]
        if self.lock is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.lock = take_lock(self.path)
        with self.path.open("ab") as file:
            file.write(b"".join(compact(line) + b"\n" for line in lines))
        self.durable = True
        self.records.append(record)

    def renew(self) -> str:
        """A new revision; older ones and their cursors are stale from now on."""
        self.revision, self.pages = fresh_revision(), None
        return self.revision

    def release(self) -> None:
        """Let another child have it."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def page(self, of_revision: str, cursor: str | None) -> dict[str, Any]:
        """One page of ``history.page``; ``stale_revision`` for anything but the current revision's cursors."""
        if of_revision != self.revision:
            raise Refused("stale_revision")
        if self.pages is None:
            entries, self.complete = project(self.records)
            self.pages = _paged(entries)
        names = [None, *(f"{self.revision}.{n}" for n in range(1, len(self.pages)))]
        if cursor not in names:
            raise Refused("stale_revision")
        index = names.index(cursor)
        last = index == len(names) - 1
        return {
            "session_id": self.id,
            "revision": self.revision,
            "entries": self.pages[index],
            "next_cursor": None if last else names[index + 1],
            "complete": last and self.complete,
        }


def project(records: list[dict[str, Any]]) -> tuple[list[Entry], bool]:
    """The presentation of a history, and whether every turn of it has an end."""
    shown: list[tuple[str, str, bool]] = []
    complete, in_turn = True, False
    endings = {"cancelled": "Turn Cancelled", "failed": "Turn Failed"}
    activities: dict[str, int] = {}

    def interrupted() -> None:
        nonlocal complete
        complete = False
        shown.append(("diagnostic", "Interrupted turn; no durable completion recorded", True))

    finished = {r["turn"] for r in records if r["kind"] == "end" and r["outcome"] == "completed"}
    for record in records:
        kind = record["kind"]
        if kind == "user":
            if in_turn:
                interrupted()
            in_turn = True
            shown.append(("user", record["text"], False))
        elif kind == "assistant":
            shown.append(("assistant", record["text"], record["turn"] not in finished))
        elif kind == "activity":
            entry = ("activity", f"{record['name']}: {record['state']}", record["state"] == "started")
            if record["id"] in activities:
                shown[activities[record["id"]]] = entry
            else:
                activities[record["id"]] = len(shown)
                shown.append(entry)
        elif kind == "end":
            in_turn = False
            if (outcome := record["outcome"]) in endings:
                shown.append(("diagnostic", endings[outcome], True))
    if in_turn:
        interrupted()
    return [part for item in shown for part in _entry(*item)], complete


def _entry(kind: str, text: str, partial: bool) -> list[Entry]:
    message_id = str(uuid.uuid4())
    pieces = parts(text, CHUNK_BYTES, escaped=True)
    return [
        {
            "message_id": message_id,
            "kind": kind,
            "text": piece,
            "partial": partial,
            "part": number,
            "last_part": number == len(pieces) - 1,
        }
        for number, piece in enumerate(pieces)
    ]


def _paged(entries: list[Entry]) -> list[list[Entry]]:
    sizes = [len(compact(entry)) + 1 for entry in entries]
    if sum(sizes) > HISTORY_BYTES:
        raise Refused("history_limit")
    pages: list[list[Entry]] = [[]]
    room = PAGE_BYTES - 512  # the page's own fields
    left = room
    for entry, size in zip(entries, sizes, strict=True):
        if pages[-1] and (size > left or len(pages[-1]) == PAGE_ENTRIES):
            pages.append([])
            left = room
        pages[-1].append(entry)
        left -= size
    return pages


def take_lock(path: Path) -> int:
    """The kernel's lock beside a session's file. BlockingIOError while another process has it."""
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class Store:
    """All sessions below one home, seen from one working folder."""

    def __init__(self, home: Path, cwd: str) -> None:
        self.folder = home / "sessions"
        self.cwd = cwd

    def prepare(self) -> None:
        """Make the folder. OSError when that cannot be."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def create(self) -> Session:
        """A session that is nowhere on disk yet."""
        session_id = str(uuid.uuid4())
        return Session(session_id, self.folder / f"{session_id}.jsonl", self.cwd)

    def _read(self, path: Path) -> tuple[str, list[dict[str, Any]]]:
        try:
            if path.stat().st_size > FILE_BYTES:
                raise Refused("history_limit")
            data = path.read_text().splitlines()
            if len(data) > FILE_LINES:
                raise Refused("history_limit")
            lines = [cast("dict[str, Any]", json.loads(line)) for line in data]
            head, records = lines[0], lines[1:]
            if head["kind"] != "session" or head["id"] != path.stem or not all("kind" in r for r in records):
                raise Refused("session_invalid")
            project(records)
            return str(head["cwd"]), records
        except (OSError, ValueError, LookupError, TypeError):
            raise Refused("session_invalid") from None

    def open(self, session_id: str) -> Session:
        """Attach a session of an earlier child: ``session_missing``, ``_busy``, ``_invalid``, ``cwd_mismatch`` or
        ``history_limit``."""
        path = self.folder / f"{session_id}.jsonl"
        if not path.exists():
            raise Refused("session_missing")
        try:
            lock = take_lock(path)
        except BlockingIOError:
            raise Refused("session_busy") from None
        except OSError:
            raise Refused("session_invalid") from None
        try:
            cwd, records = self._read(path)
        except Refused:
            os.close(lock)
            raise
        if not os.path.isdir(cwd) or os.path.realpath(cwd) != self.cwd:
            os.close(lock)
            raise Refused("cwd_mismatch")
        return Session(session_id, path, self.cwd, records, durable=True, lock=lock)

    def listing(self, attached: Session | None) -> tuple[list[dict[str, Any]], list[str]]:
        """What may be opened from this folder, by id; and the notices about what was left out."""
        found: list[dict[str, Any]] = []
        notices: list[str] = []
        for path in sorted(self.folder.glob("*.jsonl")):
            try:
                cwd, records = self._read(path)
            except Refused:
                notices = ["sessions_omitted_invalid"]
                continue
            if os.path.realpath(cwd) != self.cwd:
                continue
            mine = attached is not None and attached.id == path.stem
            found.append(
                {
                    "session_id": path.stem,
                    "title": None,
                    "updated_at": max((r["at"] for r in records), default=None),
                    "eligibility": "available" if mine or self._free(path) else "busy",
                    "notices": [],
                }
            )
        return found, notices

    def _free(self, path: Path) -> bool:
        with contextlib.suppress(OSError):
            os.close(take_lock(path))
            return True
        return False
