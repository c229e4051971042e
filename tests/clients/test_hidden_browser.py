"""A hidden tab whose timers the browser throttles to one a minute keeps its registration and answers.

The condition is proved first: the page is hidden, and a timer of 100 ms stood still for most of a minute.
"""

import asyncio
from pathlib import Path

import pytest

from tests.clients.site import Site
from tests.doubles.window import window

pytestmark = pytest.mark.peers

GRACE_S = 10
SHORT_GRACE = f"--enable-features=IntensiveWakeUpThrottling:grace_period_seconds/{GRACE_S}"
"""A hidden page's timers fire once a second at most, and once a minute after this grace (300 s without the switch)."""


@pytest.mark.parametrize(
    ("switches", "hidden_s", "stood_still_s"),
    [
        # Of the minute after the grace one wake-up cuts two parts; the longer one has half of it at least.
        pytest.param((SHORT_GRACE,), GRACE_S + 60, 25, id="70 s"),
        pytest.param((), 480, 50, id="8 minutes", marks=pytest.mark.nightly),
    ],
)
async def test_a_hidden_tab_stays_registered(
    site: Site, tmp_path: Path, switches: tuple[str, ...], hidden_s: int, stood_still_s: int
) -> None:
    async with window(tmp_path / "profile", *switches) as shown:
        tab = await shown.open(site.address(ttlSeconds=5))
        await tab.until("globalThis.client?.state === 'online'")
        client_id = await site.registered()
        assert await tab.evaluate("document.hidden") is False
        await shown.open("about:blank")
        await tab.until("document.hidden")
        await asyncio.sleep(hidden_s)
        assert await tab.evaluate("document.hidden") is True
        still_ms = await tab.evaluate("Math.max(seen.longest, performance.now() - seen.at)")
        assert still_ms >= 1000 * stood_still_s, f"its timers went on: {still_ms:.0f} ms at most without one"

        assert await site.answer(await site.dispatch(client_id, "echo")) == '{"row":3}'
        # A handler that takes its time is acknowledged without a timer, so the call is not taken for unheard.
        held = await site.dispatch(client_id, "hold")
        await site.logged("client_tool_acked", call_id=held)
        await tab.evaluate(f"finish('{held}', 'from behind')")
        assert await site.answer(held) == "from behind"
        assert await tab.evaluate("document.hidden") is True
        assert await tab.evaluate("seen.states") == ["online"]
        kinds = {event["type"] for event in await site.log()}
        assert "client_left" not in kinds
        assert await site.registered() == client_id
