"""Nodes: who lives, what each does, what time it is for all. Owns leases and the agreed shift of Redis' clock; decides
nothing about sessions.

A node holds a lease under a fresh incarnation and renews it every second; one script renews and reads, so each node
knows all others as of its last renewal (bridge 10). The same script is where the nodes agree on the bus clock: what it
answers is a sample of the server's time and the shift that counts for it.
"""

from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from gateway.bus.clock import Sample, server_ms
from gateway.bus.store import Store, text
from gateway.model import limits


class NodeInfo(msgspec.Struct, frozen=True):
    """What a node says of itself. ``agents``: names of the agents that it can start; empty without the role."""

    name: str
    roles: tuple[str, ...]
    agents: tuple[str, ...] = ()
    children: int = 0
    max_children: int = 0
    draining: bool = False
    started_ms: int = 0
    version: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A node whose lease holds."""

    incarnation: str
    info: NodeInfo


_decode: Final = msgspec.json.Decoder(NodeInfo).decode
_encode: Final = msgspec.json.Encoder().encode


class Nodes:
    """The nodes that live, as of this node's last renewal."""

    def __init__(self, store: Store, incarnation: str) -> None:
        self._store = store
        self.incarnation: Final = incarnation
        self._living: dict[str, Node] = {}
        self.gone: tuple[str, ...] = ()
        """Incarnations whose lease had ended at the last renewal, not longer ago than a minute."""
        self.next_end_ms = 0
        """How long after the last renewal the first lease ends, unless its node renews it; milliseconds."""
        self._generation = 0  # of the shift of the server's clock

    async def renew(self, info: NodeInfo) -> None:
        """Renews this node's lease, reads the others', and agrees with them on the clock."""
        reply = await self._run(limits.NODE_LEASE_MS, _encode(info))
        end = 1 + 2 * int(reply[0])
        rows = reply[1:end]
        self.gone = tuple(text(incarnation) for incarnation in reply[end:])
        by_name: dict[str, Node] = {}
        for incarnation, data in zip(rows[::2], rows[1::2], strict=True):
            if data is None:
                continue
            node = Node(text(incarnation), _decode(data))
            other = by_name.setdefault(node.info.name, node)
            # A name is one process at a time (its state folder is locked): the younger one has replaced the elder.
            if other is not node:
                elder, by_name[node.info.name] = sorted((other, node), key=lambda n: n.info.started_ms)
                self.gone = (*self.gone, elder.incarnation)
        self._living = {node.incarnation: node for node in by_name.values()}

    async def leave(self) -> None:
        """Gives the lease up."""
        await self._run(0, b"")

    async def _run(self, lease_ms: int, info: bytes) -> list[Any]:
        """The reply from the number of those that live on; what stands before is taken in here."""
        keys, scripts, topology = self._store.keys, self._store.scripts, self._store.topology
        shard = topology.shard_for(keys.nodes_tag)
        clock, others = shard.clock, [one.clock for one in topology.shards if one is not shard]
        if not clock.agreed and clock.known and (agreed := [one for one in others if one.agreed and one.known]):
            clock.align(agreed[0])  # another server of the Cluster has the key by now
        said, sent = clock.shift_ms, clock.ms()
        args = (self.incarnation, lease_ms, info, self._generation, clock.stamp())
        reply = await shard.connection.run(scripts.renew, (keys.leases, keys.nodes, keys.clock), args)
        now_ms, end_ms, seconds, micros, generation, shift_ms, *rest = cast("list[Any]", reply)
        clock.take(Sample(sent, clock.ms(), server_ms(seconds, micros)))
        # A step that was seen since this was sent is not known there yet: the next renewal says it.
        if int(generation) != self._generation or clock.shift_ms == said:
            self._generation = int(generation)
            clock.agree(int(shift_ms))
            for other in others:
                if other.known:
                    other.align(clock)
        self.next_end_ms = int(end_ms) - int(now_ms)
        return rest

    def lives(self, incarnation: str) -> bool:
        """Whether that incarnation held a lease at the last renewal."""
        return incarnation in self._living

    def takes_work(self, incarnation: str) -> bool:
        """Whether that incarnation lives and is not going away."""
        node = self._living.get(incarnation)
        return node is not None and not node.info.draining

    def living(self) -> tuple[Node, ...]:
        """All of them, this one included."""
        return tuple(self._living.values())

    def named(self, node_name: str) -> Node | None:
        """The living incarnation of a node's name."""
        return next((node for node in self._living.values() if node.info.name == node_name), None)

    def for_agent(self, agent: str) -> Node | None:
        """The node with most free places among those that can start an agent; None when there is none."""
        able = [n for n in self._living.values() if agent in n.info.agents and not n.info.draining]
        return max(able, key=lambda n: (n.info.max_children - n.info.children, n.incarnation), default=None)
