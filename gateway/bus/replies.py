"""Replies that do not have a caller each: many of one caller, and those that nobody waits for.

Owns that each failure is looked at. A future whose failure nobody reads is a fault of the program to the event loop,
which reports it when the future is collected; so whoever starts commands and may not come to await each, does it here.
"""

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Sequence
from typing import TypeVar, cast

T = TypeVar("T")


async def all_answered(replies: Sequence[Awaitable[T]]) -> list[T]:
    """Waits for every answer; raises the first failure in their order, if there is one. Cancelled, it abandons all."""
    outcomes = await asyncio.gather(*replies, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return cast("list[T]", outcomes)


def let_go(reply: "Future[T]") -> None:
    """Nobody waits for this one, and its failure is no news: it may be lost, or is known from another."""
    reply.add_done_callback(_looked_at)


def _looked_at(reply: "Future[T]") -> None:
    if not reply.cancelled():
        reply.exception()
