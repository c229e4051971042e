"""History, models and selection of the real child, asked over HTTP on another node (bridge 11)."""

from typing import Any

import pytest

from tests.doubles.nodes_session import conversation

pytestmark = pytest.mark.peers


async def test_the_real_childs_history_is_read_on_another_node(pair: Any):
    async with conversation(pair.edge, "magi") as talk:
        assert await talk.done("GET", "/history") == {"items": [], "next_cursor": None, "complete": True}
        await talk.run({"text": "Seven."})
        page = await talk.done("GET", "/history")
        assert [part["kind"] for part in page["items"]] == ["user", "assistant"]
        assert page["items"][-1]["text"] == "Seven."
        assert (await talk.ask("GET", "/history?cursor=none~none")).status_code in (400, 409)


async def test_the_real_child_lists_its_models_and_knows_no_other(pair: Any):
    async with conversation(pair.edge, "magi") as talk:
        found = await talk.done("GET", "/models")
        assert found["selection"]["model"]
        refused = await talk.ask("PUT", "/model", {"provider": "nobody", "model": "nothing"})
        assert refused.status_code == 400
        assert refused.json()["error"]["message"] == "the agent refused it: selection_invalid"
