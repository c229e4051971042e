"""Subscriptions against a real server: confirmation, counting, gaps, and the silent connection."""

import asyncio
import logging

import pytest

from gateway.bus.connect import Endpoint, Login
from gateway.bus.connection import Connection
from gateway.bus.errors import BusUnavailable, Kind
from gateway.bus.subscriber import Subscriber
from tests.doubles.tcp_proxy import TcpProxy
from tests.doubles.valkey_servers import Server, ask, until


async def test_channels_are_counted_and_confirmed_in_batches() -> None:
    async with (
        Server() as server,
        Connection(server.endpoint) as bus,
        Subscriber(server.endpoint, commands=bus) as subscriber,
    ):
        one: list[bytes] = []
        two: list[bytes] = []
        await asyncio.gather(*(subscriber.subscribe(b"c%d" % n, one.append) for n in range(1000)))
        await subscriber.subscribe(b"c7", two.append)
        assert await bus.call("PUBLISH", "c7", "x") == 1
        await until(lambda: one == two == [b"x"])
        subscriber.unsubscribe(b"c7", one.append)
        assert await bus.call("PUBLISH", "c7", "y") == 1
        await until(lambda: two == [b"x", b"y"])
        assert one == [b"x"]
        subscriber.unsubscribe(b"c7", two.append)

        async def left() -> bool:
            return await bus.call("PUBSUB", "NUMSUB", "c7") == [b"c7", 0]

        await until(left)
        # Left and wanted again within one turn: nothing is sent, and nothing is missed.
        subscriber.unsubscribe(b"c8", one.append)
        again = subscriber.subscribe(b"c8", two.append)
        await again
        assert await bus.call("PUBLISH", "c8", "z") == 1
        await until(lambda: two[-1] == b"z")
        # Left, then wanted again while the first is on its way.
        future = again
        for _ in range(3):
            subscriber.unsubscribe(b"c8", two.append)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            future = subscriber.subscribe(b"c8", two.append)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await future
        assert await bus.call("PUBLISH", "c8", "last") == 1


async def test_a_callback_that_raises_hurts_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        Server() as server,
        Connection(server.endpoint) as bus,
        Subscriber(server.endpoint, commands=bus) as subscriber,
    ):
        got: list[bytes] = []

        def broken(_: bytes) -> None:
            raise RuntimeError

        with caplog.at_level(logging.CRITICAL):
            await subscriber.subscribe(b"c", broken)
            await subscriber.subscribe(b"c", got.append)
            await bus.call("PUBLISH", "c", "x")
            await until(lambda: got == [b"x"])
        assert subscriber.failures == 1
        assert subscriber.gaps == 0


async def test_a_gap_is_told_when_the_channels_are_subscribed_again() -> None:
    async with (
        Server() as server,
        Connection(server.endpoint) as bus,
        Subscriber(server.endpoint, commands=bus) as subscriber,
    ):
        got: list[bytes] = []
        gaps: list[object] = []
        forget = subscriber.on_gap(lambda: gaps.append(bus.call("PUBLISH", "c600", "at once")))
        await asyncio.gather(*(subscriber.subscribe(b"c%d" % n, got.append) for n in range(700)))
        await ask(server.port, "CLIENT", "KILL", "TYPE", "pubsub")
        waiting = subscriber.subscribe(b"new", got.append)
        await until(lambda: got == [b"at once"])
        await waiting
        assert len(gaps) == 1
        forget()
        await ask(server.port, "CLIENT", "KILL", "TYPE", "pubsub")
        await until(lambda: subscriber.gaps == 2)
        assert len(gaps) == 1


async def test_a_subscription_that_is_open_and_silent_is_found() -> None:
    async with Server() as server, TcpProxy(("127.0.0.1", server.port)) as proxy, Connection(server.endpoint) as bus:
        through = Endpoint("127.0.0.1", proxy.port)
        async with Subscriber(through, commands=bus, idle_s=0.2, probe_s=0.2) as subscriber:
            got: list[bytes] = []
            await subscriber.subscribe(b"c", got.append)
            await until(lambda: subscriber.received >= 2)  # probes come back
            assert subscriber.silent == 0
            proxy.half_open()
            await until(lambda: subscriber.silent == 1 and subscriber.gaps == 1 and subscriber.up, 5)
            await bus.call("PUBLISH", "c", "x")
            await until(lambda: got == [b"x"])


async def test_a_subscription_at_another_server_than_the_commands_is_found_at_once() -> None:
    """After a failover the one may have stayed behind: both servers answer, and nothing arrives."""
    async with Server() as old, Server() as new:
        place = [old.endpoint]

        async def where() -> Endpoint:
            return place[0]

        async with Connection(where) as bus, Subscriber(where, commands=bus, idle_s=60, probe_s=0.2) as subscriber:
            place[0] = new.endpoint
            bus.reconnect()
            await until(lambda: subscriber.silent == 1 and subscriber.up and subscriber.endpoint == new.endpoint, 5)
            assert subscriber.gaps == 1


async def test_a_command_connection_that_is_down_is_not_the_subscriptions_fault() -> None:
    async with Server() as server, TcpProxy(("127.0.0.1", server.port)) as proxy:
        async with Connection(Endpoint("127.0.0.1", proxy.port)) as bus:
            async with Subscriber(server.endpoint, commands=bus, idle_s=0.05, probe_s=0.05) as subscriber:
                await until(lambda: subscriber.received > 1)
                proxy.up.clear()
                seen = subscriber.received
                await asyncio.sleep(0.5)  # ten probes' time
                assert subscriber.silent == 0
                assert subscriber.received <= seen + 1
                proxy.up.set()
                await until(lambda: subscriber.received > seen + 2)


async def test_one_refused_channel_takes_no_others_with_it() -> None:
    async with Server() as server, Connection(server.endpoint) as bus:
        await bus.call(
            "ACL",
            "SETUSER",
            "low",
            "on",
            ">pw",
            "resetchannels",
            "&ok:*",
            "&toolrelay:*",
            "+@pubsub",
            "+hello",
            "+ping",
        )
        async with Subscriber(server.endpoint, Login("low", "pw"), commands=bus) as subscriber:
            got: list[bytes] = []
            names = (b"ok:1", b"no:1", b"ok:2")
            outcomes = await asyncio.gather(
                *(subscriber.subscribe(name, got.append) for name in names), return_exceptions=True
            )
            assert [type(o) for o in outcomes] == [type(None), BusUnavailable, type(None)]
            assert getattr(outcomes[1], "kind", None) is Kind.NOPERM
            assert await bus.call("PUBLISH", "ok:2", "x") == 1
            await until(lambda: got == [b"x"])


async def test_close_answers_those_who_wait() -> None:
    async with Server() as server, Connection(server.endpoint) as bus:
        subscriber = Subscriber(Endpoint("127.0.0.1", 1), commands=bus)
        future = subscriber.subscribe(b"c", lambda _: None)
        with pytest.raises(BusUnavailable):
            await subscriber.start(timeout=0.1)
        await subscriber.close()
        with pytest.raises(BusUnavailable, match="closed"):
            await future
        with pytest.raises(BusUnavailable, match="closed"):
            await subscriber.subscribe(b"c", lambda _: None)
