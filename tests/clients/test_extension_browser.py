"""The example extension in a real Chromium: consent, its tools, and a worker that is ended and woken.

A test cannot click the button that grants ``activeTab``, so the copy that it loads may see the test's pages by host.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.config.settings import Agent, Server, Settings
from tests.clients.driven import ROOT
from tests.clients.site import PAGES, Site
from tests.doubles.browser import persistent
from tests.doubles.page_server import page_server
from tests.doubles.socket_world import World

pytestmark = pytest.mark.peers
EXTENSION = ROOT / "examples/extension-mv3"
ID = "alenplhnfpgbbnllppclaacbapdjionj"


@dataclass
class Loaded:
    """The extension, connected, and its popup as a page."""

    site: Site
    context: Any
    popup: Any

    async def consent(self, page: Any, on: bool) -> int:
        """Switches a tab: its id."""
        return await self.popup.evaluate(
            """async ([url, on]) => {
              const tab = (await chrome.tabs.query({})).find((one) => one.url === url);
              await chrome.runtime.sendMessage({ request: "consent", tab: { id: tab.id, url: tab.url }, on });
              return tab.id;
            }""",
            [page.url, on],
        )

    async def ask(self, tool: str) -> str:
        return await self.site.answer(await self.site.dispatch(await self.site.registered(), tool))


@pytest_asyncio.fixture
async def loaded(bus_world: World, tmp_path: Path) -> AsyncIterator[Loaded]:
    folder = tmp_path / "extension"
    shutil.copytree(EXTENSION, folder)
    with page_server({"/": PAGES}) as origin:
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["host_permissions"] = ["http://127.0.0.1/*"]
        (folder / "manifest.json").write_text(json.dumps(manifest))
        agent = Agent(name="pages", command=("true",), cwd="/", allowed_origins=(f"chrome-extension://{ID}",))
        node = await bus_world.node(settings=Settings(server=Server(), agents=(agent,)))
        session_id, token = await node.session(agent)
        site = Site(node, origin, session_id, token, await node.own(session_id))
        async with persistent(tmp_path / "profile", folder) as context:
            popup = await context.new_page()
            await popup.goto(f"chrome-extension://{ID}/popup.html")
            await popup.get_by_label("Gateway").fill(f"http://127.0.0.1:{node.port}")
            await popup.get_by_label("Session").fill(session_id)
            await popup.get_by_label("Token").fill(token)
            await popup.get_by_role("button", name="Connect", exact=True).click()
            await popup.get_by_text("Connected", exact=True).wait_for()
            yield Loaded(site, context, popup)


def test_its_permissions_are_the_least() -> None:
    manifest = json.loads((EXTENSION / "manifest.json").read_text())
    assert manifest["permissions"] == ["activeTab", "alarms", "scripting", "storage"]
    assert not {"host_permissions", "optional_host_permissions", "content_scripts"} & manifest.keys()
    assert ID in (EXTENSION / "README.md").read_text("utf-8")


async def test_only_a_tab_that_is_switched_on_can_be_read(loaded: Loaded) -> None:
    page = await loaded.context.new_page()
    await page.goto(f"{loaded.site.origin}/other.html")
    assert (await loaded.ask("read_tab")).startswith("The person has switched on no tab.")
    tab_id = await loaded.consent(page, True)
    assert json.loads(await loaded.ask("list_tabs")) == [{"tab_id": tab_id, "title": "Another page", "url": page.url}]
    assert await loaded.ask("read_tab") == f"Another page\n{page.url}\n\nSomething to read."
    await loaded.consent(page, False)
    assert (await loaded.ask("read_tab")).startswith("The person has switched on no tab.")
    await loaded.consent(page, True)
    await page.goto("about:blank")
    assert json.loads(await loaded.ask("list_tabs")) == []


async def test_a_worker_that_is_ended_is_woken_and_answers(loaded: Loaded) -> None:
    page = await loaded.context.new_page()
    await page.goto(f"{loaded.site.origin}/other.html")
    await loaded.consent(page, True)
    client_id = await loaded.site.registered()
    # A popup that is open would wake the worker itself.
    await loaded.popup.goto("about:blank")
    devtools = await loaded.context.browser.new_browser_cdp_session() if loaded.context.browser else None
    devtools = devtools or await loaded.context.new_cdp_session(page)
    found = (await devtools.send("Target.getTargets"))["targetInfos"]
    (worker,) = [one for one in found if one["type"] == "service_worker"]
    await devtools.send("Target.closeTarget", {"targetId": worker["targetId"]})
    async with asyncio.timeout(10):  # the call is an order, not its result
        while any(one["targetId"] == worker["targetId"] for one in found):
            await asyncio.sleep(0.02)
            found = (await devtools.send("Target.getTargets"))["targetInfos"]
    call_id = await loaded.site.dispatch(client_id, "read_tab")
    assert (await loaded.site.answer(call_id, within_s=60)).endswith("Something to read.")
    assert await loaded.site.registered() == client_id  # resumed, not made anew
