"""Holds every answer against the description: an undocumented status or shape fails the test that met it."""

import re
from functools import cache
from typing import Any

import httpx
import jsonschema_rs

from adapters.http.openapi import document
from adapters.http.routes import OPERATIONS

DOCUMENT = document(OPERATIONS)
_PATHS = [
    (re.compile(re.sub(r"{\w+}", "[^/]+", path)), path)
    for path in sorted(DOCUMENT["paths"], key=lambda path: path.count("{"))
]


@cache
def _validator(path: str, method: str, status: str) -> Any:
    answer = DOCUMENT["paths"][path][method]["responses"].get(status)
    assert answer is not None, f"{method} {path} does not document {status}"
    if "$ref" in answer:
        answer = DOCUMENT["components"]["responses"][status]
    content = answer.get("content")
    if content is None:
        return None
    (kind, media), *_ = content.items()
    if kind != "application/json":
        return kind
    schema = {**media["schema"], "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)


async def check(response: httpx.Response) -> None:
    """An httpx hook. Unknown routes and methods have the envelope and no description."""
    found = next((path for form, path in _PATHS if form.fullmatch(response.request.url.path)), None)
    method = response.request.method.lower()
    if found is None or method not in DOCUMENT["paths"][found]:
        return
    validator = _validator(found, method, str(response.status_code))
    if validator is None:
        await response.aread()
        assert response.content == b""
    elif isinstance(validator, str):
        assert response.headers["content-type"].startswith(validator)
    else:
        await response.aread()
        validator.validate(response.json())
