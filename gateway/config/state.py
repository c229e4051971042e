"""The folder that one ``serve`` keeps its state in: private, locked, with the node's name. Owns nothing else in it."""

import fcntl
import os
import re
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.config.settings import Settings

LOCK = "lock"
NODE_NAME = "node_name"


class StateError(Exception):
    """The folder cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class State:
    """An open folder. ``node_name`` is the configured name or the one that was made once. Close it at the end."""

    folder: Path
    node_name: str
    lock: int  # the descriptor that holds the lock

    def close(self) -> None:
        """Give the folder free. The lock also ends with the process."""
        os.close(self.lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def state_folder(settings: Settings) -> Path:
    """The configured folder, or ``${XDG_STATE_HOME:-~/.local/state}/toolrelay``."""
    if settings.server.state_dir:
        return Path(settings.server.state_dir).expanduser().absolute()
    home = os.environ.get("XDG_STATE_HOME", "")
    # The XDG rule: a relative path there is to be ignored.
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    return base / "toolrelay"


def open_state(settings: Settings) -> State:
    """Make the folder (mode 0700) and lock it. Raises ``StateError``: no folder, not ours, or another has it."""
    folder = state_folder(settings)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateError(f"server.state_dir: {folder}: {error.strerror or type(error).__name__}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
            by = f" (process {holder})" if holder.isdigit() else ""
            raise StateError(
                f"server.state_dir: {folder} is used by another toolrelay serve{by}; give this one a folder of its own"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        return State(folder, settings.server.node_name or _node_name(folder), lock)
    except OSError as error:
        os.close(lock)
        raise StateError(f"server.state_dir: {folder}: {error.strerror or type(error).__name__}") from None
    except BaseException:
        os.close(lock)
        raise


def _node_name(folder: Path) -> str:
    path = folder / NODE_NAME
    try:
        name = path.read_text("utf-8").strip()
    except FileNotFoundError:
        name = ""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        return name
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname().partition(".")[0]).strip(".-") or "node"
    name = f"{host[:48]}-{secrets.token_hex(4)}"
    # Written whole beside it and moved: half a name would make this node another one, without its sessions.
    draft = path.with_suffix(".new")
    draft.write_text(f"{name}\n", "utf-8")
    draft.replace(path)
    return name
