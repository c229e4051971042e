"""The checker of lifetimes has tests of its own: what it finds, where it looks, when it fails a test."""

from pathlib import Path

import pytest
import redis

from tests.doubles.lifetimes import WATCHED, assert_lifetimes, lasting, lasting_at, watched
from tests.doubles.nodes import Node, demo_agent, shared_server
from tests.doubles.valkey_servers import Server, connected

pytest_plugins = ("pytester",)
STAYS = "t:{p00}:s:x"


def test_what_may_have_no_lifetime():
    may = ["t:{p00}:due", "other:{p7f}:work", "t:{g}:sessions:agent", "k1", "foreign:{p99}:s:x", "t:p00:due"]
    not_so = [STAYS, "t:{p00}:due:more", "t:{p00}:overdue", "t:{nodes}:leases", "t:{p00}:s:x:idem:a\nb", "{p00}:s:x"]
    assert lasting([*may, *not_so[:-1]]) == sorted(not_so[:-1])
    assert lasting(not_so[-1:]) == [], "without a prefix it is none of ours"


async def test_a_server_of_a_test_is_looked_at_when_it_stops():
    server = Server()
    with pytest.raises(AssertionError, match="keys without a lifetime"):
        async with server:
            bus = await connected(server)
            await bus.call("SET", STAYS, "1")
            await bus.call("SET", "t:{p00}:s:y", "1", "PX", 60_000)
            await bus.close()
            assert lasting_at(server.url) == [STAYS]
    assert server.process is not None
    assert server.process.returncode is not None, "it was stopped all the same"
    assert lasting_at(server.url) == [], "nobody is there"


async def test_a_test_that_fails_says_why_and_nothing_of_keys():
    with pytest.raises(ZeroDivisionError):
        async with Server() as server:
            bus = await connected(server)
            await bus.call("SET", STAYS, "1")
            await bus.close()
            raise ZeroDivisionError


def test_a_shared_server_is_watched_while_it_runs():
    with shared_server() as url:
        assert url in WATCHED
        assert_lifetimes(url)
    assert url not in WATCHED
    with pytest.raises(ZeroDivisionError), watched("redis://nowhere"):
        raise ZeroDivisionError
    assert "redis://nowhere" not in WATCHED


def test_the_redis_of_a_node_is_found(tmp_path: Path):
    with Node(tmp_path, agents=[demo_agent(tmp_path)]) as node:
        (url,) = node.embedded()
        assert url.startswith("unix:///")
        assert_lifetimes(url)
    assert node.embedded() == []


def test_a_test_that_leaves_such_a_key_fails(pytester: pytest.Pytester, redis_url: str):
    """By the fixture that every test has."""
    root = Path(__file__).parents[2]
    pytester.makeconftest((root / "tests/conftest.py").read_text("utf-8"))
    pytester.makepyfile(f"""
        import pytest, redis

        @pytest.fixture(scope="session")
        def somewhere():
            return {redis_url!r}

        @pytest.mark.parametrize("lifetime", [60, None])
        def test_it(somewhere, lifetime):
            with redis.Redis.from_url(somewhere) as link:
                link.set({STAYS!r}, "1", ex=lifetime)

        def test_that_uses_none():
            pass
    """)
    ended = pytester.runpytest_subprocess("-p", "no:asyncio", f"--rootdir={root}", "-o", f"pythonpath={root}")
    ended.assert_outcomes(passed=3, errors=1)
    ended.stdout.fnmatch_lines([f"*keys without a lifetime: *{STAYS}*"])
    with redis.Redis.from_url(redis_url) as link:
        link.flushall()
