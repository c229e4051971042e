"""Finding a path's resource by its steps: one look-up a step, however many paths there are. Owns the matching.

Starlette tries its routes one by one, which is a tenth of a call's time here. A literal step goes before a parameter's;
a parameter is one step that is not empty. Steps are told apart before they are decoded: an id may hold a ``/`` (as
``%2F``), and it is never one for us that a proxy in front, which judges paths, did not see.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send


class _Step:
    """One step of the paths that begin alike."""

    __slots__ = ("app", "literal", "name", "parameter")

    def __init__(self) -> None:
        self.app: ASGIApp | None = None
        self.literal: dict[str, _Step] = {}
        self.name = ""
        self.parameter: _Step | None = None


def _raw_path(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    return raw.decode("latin-1") if raw is not None else quote(scope["path"])


class Paths(BaseRoute):
    """Apps by path templates such as ``/v1/sessions/{sid}/events``. ``below`` answers whatever else begins with one of
    the given templates and a slash."""

    def __init__(self, apps: Mapping[str, ASGIApp], below: Mapping[str, ASGIApp]) -> None:
        self.templates: Final = tuple(apps)
        self._root = _Step()
        self._below: Final[dict[int, ASGIApp]] = {}
        for template, app in apps.items():
            self._place(template).app = app
        for template, app in below.items():
            self._below[id(self._place(template))] = app

    def _place(self, template: str) -> _Step:
        place = self._root
        for step in template.removeprefix("/").split("/"):
            if step.startswith("{"):
                name = step[1:-1]
                if place.parameter is None:
                    place.parameter, place.name = _Step(), name
                assert place.name == name, "one place has one name"
                place = place.parameter
            else:
                place = place.literal.setdefault(step, _Step())
        return place

    def find(self, path: str) -> tuple[ASGIApp, dict[str, str]] | None:
        """The app of a path, as it stands in the request's line, and the decoded values of its parameters."""
        place, values = self._root, dict[str, str]()
        fallback: tuple[ASGIApp, dict[str, str]] | None = None
        encoded = "%" in path
        for raw in path[1:].split("/"):
            step = unquote(raw) if encoded else raw
            below = self._below.get(id(place))
            if below is not None:
                fallback = below, dict(values)
            following = place.literal.get(step)
            if following is None:
                if place.parameter is None or not step:
                    return fallback
                values[place.name] = step
                following = place.parameter
            place = following
        return (place.app, values) if place.app is not None else fallback

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Starlette's question."""
        if scope["type"] == "http" and (found := self.find(_raw_path(scope))) is not None:
            app, values = found
            return Match.FULL, {"endpoint": app, "path_params": values}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Starlette's call, behind ``matches``."""
        await scope["endpoint"](scope, receive, send)
