"""Finding a path's resource."""

import pytest

from adapters.http.paths import Paths

APPS = ["/v1/a", "/v1/a/{x}", "/v1/a/{x}/b", "/v1/a/{x}/b/{y}", "/v1/a/{x}/b/{y}/c"]


@pytest.mark.parametrize(
    ("path", "found", "values"),
    [
        ("/v1/a", "/v1/a", {}),
        ("/v1/a/1", "/v1/a/{x}", {"x": "1"}),
        ("/v1/a/1/b", "/v1/a/{x}/b", {"x": "1"}),
        ("/v1/a/b/b", "/v1/a/{x}/b", {"x": "b"}),
        ("/v1/a/1/b/2/c", "/v1/a/{x}/b/{y}/c", {"x": "1", "y": "2"}),
        ("/v1/a/1/d", "below", {"x": "1"}),
        ("/v1/a/1/", "below", {"x": "1"}),
        ("/v1/a/1/b/", "below", {"x": "1"}),
        ("/v1/a/1/b/2/c/d", "below", {"x": "1"}),
        ("/v1/a/1/b/2/c/", "below", {"x": "1"}),
        ("/v1/a/", None, {}),
        ("/v1/a//b", None, {}),
        ("/v1", None, {}),
        ("/v1/", None, {}),
        ("/", None, {}),
        ("", None, {}),
        ("/V1/a", None, {}),
        ("//v1/a", None, {}),
        ("/v1/a/%2F", "/v1/a/{x}", {"x": "/"}),
        ("/v1/a/1%2Fb", "/v1/a/{x}", {"x": "1/b"}),
        ("/v1/a/1/b/x%2Fy%25/c", "/v1/a/{x}/b/{y}/c", {"x": "1", "y": "x/y%"}),
        ("/v1/a/%C3%A9%ff", "/v1/a/{x}", {"x": "é�"}),
        ("/v1/%61/1", "/v1/a/{x}", {"x": "1"}),
        ("/v1/a/%", "/v1/a/{x}", {"x": "%"}),
        ("/v1%2Fa", None, {}),
    ],
)
def test_paths(path: str, found: str | None, values: dict[str, str]) -> None:
    names = {path: object() for path in [*APPS, "below"]}
    paths = Paths({path: names[path] for path in APPS}, {"/v1/a/{x}": names["below"]})  # type: ignore[dict-item]
    answer = paths.find(path)
    if found is None:
        assert answer is None
    else:
        assert answer == (names[found], values)
