"""One client of one session: connect, attach, offer the tools, come back after a cut, until it is closed."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, Literal, Self, TypeVar
from uuid import uuid4

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake
from websockets.typing import Subprotocol

from toolrelay_client.calls import Calls
from toolrelay_client.errors import FINAL, ToolrelayError
from toolrelay_client.events import Event, Events
from toolrelay_client.link import Link
from toolrelay_client.offer import Offer
from toolrelay_client.options import Registration, Token, fetch, socket_url
from toolrelay_client.tools import Tool, tool

State = Literal["connecting", "online", "waiting", "yielded", "closed"]

SETUP_S: Final = 15.0
FIRST_WAIT_S, LONGEST_WAIT_S, STEADY_S = 0.25, 10.0, 5.0
RETRIED: Final = ("connection_lost", "internal", "too_many_requests", "conflict")


F = TypeVar("F", bound=Callable[..., Any])


class Client:
    """``async with Client(url, session=…, token=…) as client`` connects in the background until the block ends.

    ``token`` is a text or a function (also async) that is called for each connection and when one expires. ``key`` is
    the app's own name of this worker: whoever comes later with it takes its place. ``ttl_s`` is how long the
    registration outlives its socket (5 to 3600, or infinite). ``after_seq`` reads the log from behind an event.
    ``on_state`` is called with each new state, ``on_error`` with what went wrong meanwhile.
    """

    def __init__(
        self,
        url: str,
        *,
        session: str,
        token: Token,
        name: str = "worker",
        key: str | None = None,
        ttl_s: float = 120,
        after_seq: int | None = None,
        registration: Registration | None = None,
        on_state: Callable[[State], None] | None = None,
        on_error: Callable[[ToolrelayError], None] | None = None,
    ) -> None:
        self._url = socket_url(url)
        self._session, self._token = session, token
        self._name, self._ttl_s = name, ttl_s
        self.key = key if key is not None else uuid4().hex
        self.seq, self.registration = after_seq, registration
        self._on_state, self._on_error = on_state, on_error
        self.state: State = "connecting"
        self.error: ToolrelayError | None = None
        self._offer = Offer(self._report)
        self._calls = Calls(self)
        self._link: Link | None = None
        self.registered: Link | None = None
        self._early: list[Event] | None = None  # while it is asked whose calls are
        self._head = 0  # what the log held when this socket came: calls in it are history
        self._reading = asyncio.Event()
        self._moved = asyncio.Event()  # the state has changed
        self._events = Events()
        self._yielded = False
        self._group: asyncio.TaskGroup | None = None
        self._life: asyncio.Task[None] | None = None

    # --- tools

    def tool(self, **options: Any) -> Callable[[F], F]:
        """A decorator: offers a function as a tool (``tools.tool`` has the options). The function stays as it is."""

        def offer(function: F) -> F:
            self.add(tool(**options)(function))
            return function

        return offer

    def add(self, tool: Tool) -> None:
        """Offers a tool, in place of one of that name; a changed list is sent before any later answer."""
        self._offer.tools[tool.name] = tool
        self._change()

    def remove(self, name: str) -> None:
        """Offers it no more."""
        if self._offer.tools.pop(name, None) is not None:
            self._change()

    def find(self, name: str) -> Tool | None:
        """A tool that is offered now."""
        return self._offer.tools.get(name)

    # --- life

    async def __aenter__(self) -> Self:
        self._group = await asyncio.TaskGroup().__aenter__()
        self._life = self.spawn(self._live())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        if self._group is not None:
            await self._group.__aexit__(None, None, None)

    def spawn(self, work: Any) -> "asyncio.Task[None]":
        """A task that ends with the client."""
        if self._group is None:
            raise RuntimeError("the client is used outside of its `async with` block")
        return self._group.create_task(work)

    async def ready(self) -> None:
        """Until it is connected and its tools are offered. Raises ToolrelayError when it is closed before."""
        while self.state not in ("online", "yielded"):
            if self.error is not None:
                raise self.error
            await self._moved.wait()

    async def closed(self) -> ToolrelayError:
        """Until it is closed: why."""
        while self.error is None:
            await self._moved.wait()
        return self.error

    async def close(self, *, leave: bool = True) -> None:
        """Ends it. The registration leaves (its open calls fail at once), or sleeps with ``leave=False``."""
        if leave and self.registered is not None and self.registration is not None:
            try:
                async with asyncio.timeout(2):
                    await self.registered.ask("leave", client_id=self.registration.client_id)
            except (ToolrelayError, TimeoutError):
                pass  # its lifetime ends it
        self._end(ToolrelayError("closed", "the client was closed"))
        if self._life is not None:
            self._life.cancel()

    # --- the session

    async def send(self, text: str, *, idempotency_key: str | None = None) -> dict[str, Any]:
        """Says something to the agent: ``{outcome, run_id}``. After a cut it is sent again, and taken once."""
        key = idempotency_key or uuid4().hex
        while True:
            link = await self._connected()
            try:
                return await link.ask("input", text=text, idempotency_key=key)
            except ToolrelayError as error:
                if error.code != "connection_lost" or self.error is not None:
                    raise
            await self._moved.wait()  # the cut is known, or the next try begins

    async def cancel(self) -> dict[str, Any]:
        """Ends the active run. Raises ToolrelayError."""
        return await (await self._connected()).ask("cancel")

    async def _connected(self) -> Link:
        await self.ready()
        if self._link is None:
            raise ToolrelayError("connection_lost", "the client is not connected")
        return self._link

    def events(self) -> AsyncGenerator[Event]:
        """The session's events from now on. Raises ToolrelayError for a reader that is 10,000 events behind."""
        return self._events.read()

    # --- connecting

    async def _live(self) -> None:
        tries = 0
        while self.error is None:
            began = time.monotonic()
            code = await self._connection()
            if code in FINAL:
                self._end(ToolrelayError(*FINAL[code]))
            if self.error is not None:
                return
            steady = self.state in ("online", "yielded") and time.monotonic() - began > STEADY_S
            tries = 0 if steady else tries
            self._enter("waiting")
            # Full jitter: the workers of a gateway that went away must not all come back in the same instant.
            most = 0.0 if steady and code == 1012 else min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**tries)
            tries = min(tries + 1, 16)
            await asyncio.sleep(random.random() * most)  # noqa: S311

    async def _connection(self) -> int:
        """One connection from its begin to its end: the close code."""
        self._enter("connecting")
        try:
            token = await fetch(self._token)
        except Exception as error:
            self._report(ToolrelayError("token_failed", str(error)))
            return 1006
        try:
            connection = await connect(
                self._url, subprotocols=[Subprotocol("toolrelay.v1")], open_timeout=SETUP_S, max_size=None
            )
        except (OSError, InvalidHandshake, TimeoutError) as error:
            self._report(ToolrelayError("connection_lost", str(error)))
            return 1006
        link = self._link = Link(connection, self._session, self._push)
        try:
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(link.write())
                setup = group.create_task(self._begin(link, token))
                code = await link.read()
                writing.cancel()
                setup.cancel()
            return code
        finally:
            self._link = self.registered = self._early = None
            await link.close()

    async def _begin(self, link: Link, token: str) -> None:
        try:
            async with asyncio.timeout(SETUP_S):
                await self._attach(link, token)
                if self._offer.tools and not self._yielded:
                    await self._register(link)
        except TimeoutError:
            await link.close()
        except ToolrelayError as error:
            if error.code == "connection_lost":
                return
            if error.code in RETRIED:
                self._report(error)
            else:
                self._end(error)
            await link.close()
        else:
            self._enter("yielded" if self._yielded else "online")

    async def _attach(self, link: Link, token: str) -> None:
        """The first answer is where the log ends now; then, where something is missing, all that came before."""
        rest: asyncio.Future[Any] | None = None
        self._reading.clear()

        def attached(ok: dict[str, Any]) -> None:
            nonlocal rest
            self._head = ok["seq"]
            if self.seq is not None and self.seq < self._head:
                rest = link.ask("attach", lambda _: self._reading.set(), token=token, after_seq=self.seq)
            else:
                self.seq = self._head
                self._reading.set()

        await link.ask("attach", attached, token=token)
        if rest is not None:
            await rest

    async def _register(self, link: Link) -> None:
        self._early = []
        if self.registration is not None:
            try:
                await link.ask(
                    "resume",
                    lambda ok: self._hold(link, ok["calls"]),
                    client_id=self.registration.client_id,
                    resume_key=self.registration.resume_key,
                )
            except ToolrelayError as error:
                if error.code not in ("not_found", "conflict"):
                    raise
                self.registration = None  # it lapsed, so another one
                self._early = []
            else:
                return
        finite = self._ttl_s != float("inf")
        lifetime = {"type": "ttl", "data": {"seconds": round(self._ttl_s)}} if finite else {"type": "never"}
        tools = self._offer.take()

        def registered(ok: dict[str, Any]) -> None:
            self.registration = Registration(ok["client_id"], ok["resume_key"])
            self._hold(link, None)

        await link.ask("register", registered, name=self._name, lifetime=lifetime, key=self.key, tools=tools)

    def _hold(self, link: Link, open_calls: list[Event] | None) -> None:
        """Calls may come before the answer that says whose they are."""
        early, self._early = self._early or [], None
        self.registered = link
        if open_calls is not None:
            self._calls.resumed(open_calls)
        for event in early:
            self._dispatched(event)
        self.flush()

    # --- pushes

    def _push(self, frame: dict[str, Any]) -> None:
        match frame:
            case {"event": event}:
                self._event(event)
            case {"reset": {"seq": seq}}:
                self.seq = seq
            case {"closed": {"reason": reason, "client_id": str(client_id)}}:
                if self.registration is not None and client_id == self.registration.client_id:
                    self._set_aside(reason)
            case {"closed": {"reason": reason}}:
                if reason.startswith("token") and not isinstance(self._token, str) and self._link is not None:
                    self.spawn(self._renew(self._link, reason))
                else:
                    self._end(ToolrelayError(reason, "the session was deleted or its token is no longer valid"))
                    if self._link is not None:
                        self.spawn(self._link.close())
            case _:
                return

    def _event(self, event: Event) -> None:
        if not self._reading.is_set() or event["seq"] <= (self.seq or 0):
            return
        self.seq = event["seq"]
        kind = event["type"]
        # Of what was there before this socket, `resume` tells which calls are open.
        if kind == "client_tool_dispatched" and event["seq"] > self._head:
            self._dispatched(event)
        elif kind in ("client_tool_failed", "tool_result"):
            if self._early:
                self._early = [one for one in self._early if one["call_id"] != event["call_id"]]
            self._calls.settle(event["call_id"])
        self._events.put(event)

    def _dispatched(self, event: Event) -> None:
        if self._early is not None:
            self._early.append(event)
        elif self.registered and self.registration and event["client_id"] == self.registration.client_id:
            self._calls.take(event)

    def _set_aside(self, reason: str) -> None:
        """Another worker has the place; taking it back here would make the two fight."""
        self._yielded = True
        self.registration = self.registered = None
        self._calls.end()
        self._report(ToolrelayError(reason, "another worker has this one's place"))
        self._enter("yielded")

    async def _renew(self, link: Link, reason: str) -> None:
        held, self.registered = self.registered, None
        try:
            await link.ask("attach", token=await fetch(self._token))
        except Exception as error:  # the app's own function may raise anything
            code = error.code if isinstance(error, ToolrelayError) else "token_failed"
            if code in ("not_found", "unauthorized", "forbidden"):
                self._end(ToolrelayError(reason, str(error)))
            await link.close()
            return
        if link is self._link and self.registration is not None:
            self.registered = held
            self._calls.redeliver()
            self.flush()

    # --- lists and states

    def _change(self) -> None:
        self._offer.changed = True
        if self._link is not None and self.state == "online" and self._group is not None:
            if self.registered is None and self.registration is None:
                self.spawn(self._register_late(self._link))
            else:
                asyncio.get_running_loop().call_soon(self.flush)

    async def _register_late(self, link: Link) -> None:
        try:
            if self.registered is None:
                await self._register(link)
        except ToolrelayError as error:
            self._report(error)

    def flush(self) -> None:
        """Sends a changed list now."""
        if self.registered is not None and self.registration is not None:
            self._offer.flush(self.registered, self.registration.client_id)

    def _end(self, error: ToolrelayError) -> None:
        if self.error is not None:
            return
        self.error = error
        self.registered = None
        self._calls.end()
        self._events.end()
        self._enter("closed")

    def _enter(self, state: State) -> None:
        if self.state in (state, "closed"):
            return
        self.state = state
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        if self._on_state is not None:
            self._on_state(state)

    def _report(self, error: ToolrelayError) -> None:
        if self._on_error is not None:
            self._on_error(error)
