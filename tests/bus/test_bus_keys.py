"""Every key: on its page, with a lifetime, in its slot, and gone with its session (docs/redis-keys.md)."""

import re
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.bus.cluster import slot_of
from gateway.bus.nodes import NodeInfo, Nodes
from gateway.bus.sessions import Idempotency, Owner
from gateway.model import events
from gateway.model.clean import LogText, ModelText
from tests.doubles.bus import NODE, Bus, keys_without_lifetime

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/redis-keys.md").read_text("utf-8")
LUA = sorted((ROOT / "gateway/bus/lua").glob("*.lua"))
ROWS = [
    re.split(r"(?<!\\) \| ", line.strip("| "))[0].strip("`") for line in PAGE.splitlines() if line.startswith("| `{")
]
KEYS = [row for row in ROWS if not row.endswith((":all", ":in:<incarnation>"))]
PLACES = {"{pNN}": r"\{p[0-7][0-9a-f]\}", "<sid>": "[0-9a-f-]{36}", "<cid>": "[0-9a-f-]{36}"}


def _pattern(row: str) -> re.Pattern[str]:
    parts = re.split(r"(\{pNN\}|<\w+>)", row)
    return re.compile("".join(PLACES.get(part, "[^:]+" if part[:1] == "<" else re.escape(part)) for part in parts))


PATTERNS = {row: _pattern(row) for row in KEYS}


async def _all_keys(bus: Bus) -> list[str]:
    names = await bus.topology.all()[0].call("KEYS", "*")
    prefix = bus.store.keys.leases.split(":")[0] + ":"
    return sorted(bytes(name).decode().removeprefix(prefix) for name in names)  # type: ignore[union-attr]


def _key(text: str) -> Idempotency:
    return Idempotency(f"{text}-{uuid4().hex}", "f")


async def _whole_life(bus: Bus) -> str:
    """A session that has had everything which writes a key."""
    session_id, outbox = await bus.owned()
    pinger = await bus.client(session_id, ttl_s=3600, key="page")
    await bus.client(session_id, holder=f"{NODE.incarnation}:1.1", name="tab")
    await bus.dispatch(outbox, pinger, "open")
    await bus.dispatch(outbox, pinger, "done")
    await bus.answer(session_id, pinger, "done")
    bus.sessions.append(outbox, [events.error(LogText("said"))], fields=[("@approval", "open")])
    assert await outbox.drained(5)
    for number in range(3):
        run_id = str(uuid4())
        queued = events.run_queued(run_id)
        await bus.sessions.submit(
            session_id, run_id, ModelText(f"{number}"), queued, NODE, _key("input"), shared=False, home_wait_ms=1000
        )
    await bus.sessions.add_token(session_id, "1" * 64, str(uuid4()), 60_000, _key("token"))
    nodes = Nodes(bus.store, "incarnation-x")
    await nodes.renew(NodeInfo("x", ("edge",)))
    bus.topology.clock_for(bus.store.keys.nodes_tag).shift_ms += 5_000  # as if Redis' clock had been set
    await nodes.renew(NodeInfo("x", ("edge",)))
    return session_id


async def test_a_session_of_all_kinds_has_only_keys_of_the_page(a: Bus) -> None:
    await _whole_life(a)
    found = await _all_keys(a)
    seen = {name: [row for row, pattern in PATTERNS.items() if pattern.fullmatch(name)] for name in found}
    assert {name: rows for name, rows in seen.items() if len(rows) != 1} == {}
    assert set(KEYS) == {rows[0] for rows in seen.values()}, "the page has a key that nobody writes"


def test_every_key_of_the_scripts_is_on_the_page() -> None:
    """The scripts derive keys by adding a constant to a base; each such constant is a row."""
    rows = {re.sub(r"<\w+>", "", row) for row in ROWS}
    for path in LUA:
        source = path.read_text("utf-8")
        for base, suffix in re.findall(r"(base|partition) \.\. '([^']+)'", source):
            row = f"{{pNN}}:s:{suffix}" if base == "base" else f"{{pNN}}:{suffix}"
            assert row in rows, (path.name, suffix)


async def test_all_of_a_session_is_in_one_slot(a: Bus) -> None:
    session_id = await _whole_life(a)
    keys = a.store.keys.session(session_id)
    prefix = a.store.keys.leases.split(":")[0] + ":"
    names = [name for name in await _all_keys(a) if session_id in name or name.endswith((":due", ":work"))]
    assert {slot_of((prefix + name).encode()) for name in names} == {slot_of(keys.base.encode())}
    assert slot_of(a.store.keys.inbox(keys.tag, "x")) == slot_of(keys.push) == slot_of(keys.base.encode())


async def test_a_delete_leaves_nothing_of_a_session(a: Bus) -> None:
    keep = await _whole_life(a)
    before = await _all_keys(a)
    gone = await _whole_life(a)
    await a.sessions.delete(gone)
    after = await _all_keys(a)
    assert [name for name in after if gone in name] == []
    tag = a.store.keys.session(gone).tag
    for kind, command in (
        ("due", ("ZRANGE", 0, -1)),
        ("work", ("SMEMBERS",)),
        (f"held:{NODE.incarnation}", ("SMEMBERS",)),
    ):
        name = a.store.keys.due(tag).removesuffix("due") + kind
        members = await a.topology.all()[0].call(command[0], name, *command[1:])
        assert not [m for m in members if gone.encode() in m]  # type: ignore[union-attr]
    assert [name for name in after if keep in name] == [name for name in before if keep in name]


async def test_the_owner_of_a_deleted_session_is_told_and_writes_no_more(a: Bus, b: Bus) -> None:
    session_id, outbox = await a.owned()
    await b.sessions.delete(session_id)
    a.sessions.append(outbox, [events.error(LogText("too late"))])
    assert not await outbox.drained(0.2) or a.lost
    assert [type(error).__name__ for error in a.lost] == ["Refusal"]
    assert not [name for name in await _all_keys(a) if session_id in name]


@pytest.mark.parametrize(
    ("name", "ttl", "found"),
    [
        ("{p00}:s:x", None, True),
        ("{p00}:s:x", 1000, False),
        ("{p00}:due", None, False),
        ("{p7f}:work", None, False),
        ("{g}:sessions:agent", None, False),
        ("{p00}:held:x", None, True),
        ("{p00}:due:more", None, True),
        ("{p00}:overdue", None, True),
    ],
)
async def test_the_checker_of_lifetimes(a: Bus, name: str, ttl: int | None, found: bool) -> None:
    key = f"c{uuid4().hex[:6]}:{name}"
    await a.topology.all()[0].call("SET", key, "1", *(("PX", ttl) if ttl else ()))
    prefix = key.split(":", maxsplit=1)[0]
    assert await keys_without_lifetime(a.topology, prefix) == ([key] if found else [])


async def test_the_checker_of_lifetimes_sees_one_prefix_alone(a: Bus) -> None:
    await a.topology.all()[0].call("SET", "another:{p00}:s:x", "1")
    assert await keys_without_lifetime(a.topology, "an") == []
    assert await keys_without_lifetime(a.topology, "another") == ["another:{p00}:s:x"]


async def test_a_settled_call_lives_a_week_and_an_owner_is_nobody_after_a_claim(a: Bus) -> None:
    session_id, outbox = await a.owned()
    client_id = await a.client(session_id, ttl_s=3600)
    await a.dispatch(outbox, client_id, "one")
    keys = a.store.keys.session(session_id)
    connection = a.topology.all()[0]
    record = await a.calls.get(session_id, "one")
    assert record is not None
    await a.answer(session_id, client_id, "one")
    left = await connection.call("PTTL", keys.call("one"))
    week, wait = 7 * 24 * 3600 * 1000, record.deadline_ms - record.dispatched_ms
    assert week < left <= week + wait  # type: ignore[operator]
    epoch = await a.sessions.claim(session_id, NODE.incarnation, Owner("b", "y", 0), lost_run=None, home_wait_ms=0)
    assert epoch == 2
