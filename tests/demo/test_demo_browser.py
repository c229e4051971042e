"""What a person sees first: in a real Chromium “highlight row 3” highlights row 3."""

import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.doubles.browser import chromium, page_of
from tests.doubles.demo_process import DemoProcess, running_demo

pytestmark = [pytest.mark.peers, pytest.mark.asyncio(loop_scope="module")]

PICTURE = os.environ.get("DEMO_PICTURE", "")
"""Where README's picture is to be written: ``DEMO_PICTURE=docs/images/demo.png``."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DemoProcess]:
    async with running_demo(tmp_path_factory.mktemp("demo")) as process:
        yield process


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    async with chromium() as running:
        yield running


async def highlighted(page: Any) -> list[str]:
    return await page.eval_on_selector_all("tr.highlighted", "rows => rows.map((row) => row.dataset.row)")


async def online(page: Any) -> None:
    await page.wait_for_selector("#state[data-state=online]")


async def say(page: Any, text: str) -> None:
    await page.get_by_label("Message to the agent").fill(text)
    await page.get_by_role("button", name="Send").click()


async def test_the_agent_highlights_the_row_that_was_asked_for(demo: DemoProcess, browser: Any) -> None:
    async with page_of(browser, viewport={"width": 1160, "height": 660}) as (page, complaints):
        await page.goto(await demo.newest())
        await online(page)
        assert await highlighted(page) == []
        await say(page, "highlight row 3")
        await page.wait_for_selector("tr[data-row='3'].highlighted")
        await page.wait_for_selector(".call[data-state=done]")
        await page.get_by_text("The tool answered: Row 3 is highlighted").wait_for()
        await page.wait_for_selector("#working", state="hidden")
        assert await highlighted(page) == ["3"]
        assert await page.inner_text(".call .asked") == 'highlight_row(row_id: "3")'
        said = await page.eval_on_selector_all(".message", "all => all.map((one) => one.textContent)")
        assert said == [
            "You: highlight row 3",
            "Agent: I will highlight row 3.",
            "Agent: The tool answered: Row 3 is highlighted: order A-1003 of Mei Tanaka.",
        ]
        assert complaints == []
        if PICTURE:
            await page.screenshot(path=PICTURE)


async def test_an_unknown_row_is_an_answer_and_highlights_nothing(demo: DemoProcess, browser: Any) -> None:
    async with page_of(browser) as (page, complaints):
        await page.goto(await demo.newest())
        await online(page)
        await say(page, "highlight row 12")
        await page.wait_for_selector(".call[data-state=failed]")
        await page.get_by_text("That did not work: Error tool_failed: There is no row 12").wait_for()
        assert await highlighted(page) == []
        assert complaints == []


async def test_an_address_works_once_and_its_tab_survives_a_reload(demo: DemoProcess, browser: Any) -> None:
    first = await demo.newest()
    async with page_of(browser) as (page, _):
        await page.goto(first)
        await online(page)
        await say(page, "highlight row 3")
        await page.get_by_text("The tool answered").wait_for()
        assert "#" not in page.url
        await page.reload()
        await online(page)
        await page.get_by_text("The tool answered").wait_for()  # the conversation is still there
        assert await highlighted(page) == ["3"]
        await say(page, "highlight row 5")
        await page.wait_for_selector("tr[data-row='5'].highlighted")
        assert await highlighted(page) == ["5"]

        other = await page.context.new_page()
        await other.goto(first)
        await other.get_by_text("This address was used already").wait_for()
        # The fragment alone is new, so nothing is loaded: the page takes the code up by itself.
        await other.goto(await demo.newest())
        await online(other)
        assert await highlighted(other) == []


async def test_a_copied_tab_takes_the_calls_and_the_older_one_says_so(demo: DemoProcess, browser: Any) -> None:
    async with page_of(browser) as (page, _):
        await page.goto(await demo.newest())
        await online(page)
        async with page.expect_popup() as popup:
            await page.evaluate("void open('/demo')")  # a window that a page opens gets a copy of its session storage
        copy = await popup.value
        await online(copy)
        await page.wait_for_selector("#state[data-state=yielded]")
        await say(page, "highlight row 6")
        await copy.wait_for_selector("tr[data-row='6'].highlighted")
        assert await highlighted(page) == []


async def test_a_page_that_comes_back_resumes_its_registration(demo: DemoProcess, browser: Any) -> None:
    async with page_of(browser) as (page, _):
        await page.goto(await demo.newest())
        await online(page)
        # What the back-forward cache does to a page: it is told to let go, and later that it is back.
        await page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
        await page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
        await online(page)
        await say(page, "highlight row 4")
        await page.wait_for_selector("tr[data-row='4'].highlighted")
        session = await page.evaluate("JSON.parse(sessionStorage.getItem('toolrelay.demo.session'))")
        reply = await page.request.get(
            f"{page.url.removesuffix('/demo')}/v1/sessions/{session['session_id']}/events?order=asc&limit=200",
            headers={"authorization": f"Bearer {session['token']}"},
        )
        types = [event["type"] for event in (await reply.json())["items"]]
        assert types.count("client_registered") == 1
        assert "client_left" not in types


async def test_going_to_the_form_changes_the_tools_in_the_middle_of_a_run(demo: DemoProcess, browser: Any) -> None:
    async with page_of(browser) as (page, complaints):
        await page.goto(await demo.newest())
        await online(page)
        steps = [
            {"calls": [{"name": "client__demo_page__fill_form", "arguments": {"field": "customer", "value": "Ada"}}]},
            {"calls": [{"name": "client__demo_page__fill_form", "arguments": {"field": "item", "value": "Desk"}}]},
            {
                "calls": [
                    {"name": "client__use", "arguments": {"tool": "client__demo_page__save_order", "arguments": {}}}
                ]
            },
            {"text": "{{results}}"},
        ]
        await say(page, json.dumps({"steps": steps}))
        await page.wait_for_selector("#working", state="hidden")
        await page.get_by_text("The order of Desk for Ada is saved").first.wait_for()
        calls = await page.eval_on_selector_all(
            "#calls .served", "all => all.map((one) => [one.firstChild.textContent, one.dataset.state])"
        )
        assert calls == [["save_order", "answered"], ["fill_form", "answered"], ["fill_form", "answered"]]
        offered = await page.eval_on_selector_all("#offered code", "all => all.map((one) => one.textContent)")
        assert offered == ["highlight_row", "fill_form", "read_selection"]
        assert complaints == []


async def test_the_agent_reads_what_is_selected(demo: DemoProcess, browser: Any) -> None:
    async with page_of(browser) as (page, complaints):
        await page.goto(await demo.newest())
        await online(page)
        await page.evaluate(
            "getSelection().selectAllChildren(document.querySelector('tr[data-row=\"4\"] td:nth-child(3)'))"
        )
        await page.evaluate("document.querySelector('.tries button:nth-child(3)').click()")
        await page.get_by_text("The tool answered: Noor Haddad").wait_for()
        assert complaints == []


async def test_a_page_whose_session_is_gone_says_what_to_do(demo: DemoProcess, browser: Any) -> None:
    async with page_of(browser) as (page, _):
        address = await demo.newest()
        await page.goto(address.partition("#")[0])
        await page.get_by_text("This page needs its one-time address").wait_for()
        gone = {"session_id": "00000000-0000-4000-8000-000000000000", "token": "trs_none", "key": "gone"}
        await page.evaluate("(gone) => sessionStorage.setItem('toolrelay.demo.session', JSON.stringify(gone))", gone)
        await page.reload()
        await page.get_by_text("The session has ended. Open the address that the terminal shows now.").wait_for()
        assert await page.get_by_role("button", name="Send").is_disabled()
