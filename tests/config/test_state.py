"""The state folder: private, of one process, and with the node's name for good."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config.load import load
from gateway.config.settings import Settings
from gateway.config.state import StateError, open_state, state_folder


def settings(folder: Path, **more: str) -> Settings:
    return load(None, environ={}, flags={"server.state_dir": str(folder), **more})


def test_the_name_is_made_once_and_kept(tmp_path: Path) -> None:
    with open_state(settings(tmp_path / "s")) as state:
        first = state.node_name
        assert (state.folder.stat().st_mode & 0o777) == 0o700
    with open_state(settings(tmp_path / "s")) as state:
        assert state.node_name == first
    with open_state(settings(tmp_path / "other")) as state:
        assert state.node_name != first


def test_a_given_name_is_taken(tmp_path: Path) -> None:
    with open_state(settings(tmp_path, **{"server.node_name": "node-7"})) as state:
        assert state.node_name == "node-7"


def test_a_second_process_is_told_who_has_it(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom gateway.config.load import load\nfrom gateway.config.state import open_state\n"
        "open_state(load(None, environ={}, flags={'server.state_dir': sys.argv[1]}))\n"
        "print('open', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StateError, match=f"used by another toolrelay serve \\(process {holder.pid}\\)"):
            open_state(settings(tmp_path))
        holder.kill()
    open_state(settings(tmp_path)).close()  # its end gave the folder free


def test_a_refused_folder_leaves_no_descriptor(tmp_path: Path) -> None:
    with open_state(settings(tmp_path)):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with pytest.raises(StateError):
                open_state(settings(tmp_path))
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"server\.state_dir"):
        open_state(settings(tmp_path / "file" / "s"))


def test_the_default_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder(Settings()) == tmp_path / "toolrelay"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert state_folder(Settings()) == Path.home() / ".local/state/toolrelay"
