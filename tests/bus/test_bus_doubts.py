"""A node that was out of contact holds nobody for dead: an input waits for its word, and is not forgotten."""

from collections.abc import Callable
from typing import Any, cast
from uuid import uuid4

import pytest

from gateway.bus.nodes import NodeInfo, Nodes
from gateway.bus.sessions import NO_KEY, Owner
from gateway.model.redaction import Redactor
from gateway.services.patrol import Patrol
from gateway.services.sessions import Conversations
from gateway.services.succession import Agent, Succession
from tests.doubles.bus import Bus

AGENT = Agent("agent", "demo", shared=True)
GONE = Owner("elder", "incarnation-of-long-ago", 0)


class Services:
    """One node's, as an input meets them."""

    def __init__(self, bus: Bus) -> None:
        self.own = Owner("here", uuid4().hex, 0)
        self.nodes = Nodes(bus.store, self.own.incarnation)
        self.succession = Succession(bus.sessions, self.nodes, agents={"agent": AGENT}, own=self.own, home_wait_s=60)
        self.patrol = Patrol(bus.store, self.nodes, self.succession)
        self.conversations = Conversations(
            bus.sessions,
            cast(Any, None),
            self.nodes,
            Redactor([]),
            agents={"agent": AGENT},
            succession=self.succession,
        )

    async def renew(self) -> None:
        await self.nodes.renew(NodeInfo("here", ("agents",), ("demo",), max_children=4))
        self.patrol.contact()


@pytest.fixture
async def here(a: Bus) -> Services:
    services = Services(a)
    await services.renew()
    return services


async def test_an_input_for_an_owner_that_is_gone_finds_another(a: Bus, here: Services):
    session_id = await a.session()
    await a.submit(session_id, GONE)
    await here.conversations.submit(session_id, "do it", NO_KEY)
    assert (await a.sessions.owner(session_id)).incarnation == here.own.incarnation


@pytest.mark.parametrize("lives", [False, True])
async def test_after_a_gap_in_contact_the_owner_is_left_alone_until_it_can_be_known(
    a: Bus, b: Bus, here: Services, lives: bool
):
    session_id = await a.session()
    await a.submit(session_id, GONE)
    here.patrol.gap()
    await here.conversations.submit(session_id, "do it", NO_KEY)
    assert (await a.sessions.owner(session_id)).incarnation == GONE.incarnation
    if lives:  # its lease was only not seen
        await Nodes(b.store, GONE.incarnation).renew(NodeInfo("elder", ("agents",), ("demo",)))
    await here.renew()
    _trust(here, lambda: True)
    await here.succession.look_after(())
    owner = await a.sessions.owner(session_id)
    assert owner.incarnation == (GONE if lives else here.own).incarnation
    if not lives:
        assert owner.epoch == 2


async def test_a_session_that_was_deleted_meanwhile_is_forgotten(a: Bus, here: Services):
    session_id = await a.session()
    await a.submit(session_id, GONE)
    here.patrol.gap()
    await here.conversations.submit(session_id, "do it", NO_KEY)
    await a.sessions.delete(session_id)
    _trust(here, lambda: True)
    await here.succession.look_after(())
    await here.succession.look_after(())


def _trust(here: Services, answer: Callable[[], bool]) -> None:
    """As after one lease of contact."""
    here.succession.may_declare = answer
