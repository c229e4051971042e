"""HTTP to a running gateway, for the commands that ask one. Owns address, key, bounds and what a refusal reads like."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import SplitResult, urlsplit
from uuid import uuid4

import httpx

from gateway.cli.output import Failure, Usage
from gateway.config.checks import is_loopback
from gateway.config.secret import Secret

DEFAULT_URL = "http://127.0.0.1:8080"
TIMEOUT_S = 30.0
PAGE = 100
PAGES = 1_000
READ_BYTES = 64 * 1024 * 1024


class Gateway:
    """One gateway and the key for it, from ``TOOLRELAY_URL`` and ``TOOLRELAY_API_KEY``. Use as a context.

    ``url`` stands for the variable; ``must_have_key`` false asks without a key where there is none.
    """

    def __init__(self, url: str = "", *, must_have_key: bool = True) -> None:
        self.url = (url or os.environ.get("TOOLRELAY_URL") or DEFAULT_URL).rstrip("/")
        parts = _address(self.url)
        if parts is None or not parts.hostname:
            raise Usage(f"{'the address' if url else 'TOOLRELAY_URL'} must be http://… or https://…")
        text = os.environ.get("TOOLRELAY_API_KEY", "")
        self.has_key = bool(text)
        if not text and must_have_key:
            raise Usage("TOOLRELAY_API_KEY is not set; it holds the API key (or env:NAME, file:PATH)")
        try:
            key = Secret.resolve(text, environ=os.environ, base=Path.cwd()) if text else Secret("")
        except ValueError as error:
            raise Usage(f"TOOLRELAY_API_KEY: {error}") from None
        if not key.reveal().isascii() or not key.reveal().isprintable():
            raise Usage("TOOLRELAY_API_KEY must be printable ASCII")
        # A key for this machine's own gateway must not go through a proxy.
        local = is_loopback(parts.hostname)
        self.proxy: Literal[True] | None = None if local else True
        """What ``websockets`` is to make of the environment's proxies: None for none."""
        self._http = httpx.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {key.reveal()}"} if self.has_key else {},
            timeout=TIMEOUT_S,
            trust_env=not local,
        )

    def __enter__(self) -> "Gateway":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str | int] | None = None,
        body: object = None,
        keyed: bool = False,
    ) -> dict[str, Any]:
        """One request; the answer's object, empty for 204. Raises ``Failure``."""
        headers = {"idempotency-key": str(uuid4())} if keyed else {}
        try:
            response = self._http.request(method, path, params=query, json=body, headers=headers)
        except httpx.HTTPError as error:
            raise Failure(f"{self.url} does not answer ({type(error).__name__})") from None
        if response.status_code == 204:
            return {}
        return _answer(response.status_code, response.content)

    def status(self, path: str) -> tuple[int, bytes]:
        """What a path answers, whatever it is. Raises ``Failure`` when nothing does."""
        try:
            response = self._http.get(path)
        except httpx.HTTPError as error:
            raise Failure(f"{self.url} does not answer ({type(error).__name__})") from None
        return response.status_code, response.content

    def items(self, path: str, *, limit: int, query: dict[str, str | int] | None = None) -> list[dict[str, Any]]:
        """Items of a list, page by page, at most ``limit``."""
        found: list[dict[str, Any]] = []
        asked = dict(query or {})
        for _ in range(PAGES):
            page = self.ask("GET", path, query={**asked, "limit": min(PAGE, limit - len(found))})
            if not isinstance(page.get("items"), list):
                raise Failure("the answer is no list: is this a toolrelay gateway?")
            found += cast("list[dict[str, Any]]", page["items"])
            cursor = page.get("next_cursor")
            if cursor is None or len(found) >= limit:
                break
            asked["after"] = str(cursor)
        return found[:limit]

    def lines(self, path: str, *, query: dict[str, int], last_id: int | None) -> Iterator[bytes]:
        """The lines of a stream as they come, without their ends. Raises ``Failure`` for a final refusal,
        ``ConnectionError`` when the stream broke and may be asked for again."""
        headers = {"accept": "text/event-stream"}
        if last_id is not None:
            headers["last-event-id"] = str(last_id)
        timeout = httpx.Timeout(TIMEOUT_S, read=60.0)  # heartbeats come every 15 s
        try:
            with self._http.stream("GET", path, params=query, headers=headers, timeout=timeout) as response:
                if response.status_code >= 500:
                    raise ConnectionError
                if response.status_code != 200:
                    _answer(response.status_code, response.read())
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    raise Failure(f"{self.url} answers with no stream of events: is this a toolrelay gateway?")
                rest = b""
                for part in response.iter_raw():
                    *whole, rest = (rest + part).split(b"\n")
                    if len(rest) > READ_BYTES:
                        raise Failure("the stream has a line without an end")
                    yield from (line.removesuffix(b"\r") for line in whole)
        except httpx.HTTPError as error:
            raise ConnectionError from error


def _address(url: str) -> SplitResult | None:
    """The parts of an address, None for one that is none: no http(s), half an IPv6 address, no port that can be."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        return None
    return parts if usable else None


def _answer(status: int, body: bytes) -> dict[str, Any]:
    try:
        found: Any = json.loads(body)
    except ValueError:
        raise Failure(f"the answer ({status}) is no JSON: is this a toolrelay gateway?") from None
    if not isinstance(found, dict):
        raise Failure(f"the answer ({status}) is no JSON object: is this a toolrelay gateway?")
    answer = cast("dict[str, Any]", found)
    if status < 400:
        return answer
    error = answer.get("error")
    if isinstance(error, dict):
        named = cast("dict[str, object]", error)
        raise Failure(f"{named.get('message', 'refused')} ({status} {named.get('code', '')})")
    raise Failure(f"refused with status {status}")
