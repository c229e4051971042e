"""What a person sees first: in a real Chromium “highlight row 3” highlights row 3."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.browser import chromium, page_of
from tests.doubles.demo_process import running_demo

pytestmark = pytest.mark.peers

PICTURE = os.environ.get("DEMO_PICTURE", "")
"""Where the picture for README is to be written; see docs/images/README.md."""


async def highlighted(page: Any) -> list[str]:
    return await page.eval_on_selector_all("tr.highlighted", "rows => rows.map((row) => row.dataset.row)")


async def online(page: Any) -> None:
    await page.wait_for_selector("#state[data-state=online]")


async def say(page: Any, text: str) -> None:
    await page.get_by_label("Message to the agent").fill(text)
    await page.get_by_role("button", name="Send").click()


async def test_the_agent_highlights_the_row_that_was_asked_for(tmp_path: Path) -> None:
    async with running_demo(tmp_path) as demo, chromium() as browser:
        async with page_of(browser, viewport={"width": 1160, "height": 660}) as (page, complaints):
            await page.goto(await demo.address())
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


async def test_an_unknown_row_is_an_answer_and_highlights_nothing(tmp_path: Path) -> None:
    async with running_demo(tmp_path) as demo, chromium() as browser, page_of(browser) as (page, complaints):
        await page.goto(await demo.address())
        await online(page)
        await say(page, "highlight row 12")
        await page.wait_for_selector(".call[data-state=failed]")
        await page.get_by_text("That did not work: There is no row 12").wait_for()
        assert await highlighted(page) == []
        assert complaints == []


async def test_an_address_works_once_and_its_tab_survives_a_reload(tmp_path: Path) -> None:
    async with running_demo(tmp_path) as demo, chromium() as browser:
        first = await demo.address()
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
            await other.goto(await demo.address(1))  # the fragment alone is new: the page takes it up without a load
            await online(other)
            assert await highlighted(other) == []


async def test_a_page_that_comes_back_resumes_its_registration(tmp_path: Path) -> None:
    async with running_demo(tmp_path) as demo, chromium() as browser, page_of(browser) as (page, _):
        await page.goto(await demo.address())
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
