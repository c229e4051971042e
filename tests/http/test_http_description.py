"""The description: whole, true to the routes, and readable offline."""

import json
import re
from html import escape
from typing import Any

from starlette.routing import Match

from adapters.http.openapi import document, encoded
from adapters.http.paths import Paths
from adapters.http.routes import OPERATIONS
from adapters.websocket import asyncapi
from gateway import __version__
from gateway.model.events import EVENT_TYPES
from tests.doubles.http_node import Node

DOCUMENT = document(OPERATIONS)


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if isinstance(value.get("$ref"), str) else set[str]()
        return found.union(*(references(inner) for inner in value.values()))
    if isinstance(value, list):
        return set[str]().union(*(references(inner) for inner in value))
    return set()


def test_every_reference_leads_somewhere() -> None:
    for reference in references(DOCUMENT):
        place: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            assert step in place, reference
            place = place[step]


def test_names_are_unique_and_parameters_are_described() -> None:
    names = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names)) == len(OPERATIONS)
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            described = [p["name"] for p in operation["parameters"] if p["in"] == "path"]
            assert described == re.findall(r"{(\w+)}", path)


def test_every_event_of_the_log_is_described() -> None:
    assert len(DOCUMENT["components"]["schemas"]["SessionEvent"]["oneOf"]) == len(EVENT_TYPES) == 20


async def test_the_routes_are_those_of_the_description(node: Node) -> None:
    router = node.gateway._app.router
    for path, methods in DOCUMENT["paths"].items():
        scope = {"type": "http", "path": path, "method": "GET"}
        first = next(route for route in router.routes if route.matches(scope)[0] is Match.FULL)
        assert isinstance(first, Paths)
        assert path in first.templates
        async with node.client() as client:
            options = await client.request("OPTIONS", re.sub(r"{\w+}", "x", path))
        assert set(options.headers["allow"].lower().split(", ")) == {*methods, "options"}


async def test_it_is_served(node: Node) -> None:
    async with node.client(None) as bare:
        served = await bare.get("/-/openapi.json")
        assert (served.status_code, served.content) == (200, encoded(OPERATIONS))
        assert json.loads(served.content) == DOCUMENT
        page = await bare.get("/-/docs")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "<script" not in page.text
        assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", page.text)
        for operation in OPERATIONS:
            assert f'id="{operation.name}"' in page.text
        for name in re.findall(r'href="#(\w+)"', page.text):
            assert f'id="{name}"' in page.text
        answers = [ops["responses"] for methods in DOCUMENT["paths"].values() for ops in methods.values()]
        for status in set[str]().union(*answers) - {"200", "201", "204"}:
            text = DOCUMENT["components"]["responses"][status]["description"]
            assert escape(text) in page.text, "a refusal is explained where it stands"
        assert (await bare.post("/-/docs")).status_code == 405


async def test_the_sockets_description_is_served_beside_it(node: Node) -> None:
    async with node.client(None) as bare:
        served = await bare.get("/-/asyncapi.json")
        assert (served.status_code, served.headers["content-type"]) == (200, "application/json")
        assert served.json() == asyncapi.document(version=__version__)
        assert served.json()["info"]["version"] == __version__
        assert (await bare.post("/-/asyncapi.json")).status_code == 405
