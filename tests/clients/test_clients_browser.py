"""The client in a real Chromium: reloads, tabs, navigation, the back-forward cache, a frozen page, a lost network.

Each test proves its condition first (a page that came from the cache, timers that stand still, a link that is cut).
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.clients.site import WAIT_S, Site
from tests.doubles.browser import chromium, page_of
from tests.doubles.tcp_proxy import TcpProxy

pytestmark = pytest.mark.peers
OFFLINE_S = 20.0
STILL_S = 5.0


@pytest_asyncio.fixture
async def browser() -> AsyncIterator[Any]:
    async with chromium(without=("--disable-back-forward-cache",)) as running:
        yield running


async def online(page: Any) -> None:
    await page.wait_for_function("globalThis.client?.state === 'online'")


async def began(page: Any, call_id: str) -> Any:
    await page.wait_for_function("(id) => seen.calls.some((call) => call.callId === id)", arg=call_id)
    return await page.evaluate("(id) => seen.calls.filter((call) => call.callId === id)", call_id)


async def test_a_reload_in_the_middle_of_a_call(site: Site, browser: Any) -> None:
    async with page_of(browser) as (page, complaints):
        await page.goto(site.address(tools=("hold", "hold_idempotent")))
        await online(page)
        first = await site.registered()
        lost = await site.dispatch(first, "hold")
        kept = await site.dispatch(first, "hold_idempotent", idempotent=True)
        await began(page, lost)
        await began(page, kept)
        start = time.monotonic()
        reloading = asyncio.create_task(page.reload())
        failed = await site.logged("client_tool_failed", call_id=lost)
        took = time.monotonic() - start
        await reloading
        assert failed["reason"] == "client_gone"
        assert took < 1.0, f"{took:.2f} s"
        assert await began(page, kept) == [{"callId": kept, "name": "hold_idempotent", "attempt": 2}]
        await page.evaluate("(id) => finish(id, 'by the new page')", kept)
        assert await site.answer(kept) == "by the new page"
        assert complaints == []


async def test_two_tabs_of_one_key_do_not_fight(site: Site, browser: Any) -> None:
    async with page_of(browser) as (page, _):
        address = site.address(key="the tab")
        await page.goto(address)
        await online(page)
        other = await page.context.new_page()
        await other.goto(address)
        await online(other)
        await page.wait_for_function("client.state === 'yielded'")
        call_id = await site.dispatch(await site.registered(2), "echo")
        assert await site.answer(call_id) == '{"row":3}'
        assert await page.evaluate("seen.calls") == []
        await page.evaluate("client.reclaim()")
        await online(page)
        await other.wait_for_function("client.state === 'yielded'")
        assert await site.registered(3)


async def test_one_tab_leads_and_the_next_one_follows(site: Site, browser: Any) -> None:
    async with page_of(browser) as (page, _):
        address = site.address(key="the leader", leader=True)
        await page.goto(address)
        await online(page)
        other = await page.context.new_page()
        await other.goto(address)
        await other.wait_for_function("globalThis.client?.state === 'standby'")
        assert await site.registered(1)
        await page.close()
        await online(other)
        call_id = await site.dispatch(await site.registered(2), "echo")
        assert await site.answer(call_id) == '{"row":3}'


async def test_a_page_that_navigates_in_its_own_handler(site: Site, browser: Any) -> None:
    async with page_of(browser) as (page, complaints):
        await page.goto(site.address(tools=("navigate", "echo")))
        await online(page)
        call_id = await site.dispatch(await site.registered(), "navigate")
        assert await site.answer(call_id) == "on my way"
        await page.wait_for_url(re.compile(r"\?next#"))
        await online(page)
        there = await site.dispatch(await site.registered(2), "echo")
        assert await site.answer(there) == '{"row":3}'
        assert complaints == []


async def test_into_the_cache_and_back(site: Site, browser: Any) -> None:
    async with page_of(browser) as (page, _):
        await page.goto(site.address())
        await online(page)
        client_id = await site.registered()
        begun = await site.dispatch(client_id, "hold")
        await began(page, begun)
        await page.goto(f"{site.origin}/other.html")
        missed = await site.dispatch(client_id, "echo")
        await page.evaluate("history.back()")
        await page.wait_for_function("globalThis.seen?.shown.length > 0")
        assert await page.evaluate("seen.shown.at(-1)") is True, "the page did not come from the cache"
        await online(page)
        assert await site.answer(missed) == '{"row":3}'
        await page.evaluate("(id) => finish(id, 'still here')", begun)
        assert await site.answer(begun) == "still here"
        assert await site.registered() == client_id
        assert [call["callId"] for call in await page.evaluate("seen.calls")] == [begun, missed]


async def test_a_page_that_stands_still_keeps_its_place(site: Site, browser: Any) -> None:
    async with page_of(browser) as (page, _):
        await page.goto(site.address())
        await online(page)
        client_id = await site.registered()
        devtools = await page.context.new_cdp_session(page)
        await devtools.send("Debugger.enable")
        paused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        devtools.on("Debugger.paused", lambda event: paused.done() or paused.set_result(event))
        before = await page.evaluate("seen.ticks")
        stopping = asyncio.create_task(devtools.send("Runtime.evaluate", {"expression": "debugger"}))
        await asyncio.wait_for(paused, WAIT_S)
        missed = await site.dispatch(client_id, "echo")
        await asyncio.sleep(STILL_S)
        await devtools.send("Debugger.resume")
        await stopping
        ticks = await page.evaluate("seen.ticks")
        assert ticks - before < 5 * STILL_S, "its timers went on"
        assert await site.answer(missed) == '{"row":3}'
        assert await page.evaluate("seen.states") == ["online"]


async def test_offline_for_a_while_and_back(site: Site, browser: Any) -> None:
    async with TcpProxy(("127.0.0.1", site.node.port)) as proxy, page_of(browser) as (page, _):
        await page.goto(site.address(port=proxy.port))
        await online(page)
        client_id = await site.registered()
        await page.context.set_offline(True)
        proxy.up.clear()
        proxy.down.clear()
        proxy.cut()
        await page.wait_for_function("client.state !== 'online'")
        assert await page.evaluate("navigator.onLine") is False
        missed = await site.dispatch(client_id, "echo")
        await asyncio.sleep(OFFLINE_S)
        assert await page.evaluate("client.state") in ("waiting", "connecting")
        proxy.up.set()
        proxy.down.set()
        await page.context.set_offline(False)
        assert await site.answer(missed) == '{"row":3}'
        assert await site.registered() == client_id
        assert len(await page.evaluate("seen.calls")) == 1


async def test_eight_tabs_over_one_http_1_1_host(site: Site, browser: Any) -> None:
    async with page_of(browser) as (page, _):
        pages = [page, *[await page.context.new_page() for _ in range(7)]]
        for number, tab in enumerate(pages, 1):
            await tab.goto(site.address(name=f"tab-{number}"))
            await online(tab)
            client_id = await site.registered(number)
            assert await site.answer(await site.dispatch(client_id, "echo")) == '{"row":3}'
        assert len(site.node.sockets) == 8
        hop = "performance.getEntriesByType('navigation')[0].nextHopProtocol"
        for tab in pages:
            assert await tab.evaluate(hop) == "http/1.1"
            assert await tab.evaluate("client.state") == "online"
            assert len(await tab.evaluate("seen.calls")) == 1
