"""``GET …/catalog``: what a session's model can reach, and how (contract, Addresses)."""

from typing import Any

from gateway.services.catalogs import LAST_TURN, NEXT_TURN, CatalogRecord
from tests.doubles.http_node import Node
from tests.http.conftest import Talk, new_session


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    return {"name": name, "description": f"The tool {name}.", "parameters": {"type": "object", **parameters}}


async def register(talk: Talk, name: str, *tools: dict[str, Any]) -> str:
    body = {"name": name, "lifetime": {"type": "never"}, "tools": list(tools)}
    answer = await talk.page.post(f"{talk.path}/clients", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


async def catalog(talk: Talk) -> dict[str, Any]:
    answer = await talk.page.get(f"{talk.path}/catalog")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_before_the_first_child_it_says_what_the_first_will_have(talk: Talk) -> None:
    assert await catalog(talk) == {"generation": 0, "items": []}
    cut = {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}, "if": {"required": ["a"]}}
    one = await register(talk, "web", tool("go-to"), tool("go_to", **cut))
    two = await register(talk, "second-page", tool("x"))
    items = (await catalog(talk))["items"]
    assert [(item["client_id"], item["tool"], item["native"]) for item in items] == [
        (one, "go-to", True),
        (one, "go_to", True),
        (two, "x", True),
    ]
    assert items[0] == {
        "model_name": "client__web__go_to",
        "client_id": one,
        "tool": "go-to",
        "native": True,
        "notes": [],
    }
    assert items[1]["model_name"].startswith("client__web__go_to_")
    assert any("if" in note for note in items[1]["notes"])
    assert items[2]["model_name"] == "client__second_page__x"


async def test_it_says_what_the_child_in_service_has(node: Node, talk: Talk) -> None:
    client_id = await register(talk, "web", tool("go-to"), tool("new"))
    record = CatalogRecord(
        generation=3,
        names={client_id: {"go-to": "client__web__go_to_0a1b2c"}},
        native=("client__web__go_to_0a1b2c",),
        chosen=("client__web__go_to_0a1b2c",),
        excluded={"client__web__go_to_0a1b2c": "not native: for a test"},
    )
    keys = node.store.keys.session(talk.id)
    await node.store.call(keys.tag, "HSET", keys.base, "catalog", record.encoded)
    shown = await catalog(talk)
    assert shown["generation"] == 3
    assert [(item["model_name"], item["native"], item["notes"]) for item in shown["items"]] == [
        ("client__web__go_to_0a1b2c", True, [LAST_TURN]),
        ("client__web__new", False, [NEXT_TURN]),
    ]


async def test_who_may_read_it(talk: Talk) -> None:
    assert (await talk.key.get(f"{talk.path}/catalog")).status_code == 200
    other = await new_session(talk.key)
    assert (await talk.page.get(f"/v1/sessions/{other['id']}/catalog")).status_code == 404
    assert (await talk.page.get(f"{talk.path}/catalog", headers={"Authorization": "Bearer x"})).status_code == 401
    missing = "/v1/sessions/00000000-0000-4000-8000-000000000000/catalog"
    assert (await talk.key.get(missing)).status_code == 404
    assert (await talk.page.put(f"{talk.path}/catalog")).status_code == 405


async def test_it_is_described(talk: Talk) -> None:
    described = (await talk.page.get("/-/openapi.json")).json()
    answer = described["paths"]["/v1/sessions/{sid}/catalog"]["get"]["responses"]["200"]
    assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Catalog"}
    item = described["components"]["schemas"]["CatalogItem"]
    assert item["required"] == ["model_name", "client_id", "tool", "native", "notes"]
