"""The demo page's routes: what is served with which headers, and for what a session is opened."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest
from starlette.applications import Starlette

from gateway.bus.errors import BusUnavailable, Kind
from gateway.config.examples import example_folder
from gateway.config.settings import Server, Settings
from gateway.model.errors import Code, Refusal
from gateway.web.demo import CONTENT_TYPES, Demo
from gateway.web.rates import Rates

BASE = "http://127.0.0.1:8080"
PAGE = example_folder("demo")
SERVED = [path for path in PAGE.rglob("*") if path.is_file()]
FILES = ["", "/", *(f"/{path.relative_to(PAGE).as_posix()}" for path in SERVED if path.suffix != ".html")]


@dataclass
class World:
    """A page without a gateway. ``fails`` is raised instead of opening a session."""

    settings: Settings = field(default_factory=Settings)
    said: list[str] = field(default_factory=list)
    opened: list[tuple[str, str]] = field(default_factory=list)
    fails: Exception | None = None

    def __post_init__(self) -> None:
        self.demo = Demo(self.settings, self.said.append)
        routes = self.demo.routes(self.open_session, Rates(0.001, 3, "test"))
        transport = httpx.ASGITransport(Starlette(routes=routes))
        self.client = httpx.AsyncClient(transport=transport, base_url=BASE)
        self.said += self.demo.lines(BASE, demo=True)

    async def open_session(self, agent_name: str, label: str) -> tuple[str, str]:
        if self.fails is not None:
            raise self.fails
        self.opened.append((agent_name, label))
        return f"session {len(self.opened)}", "a token"

    @property
    def code(self) -> str:
        """Of the newest address that was said."""
        return re.findall(r"/demo#([\w-]+)", "\n".join(self.said))[-1]

    async def ask(self, code: str, **headers: str) -> httpx.Response:
        headers = {"origin": BASE, "content-type": "application/json", **headers}
        return await self.client.post("/demo/session", content=json.dumps({"code": code}), headers=headers)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    async with world.client:
        yield world


# --- the files


@pytest.mark.parametrize("name", FILES)
async def test_every_file_is_served_with_its_type_and_a_strict_policy(world: World, name: str) -> None:
    reply = await world.client.get(f"/demo{name}")
    assert reply.status_code == 200
    suffix = re.search(r"\.\w+$", name)
    assert reply.headers["content-type"] == CONTENT_TYPES[suffix[0] if suffix else ".html"]
    policy = dict(part.split(" ", 1) for part in reply.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert reply.headers["cache-control"] == "no-cache"


def test_the_page_needs_nothing_that_the_policy_forbids() -> None:
    for path in SERVED:
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn|\bimport\(|\beval\(|innerHTML", text), path.name
    page = (PAGE / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert not re.search(r"<style|\sstyle=|\son\w+=", page)


async def test_a_file_that_is_known_is_not_sent_again(world: World) -> None:
    first = await world.client.get("/demo/app.js")
    second = await world.client.get("/demo/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (second.status_code, second.content) == (304, b"")


@pytest.mark.parametrize("path", ["/demo/nothing.js", "/demo/..%2fapp.js", "/demo/../pyproject.toml", "/demo/app.py"])
async def test_what_is_no_file_of_the_page_is_not_found(world: World, path: str) -> None:
    assert (await world.client.get(path)).status_code == 404


# --- sessions


async def test_a_code_opens_one_session_and_the_next_one_is_said(world: World) -> None:
    code = world.code
    reply = await world.ask(code)
    assert reply.status_code == 201
    assert reply.json() == {"session_id": "session 1", "token": "a token"}
    assert reply.headers["cache-control"] == "no-store"
    assert "set-cookie" not in reply.headers
    assert world.code != code
    again = await world.ask(code)
    assert (again.status_code, again.json()["error"]["code"]) == (403, "forbidden")
    assert (await world.ask(world.code)).status_code == 201
    assert world.opened == [("demo", "demo page")] * 2


@pytest.mark.parametrize("origin", ["null", "http://evil.example", "http://127.0.0.1:8081", "https://127.0.0.1:8080"])
async def test_another_origin_opens_nothing_and_spends_nothing(world: World, origin: str) -> None:
    code = world.code
    assert (await world.ask(code, origin=origin)).status_code == 403
    assert world.opened == []
    assert (await world.ask(code)).status_code == 201


async def test_a_request_without_an_origin_is_none_of_the_page(world: World) -> None:
    assert (await world.client.post("/demo/session", json={"code": world.code})).status_code == 403
    assert world.opened == []


async def test_the_page_of_a_public_address_is_that_origin_alone() -> None:
    world = World(Settings(server=Server(public_url="https://tools.example")))
    async with world.client:
        assert (await world.ask(world.code)).status_code == 403
        assert (await world.ask(world.code, origin="https://tools.example")).status_code == 201


@pytest.mark.parametrize("code", ["", "x", "ü" * 20, "\ud800"])
async def test_a_wrong_code_is_refused_and_soon_has_to_wait(world: World, code: str) -> None:
    assert [(await world.ask(code)).status_code for _ in range(4)] == [403, 403, 403, 429]
    assert (await world.ask(world.code)).status_code == 201  # whoever has the right one need not wait


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[]", 400), (b'{"code": 7}', 400), (b"{}", 400), (b'{"code":"%s"}' % (b"x" * 2000), 413)],
)
async def test_a_bad_body_is_named(world: World, body: bytes, status: int) -> None:
    headers = {"origin": BASE, "content-type": "application/json"}
    reply = await world.client.post("/demo/session", content=body, headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, "invalid_request")


async def test_a_form_of_another_page_cannot_speak_json(world: World) -> None:
    headers = {"origin": BASE, "content-type": "text/plain"}
    reply = await world.client.post("/demo/session", content=b'{"code":"%s"}' % world.code.encode(), headers=headers)
    assert reply.status_code == 415


@pytest.mark.parametrize(
    ("error", "status"), [(BusUnavailable(Kind.DOWN), 503), (Refusal(Code.TOO_MANY_REQUESTS), 429)]
)
async def test_a_code_whose_session_did_not_come_about_is_still_good(
    world: World, error: Exception, status: int
) -> None:
    code = world.code
    world.fails = error
    assert (await world.ask(code)).status_code == status
    world.fails = None
    assert (await world.ask(code)).status_code == 201
