"""Every key's name. Owns names and the partition of a session; reads and writes nothing.

The hash tag of a key is its partition, ``{p00}`` … ``{p7f}``, of the session id: all keys of a session, its partition's
due set and its push channel share a slot, so a transition is one script also in a Cluster. The scripts derive a
session's further keys from its base; their names stand in docs/redis-keys.md, with the lifetime of each.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from uuid import UUID

from gateway.model.limits import PARTITIONS

PERMANENT: Final = ("{g}:sessions:*", "{p??}:due", "{p??}:work")
"""Keys without a lifetime (patterns behind the prefix): the index of sessions by creation, one per agent, repaired by
whoever reads it; what is due in a partition, and its sessions with work, which hold what is open and nothing else."""


_REMEMBERED: Final = 4_096
"""Sessions whose names are kept: every step of a call asks for them."""


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The keys of one session that Python names."""

    session_id: str
    tag: str
    base: str
    due: str

    @property
    def log(self) -> str:
        """The log: a stream whose ids are ``<seq>-0``."""
        return f"{self.base}:log"

    @property
    def push(self) -> bytes:
        """The push channel: each event as it is written, loss allowed."""
        return self.base.encode()

    @property
    def tokens(self) -> str:
        """Token hash to ``id expiry``."""
        return f"{self.base}:tokens"

    @property
    def clients(self) -> str:
        """Ids of live registrations by their order."""
        return f"{self.base}:clients"

    def client(self, client_id: str) -> str:
        """One registration."""
        return f"{self.base}:c:{client_id}"

    @property
    def open_calls(self) -> str:
        """Call id to client id, of the calls that are open."""
        return f"{self.base}:open"

    @property
    def calls(self) -> str:
        """Ids of the session's calls by the instant of their dispatch."""
        return f"{self.base}:calls"

    def call(self, call_id: str) -> str:
        """One call's record."""
        return f"{self.base}:call:{call_id}"

    @property
    def approvals(self) -> str:
        """Approval id to ``open``, ``allow`` or ``deny``."""
        return f"{self.base}:approvals"


class Keys:
    """Names under one prefix (setting ``redis.prefix``)."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.tags: Final = tuple(f"p{number:02x}" for number in range(PARTITIONS))
        """The partitions: what stands in the braces of a key."""
        self.leases: Final = f"{prefix}:{{nodes}}:leases"
        self.nodes: Final = f"{prefix}:{{nodes}}:info"
        self.clock: Final = f"{prefix}:{{nodes}}:clock"
        self.nodes_tag: Final = "nodes"
        self.index_tag: Final = "g"
        self.session: Final = lru_cache(_REMEMBERED)(self._session)
        """The keys of a session. ``session_id`` is a canonical UUID (36 characters); anything else is a defect of the
        caller: ids of requests are checked where they come in."""

    def _session(self, session_id: str) -> SessionKeys:
        tag = self.tags[UUID(session_id).int % PARTITIONS]
        return SessionKeys(session_id, tag, f"{self.root(tag)}{session_id}", self.due(tag))

    def due(self, tag: str) -> str:
        """What is due in a partition, by the bus clock's milliseconds."""
        return f"{self._prefix}:{{{tag}}}:due"

    def root(self, tag: str) -> str:
        """What the base keys of a partition's sessions begin with."""
        return f"{self._prefix}:{{{tag}}}:s:"

    def inbox(self, tag: str, incarnation: str) -> bytes:
        """The channel on which one incarnation of a node hears of its sessions in a partition."""
        return f"{self._prefix}:{{{tag}}}:in:{incarnation}".encode()

    def all_nodes(self, tag: str) -> bytes:
        """The channel on which every node hears of a partition's revoked credentials. Rare."""
        return f"{self._prefix}:{{{tag}}}:all".encode()

    def index(self, agent_id: str) -> str:
        """Ids of an agent's sessions by creation."""
        return f"{self._prefix}:{{g}}:sessions:{agent_id}"
