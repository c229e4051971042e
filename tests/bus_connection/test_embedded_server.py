"""The server of our own: private, kept or not, and gone when we are."""

import asyncio
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from gateway.bus.connect import Endpoint
from gateway.bus.connection import Connection
from gateway.bus.embedded import EmbeddedError, EmbeddedServer, find_server, server_version, spawn
from tests.doubles.valkey_servers import until

PARENT = """
import asyncio, sys
from pathlib import Path
from gateway.bus.embedded import EmbeddedServer
async def main():
    async with EmbeddedServer(Path(sys.argv[1]) if len(sys.argv) > 1 else None) as server:
        print(server.pid, server.socket, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def proc_stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def gone(pid: int) -> bool:
    try:
        return proc_stat(pid)[0] == "Z"
    except FileNotFoundError:
        return True


async def connection(server: EmbeddedServer) -> Connection:
    bus = Connection(Endpoint(path=str(server.socket)))
    await bus.start()
    return bus


async def test_it_listens_on_a_private_socket_alone() -> None:
    async with EmbeddedServer() as server:
        assert server.url == f"unix://{server.socket}"
        assert stat.S_IMODE(server.socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(server.socket.parent.stat().st_mode) == 0o700
        bus = await connection(server)
        assert await bus.call("CONFIG", "GET", "port") == [b"port", b"0"]
        assert await bus.call("CONFIG", "GET", "maxmemory-policy") == [b"maxmemory-policy", b"noeviction"]
        await bus.close()
        directory, pid = server.socket.parent, server.pid
    assert not directory.exists()
    assert pid is not None
    assert gone(pid)


async def test_it_keeps_its_data_where_it_is_told_even_far_down(tmp_path: Path) -> None:
    for directory in (tmp_path / "data", tmp_path / ("x" * 100)):
        for expected in (1, 2):
            async with EmbeddedServer(directory) as server:
                assert len(str(server.socket)) < 104
                bus = await connection(server)
                assert await bus.call("INCR", "n") == expected
                await bus.close()


async def test_being_killed_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "data") as server:
        bus = await connection(server)
        assert await bus.call("SET", "k", "v") == b"OK"
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: server.restarts == 1 and bus.connects == 2)
        assert await bus.call("GET", "k") == b"v"
        await bus.close()


async def test_a_directory_has_one_server(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "data"):
        with pytest.raises(EmbeddedError, match="another server"):
            await EmbeddedServer(tmp_path / "data").start()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a death signal")
@pytest.mark.parametrize("kept", [True, False])
async def test_the_parents_kill_leaves_no_server(tmp_path: Path, kept: bool) -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, *([str(tmp_path / "data")] if kept else [])), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid, socket = (await parent.stdout.readline()).decode().split()
    parent.kill()
    await parent.wait()
    await until(lambda: gone(int(pid)), 5)
    async with EmbeddedServer(tmp_path / "data" if kept else None):
        assert kept or not Path(socket).parent.exists()  # the next run has cleaned up


async def test_a_server_that_was_left_behind_is_ended_and_a_stranger_is_not(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    binary = find_server()[0]
    for ours in (True, False):
        stale = await spawn(binary, ["--port", "0", "--unixsocket", str(tmp_path / "s"), "--save", ""])
        started = proc_stat(stale.pid)[19]
        (data / "pid").write_text(f"{stale.pid} {started if ours else '1'}\n")
        async with EmbeddedServer(data):
            if ours:
                async with asyncio.timeout(5):
                    assert await stale.wait() == -signal.SIGKILL
            else:
                assert stale.returncode is None
                stale.kill()
                await stale.wait()


async def test_a_server_that_cannot_start_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((EmbeddedError, OSError)):
        await EmbeddedServer(tmp_path / "file").start()
    broken = tmp_path / "data"
    async with EmbeddedServer(broken):
        pass
    manifest = broken / "appendonlydir" / "appendonly.aof.manifest"
    manifest.write_text("rubbish\n")
    with pytest.raises(EmbeddedError, match="ended at its start"):
        await EmbeddedServer(broken).start()


async def test_the_binary_is_new_enough() -> None:
    assert await server_version(find_server()[0]) >= (6, 2)
