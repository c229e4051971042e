"""The one ordered writer of stdout. Owns ``seq``, the queue of frames and their deadlines; reads nothing.

Any thread may push; only the loop of ``transport`` writes. A frame must be in the pipe 2,000 ms after it was queued,
however much of it has moved, and at most 32 may wait: beyond either the child ends with exit code 1 (stdio protocol,
"Bounds and failure policy"). So a run waits for room before it pushes, and drops deltas when there is none.
"""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from frames import OUTPUT_DEADLINE_S, PENDING_FRAMES, PROTOCOL, VERSION, encode

FRAME_PIECE: Final = 65_536
ROOM: Final = PENDING_FRAMES // 2  # a run leaves the other half to responses


class Overflow(Exception):
    """More frames wait than may."""


class Unavailable(Exception):
    """A run's event found no room in time."""


class Output:
    """Frames on their way to stdout."""

    def __init__(self, instance_id: str, wake: int, descriptor: int = 1) -> None:
        self.instance_id = instance_id
        self.seq = 0
        self.written = 0  # frames that are wholly in the pipe
        self.on_written: Callable[[int], None] | None = None  # hears the count after each frame (faults)
        self.piece = FRAME_PIECE  # bytes per write; the faults make it small
        self.deadline_s = OUTPUT_DEADLINE_S  # the faults make it long
        self._wake = wake
        self._descriptor = descriptor
        self._queue: deque[tuple[float, bytes]] = deque()
        self._offset = 0
        self.room = threading.Condition(threading.RLock())  # guards this and all that runs and calls share

    def _queue_frame(self, fields: dict[str, Any]) -> None:
        frame = {
            "protocol": PROTOCOL,
            "version": VERSION,
            "instance_id": self.instance_id,
            "seq": self.seq + 1,
            **fields,
        }
        line = encode(frame)
        self.seq += 1
        self.queue_bytes(line)

    def queue_bytes(self, data: bytes) -> None:
        """Queue bytes as they are (only faults do that)."""
        with self.room:
            self._queue.append((time.monotonic() + self.deadline_s, data))
        with contextlib.suppress(BlockingIOError):  # the pipe is full of wakes already
            os.write(self._wake, b"w")

    def respond(self, request_id: str | None, *, result: Any = None, error: str | None = None) -> None:
        """A response. Overflow when 32 frames wait already."""
        with self.room:
            if len(self._queue) >= PENDING_FRAMES:
                raise Overflow
            body = {"result": result} if error is None else {"error": {"code": error}}
            self._queue_frame({"type": "response", "id": request_id, **body})

    def event(self, name: str, data: dict[str, Any], *, droppable: bool = False) -> None:
        """An event of a run. Without room a droppable one is gone; any other waits 2,000 ms, then Unavailable."""
        with self.room:
            if droppable and len(self._queue) >= ROOM:
                return
            self.wait_for_room()
            self._queue_frame({"type": "event", "event": name, "data": data})

    def wait_for_room(self) -> None:
        """Until fewer than half the frames wait; Unavailable after 2,000 ms."""
        with self.room:
            if not self.room.wait_for(lambda: len(self._queue) < ROOM, self.deadline_s):
                raise Unavailable

    def deadline(self) -> float | None:
        """When the oldest frame must be in the pipe (monotonic seconds), if one waits."""
        with self.room:
            return self._queue[0][0] if self._queue else None

    def write(self) -> None:
        """Move what the pipe takes without waiting. OSError when the reader has gone."""
        with self.room:
            while self._queue:
                line = self._queue[0][1]
                try:
                    moved = os.write(self._descriptor, line[self._offset : self._offset + self.piece])
                except BlockingIOError:
                    return
                self._offset += moved
                if self._offset == len(line):
                    self._queue.popleft()
                    self._offset = 0
                    self.written += 1
                    self.room.notify_all()
                    if self.on_written is not None:
                        self.on_written(self.written)
                if self.piece == 1:
                    return
