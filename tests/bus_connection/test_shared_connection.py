"""The shared connection against a real server: order, cancellation, faults, and what is never done twice."""

import asyncio
import random
import signal
import time

import pytest

from gateway.bus.connect import Endpoint, Login
from gateway.bus.connection import Connection, answer
from gateway.bus.embedded import EmbeddedServer
from gateway.bus.errors import BusError, BusUnavailable, CommandError, Kind, NoScript, Redirect, ScriptError, read_error
from gateway.bus.wire import Bounds, Script, Wire
from tests.doubles.tcp_proxy import TcpProxy
from tests.doubles.valkey_servers import Server, ask, until

ECHO = Script("return ARGV[1]")
COUNT = Script("return redis.call('INCR', KEYS[1])")


async def refused(future: "asyncio.Future[object]") -> BusUnavailable:
    with pytest.raises(BusUnavailable) as caught:
        await future
    return caught.value


async def test_the_order_of_calls_is_the_order_of_execution() -> None:
    async with EmbeddedServer() as server, Connection(Endpoint(path=str(server.socket))) as bus:
        futures = [bus.call("RPUSH", "list", n) if n % 2 else bus.run(COUNT, ["n"]) for n in range(1000)]
        await asyncio.gather(*futures)
        kept = await bus.call("LRANGE", "list", 0, -1)
        assert kept == [b"%d" % n for n in range(1, 1000, 2)]
        assert bus.pending == 0


async def test_cancelled_commands_never_answer_another_caller() -> None:
    """10,000 commands, a third of them cancelled at random moments, through a proxy that delays each chunk."""
    chance = random.Random(7)
    wrong: list[object] = []
    counts = {"answered": 0, "cancelled": 0}
    async with Server() as server, TcpProxy(("127.0.0.1", server.port), delay_s=0.002) as proxy:
        async with Connection(Endpoint("127.0.0.1", proxy.port)) as bus:

            async def caller(name: int) -> None:
                for n in range(100):
                    text = f"{name}:{n}:{'x' * chance.randrange(300)}"
                    future = bus.run(ECHO, [], [text]) if n % 2 else bus.call("ECHO", text)
                    if chance.random() < 0.33:
                        handle = asyncio.get_running_loop().call_later(chance.random() * 0.006, future.cancel)
                    else:
                        handle = None
                    try:
                        if await future != text.encode():
                            wrong.append(text)
                        counts["answered"] += 1
                    except asyncio.CancelledError:
                        counts["cancelled"] += 1
                    finally:
                        if handle:
                            handle.cancel()

            await asyncio.gather(*(caller(name) for name in range(100)))
            await until(lambda: bus.pending == 0)
            assert wrong == []
            assert counts["cancelled"] > 500
            assert sum(counts.values()) == 10_000
            assert proxy.accepted == 1
            assert await ask(server.port, "CLIENT", "LIST", "TYPE", "normal") is not None
            assert bus.connects == 1


async def test_a_cancelled_command_is_abandoned_not_undone() -> None:
    async with EmbeddedServer() as server, Connection(Endpoint(path=str(server.socket))) as bus:
        bus.call("SET", "k", "v").cancel()
        assert await bus.call("GET", "k") == b"v"


async def test_a_lost_answer_is_said_to_be_lost_and_the_command_ran_once() -> None:
    async with Server() as server, TcpProxy(("127.0.0.1", server.port)) as proxy:
        async with Connection(Endpoint("127.0.0.1", proxy.port)) as bus:
            await bus.call("SCRIPT", "LOAD", COUNT.source)
            proxy.down.clear()
            future = bus.run(COUNT, ["n"])

            async def executed() -> bool:
                return await ask(server.port, "GET", "n") == b"1"

            await until(executed)
            proxy.cut()
            error = await refused(future)
            assert error.maybe_applied
            assert error.kind is Kind.LOST
            proxy.down.set()
            await bus.ready(5)
            assert await bus.call("GET", "n") == b"1"


async def test_what_was_never_sent_is_said_to_be_not_applied() -> None:
    async with Server() as server, TcpProxy(("127.0.0.1", server.port)) as proxy:
        async with Connection(Endpoint("127.0.0.1", proxy.port)) as bus:
            sent = bus.call("INCR", "n")
            assert await sent == 1
            unsent = bus.call("INCR", "n")
            bus._wire.abort(Kind.LOST)  # type: ignore[union-attr]
            assert not (await refused(unsent)).maybe_applied
            down = await refused(bus.call("INCR", "n"))
            assert not down.maybe_applied
            assert await bus.ask("GET", "n", timeout=5) == b"1"


async def test_an_answer_that_does_not_come_breaks_the_connection_within_its_bound() -> None:
    async with Server() as server, TcpProxy(("127.0.0.1", server.port)) as proxy:
        async with Connection(Endpoint("127.0.0.1", proxy.port), bounds=Bounds(reply_s=0.4)) as bus:
            proxy.half_open()
            began = time.monotonic()
            error = await refused(bus.call("PING"))
            assert error.kind is Kind.TIMEOUT
            assert error.maybe_applied
            assert 0.4 <= time.monotonic() - began < 1.0
            assert await bus.ask("PING", timeout=5) == b"PONG"
            assert bus.connects == 2


async def test_a_callers_own_bound_abandons_its_answer_alone() -> None:
    async with Server() as server, TcpProxy(("127.0.0.1", server.port)) as proxy:
        async with Connection(Endpoint("127.0.0.1", proxy.port)) as bus:
            proxy.down.clear()
            patient = bus.call("ECHO", "patient")
            with pytest.raises(BusUnavailable, match="timeout"):
                await answer(bus.call("ECHO", "hasty"), 0.05)
            proxy.down.set()
            assert await patient == b"patient"
            assert bus.connects == 1


async def test_a_server_that_stands_still_for_three_seconds_comes_back_by_itself() -> None:
    async with Server() as server:
        async with Connection(server.endpoint, bounds=Bounds(reply_s=0.5)) as bus:
            server.signal(signal.SIGSTOP)
            stopped = time.monotonic()
            slowest = 0.0
            while time.monotonic() - stopped < 3:
                began = time.monotonic()
                with pytest.raises(BusUnavailable):
                    await bus.ask("PING", timeout=0.4)
                slowest = max(slowest, time.monotonic() - began)
            server.signal(signal.SIGCONT)
            assert slowest < 0.8
            assert await bus.ask("PING", timeout=5) == b"PONG"


async def test_scripts_come_back_after_a_flush_and_after_a_restart() -> None:
    async with Server() as server:
        async with Connection(server.endpoint) as bus:
            bus.register([COUNT])
            assert await bus.run(COUNT, ["n"]) == 1
            await bus.call("SCRIPT", "FLUSH")
            assert await asyncio.gather(*(bus.run(COUNT, ["n"]) for _ in range(100))) == list(range(2, 102))
            with pytest.raises(NoScript):
                await bus.call("EVALSHA", "0" * 40, 0)
            await server.stop()
            await until(lambda: not bus.up)
            await server.start()
            await bus.ready(5)
            assert await bus.call("SCRIPT", "EXISTS", COUNT.sha) == [1]
            assert await bus.run(COUNT, ["n"]) == 1


async def test_hooks_run_before_anybody_else_and_their_failure_is_a_failure_to_connect() -> None:
    seen: list[object] = []
    async with EmbeddedServer() as server:
        bus = Connection(Endpoint(path=str(server.socket)))

        async def hook(wire: Wire) -> None:
            seen.append(await wire.send(("INCR", "hooks")))
            if len(seen) == 1:
                raise BusUnavailable(Kind.OOM)

        bus.on_connect.append(hook)
        await bus.start()
        assert seen == [1, 2]
        assert await bus.call("GET", "hooks") == b"2"
        await bus.close()


async def test_too_much_in_flight_is_refused_and_the_rest_is_served() -> None:
    async with EmbeddedServer() as server:
        async with Connection(Endpoint(path=str(server.socket)), bounds=Bounds(in_flight=10)) as bus:
            futures = [bus.call("PING") for _ in range(12)]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            assert outcomes[:10] == [b"PONG"] * 10
            assert [getattr(o, "kind", None) for o in outcomes[10:]] == [Kind.FULL] * 2
            assert await bus.call("PING") == b"PONG"


async def test_too_many_bytes_are_refused_while_the_socket_takes_none() -> None:
    async with Server() as server, TcpProxy(("127.0.0.1", server.port)) as proxy:
        async with Connection(Endpoint("127.0.0.1", proxy.port), bounds=Bounds(out_bytes=1 << 20, reply_s=30)) as bus:
            proxy.up.clear()
            outcomes: list[asyncio.Future[object]] = []
            for _ in range(200):
                outcomes.append(bus.call("SET", "k", b"x" * 100_000))
                await asyncio.sleep(0)
            full = [o for o in outcomes if o.done() and isinstance(o.exception(), BusUnavailable)]
            assert full
            assert len(full) < 200
            proxy.up.set()
            for outcome in outcomes:
                if outcome not in full:
                    assert await outcome == b"OK"


# --- refusals of the server


async def test_refusals_are_typed_and_none_is_repeated() -> None:
    write = Script("return redis.call('SET', KEYS[1], 'v')")
    async with Server() as server, Connection(server.endpoint) as bus:
        await bus.call("CONFIG", "SET", "maxmemory", 1)
        for future in (bus.call("SET", "k", "v"), bus.run(write, ["k"])):
            error = await refused(future)
            assert (error.kind, error.maybe_applied) == (Kind.OOM, False)
        await bus.call("CONFIG", "SET", "maxmemory", 0)
        await bus.call("CONFIG", "SET", "min-replicas-to-write", 1)
        assert (await refused(bus.run(write, ["k"]))).kind is Kind.NOREPLICAS
        await bus.call("CONFIG", "SET", "min-replicas-to-write", 0)
        with pytest.raises(ScriptError) as caught:
            await bus.run(Script("return redis.error_reply('TR settled call is settled')"))
        assert (caught.value.code, caught.value.detail) == ("settled", "call is settled")
        await bus.call("SET", "s", 1)
        with pytest.raises(CommandError, match="WRONGTYPE"):
            await bus.call("LPUSH", "s", 1)
        with pytest.raises(TypeError):
            bus.call("SET", "k", True)
        assert await bus.call("PING") == b"PONG"
        assert bus.connects == 1


async def test_a_primary_that_becomes_a_replica_is_left_and_found_again() -> None:
    async with Server() as server, Connection(server.endpoint) as bus:
        await ask(server.port, "REPLICAOF", "127.0.0.1", 1)
        assert (await refused(bus.call("SET", "k", "v"))).kind is Kind.READONLY
        await until(lambda: bus.fault is not None and bus.fault.kind is Kind.READONLY)
        error = await refused(bus.call("SET", "k", "v"))
        assert (error.kind, error.maybe_applied) == (Kind.READONLY, False)
        await ask(server.port, "REPLICAOF", "NO", "ONE")
        assert await bus.ask("SET", "k", "v", timeout=5) == b"OK"


async def test_passwords_are_typed_and_never_told(caplog: pytest.LogCaptureFixture) -> None:
    secret = "canary-5t7Zq"
    async with Server("--requirepass", secret) as server:
        for login, kind in ((Login(), Kind.NOAUTH), (Login(password="wrong-" + secret), Kind.WRONGPASS)):
            bus = Connection(server.endpoint, login)
            with pytest.raises(BusUnavailable) as caught:
                await bus.start(timeout=0.3)
            assert caught.value.kind is kind
            assert secret not in repr(login) + str(caught.value) + repr(bus.fault)
            await bus.close()
        async with Connection(server.endpoint, Login(password=secret, db=3, name="me")) as bus:
            info = await bus.call("CLIENT", "INFO")
            assert isinstance(info, bytes)
            assert b"db=3" in info
            assert b"name=me" in info
            await bus.call("ACL", "SETUSER", "low", "on", ">pw", "~a:*", "+get", "+hello", "+ping")
            low = Connection(server.endpoint, Login("low", "pw"))
            await low.start()
            assert (await refused(low.call("GET", "b"))).kind is Kind.NOPERM
            await low.close()
    assert secret not in caplog.text


async def test_too_many_clients_is_typed() -> None:
    async with Server("--maxclients", "1") as server, Connection(server.endpoint):
        second = Connection(server.endpoint)
        with pytest.raises(BusUnavailable) as caught:
            await second.start(timeout=0.5)
        assert caught.value.kind in {Kind.MAXCLIENTS, Kind.LOST}
        await second.close()


async def test_a_server_that_loads_its_data_is_not_up_and_says_why() -> None:
    async with Server("--appendonly", "yes", "--key-load-delay", "500") as server:
        async with Connection(server.endpoint) as bus:
            await asyncio.gather(*(bus.call("SET", f"k{n}", "x" * 100) for n in range(4000)))
            await server.stop()
            await until(lambda: not bus.up)
            await server.start()
            await until(lambda: bus.fault is not None and bus.fault.kind is Kind.LOADING, 5)
            assert (await refused(bus.call("PING"))).kind is Kind.LOADING
            await bus.ready(30)
            assert await bus.call("DBSIZE") == 4000


def test_error_lines_are_read() -> None:
    sha = "a" * 40
    cases = {
        "OOM command not allowed": Kind.OOM,
        "READONLY You can't write": Kind.READONLY,
        "LOADING dataset": Kind.LOADING,
        "BUSY a script": Kind.BUSY,
        "NOAUTH x": Kind.NOAUTH,
        "WRONGPASS x": Kind.WRONGPASS,
        "NOPERM x": Kind.NOPERM,
        "MISCONF x": Kind.MISCONF,
        "NOREPLICAS x": Kind.NOREPLICAS,
        "MASTERDOWN x": Kind.MASTERDOWN,
        "CLUSTERDOWN x": Kind.CLUSTERDOWN,
        "TRYAGAIN x": Kind.TRYAGAIN,
        "ERR max number of clients reached": Kind.MAXCLIENTS,
        f"ERR Error running script (call to f_{sha}): @user_script:1: @user_script: 1: -OOM command": Kind.OOM,
        f"ERR Error running script (call to f_{sha}): @user_script:1: -READONLY You": Kind.READONLY,
    }
    for line, kind in cases.items():
        error = read_error(line)
        assert isinstance(error, BusUnavailable), line
        assert (error.kind, error.maybe_applied) == (kind, False)
    moved = read_error("MOVED 3999 127.0.0.1:6381")
    assert isinstance(moved, Redirect)
    assert (moved.slot, moved.host, moved.port, moved.ask) == (3999, "127.0.0.1", 6381, False)
    same_host = read_error("ASK 1 :7000")
    assert isinstance(same_host, Redirect)
    assert (same_host.host, same_host.ask) == ("", True)
    echo = read_error("ERR unknown command `HELLO`, with args beginning with: `2`, `AUTH`, `u`, `hunter2`")
    assert "hunter2" not in str(echo)
    assert "\n" not in str(read_error("ERR a\nb\x1b[31m"))
    for odd in ("", " ", "MOVED", "MOVED x y", "TR", "-", "ERR"):
        assert isinstance(read_error(odd), BusError)


async def test_what_is_no_resp_ends_the_connection() -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        bus = Connection(Endpoint("127.0.0.1", server.sockets[0].getsockname()[1]))
        with pytest.raises(BusUnavailable) as caught:
            await bus.start(timeout=0.3)
        assert caught.value.kind in {Kind.PROTOCOL, Kind.LOST}
        await bus.close()
