"""Native slots, equality of lists, the gateway's own tools (bridge 3)."""

import hashlib
import json
from typing import Any

import pytest

from gateway.model.catalog import (
    NO_ROOM,
    DescriptorRedaction,
    build_catalog,
    own_descriptors,
    registry_json,
)
from gateway.model.clean import ModelJson, ModelText
from tests.model_catalog.child_subset import problem
from tests.model_catalog.offered import catalog, client, tool

OWN = ["client__tools", "client__use", "client__more"]


def native(made: Any) -> list[str]:
    return [item.model_name for item in made.items if item.native]


def test_the_own_tools_never_change() -> None:
    # Saved permissions hold a fingerprint of each descriptor. A new digest here takes all of them away.
    digest = hashlib.sha256(registry_json(own_descriptors())).hexdigest()
    assert digest == "05e3dfe7d13bd70f6f83b7de823ac0b27ce06fefedad2281518aba121a024ec3"
    assert [entry.name for entry in own_descriptors()] == OWN
    assert [entry.name for entry in own_descriptors(dynamic_tools=False)] == ["client__more"]
    assert all(problem(entry.input_schema) is None for entry in own_descriptors())


def test_descriptors_are_what_the_child_takes() -> None:
    made = catalog(client(1, "web", tool("go-to", 'say "é"\n', {"required": ["x"]}, 5000), tool("b", " ")))
    assert [json.loads(entry.encoded()) for entry in made.descriptors[:2]] == [
        {
            "name": "client__web__go_to",
            "description": 'say "é"\n',
            "input_schema": {"type": "object", "required": ["x"]},
            "timeout_ms": 5000,
        },
        {"name": "client__web__b", "description": "b", "input_schema": {"type": "object"}, "timeout_ms": 300_000},
    ]
    assert [entry.name for entry in made.descriptors[2:]] == OWN
    assert json.loads(registry_json(made.descriptors))[0]["name"] == "client__web__go_to"
    item = made.by_name["client__web__b"]
    assert (item.client_id, item.tool, item.native, item.notes) == ("id1", "b", True, ("the description was blank",))


def test_29_slots_and_31_without_the_dynamic_tools() -> None:
    many = client(1, "web", *(tool(f"t{n}") for n in range(40)))
    made = catalog(many)
    assert native(made) == [f"client__web__t{n}" for n in range(29)]
    assert len(made.descriptors) == 32
    assert made.items[30].notes == (NO_ROOM,)
    fixed = catalog(many, dynamic_tools=False)
    assert len(native(fixed)) == 31
    assert [entry.name for entry in fixed.descriptors[31:]] == ["client__more"]


def test_tools_used_last_come_first_then_clients_registered_last() -> None:
    old = client(1, "old", *(tool(f"t{n}") for n in range(20)))
    new = client(2, "new", *(tool(f"t{n}") for n in range(20)))
    assert native(catalog(old, new)) == [f"client__old__t{n}" for n in range(9)] + [
        f"client__new__t{n}" for n in range(20)
    ]
    used = ["client__old__t19", "client__gone__x", "client__old__t18"]
    chosen = native(catalog(old, new, used=used))
    assert chosen == [f"client__old__t{n}" for n in (*range(7), 18, 19)] + [f"client__new__t{n}" for n in range(20)]


def test_the_registry_never_exceeds_the_childs_bytes() -> None:
    big = {"type": "object", "description": "x" * 6000}
    made = catalog(client(1, "web", *(tool(f"big{n}", "d" * 500, big) for n in range(6)), tool("small")))
    assert len(registry_json(made.descriptors)) <= 32_768
    assert native(made) == [f"client__web__big{n}" for n in range(4)] + ["client__web__small"]
    assert len(registry_json(made.descriptors)) + 6000 > 32_768


def test_32_clients_with_64_tools_each_are_all_there() -> None:
    clients = [client(n, "web" if n == 0 else f"web-{n + 1}", *(tool(f"t{i}") for i in range(64))) for n in range(32)]
    made = catalog(*clients)
    assert len(made.by_name) == 2048
    assert len(native(made)) == 29


def test_equal_lists_have_equal_fingerprints_and_use_changes_none() -> None:
    first = client(1, "web", tool("a", schema={"type": "object", "properties": {"x": {}, "y": {}}}), tool("b"))
    same = client(7, "web", tool("b"), tool("a", schema={"properties": {"y": {}, "x": {}}, "type": "object"}))
    base = catalog(first)
    assert base.fingerprint == catalog(same).fingerprint
    assert base.fingerprint == catalog(first, used=["client__web__b"]).fingerprint
    assert base.native_fingerprint == catalog(first).native_fingerprint


@pytest.mark.parametrize(
    "other",
    [
        client(1, "web", tool("a"), tool("c")),
        client(1, "web", tool("a")),
        client(1, "web-2", tool("a"), tool("b")),
        client(1, "web", tool("a", "D"), tool("b")),
        client(1, "web", tool("a", schema={"type": "object", "title": "T"}), tool("b")),
        client(1, "web", tool("a", timeout_ms=1000), tool("b")),
    ],
)
def test_what_a_model_sees_changes_the_fingerprint(other: Any) -> None:
    base = catalog(client(1, "web", tool("a"), tool("b")))
    assert base.fingerprint != catalog(other).fingerprint
    assert base.native_fingerprint != catalog(other).native_fingerprint


def test_a_change_of_tools_that_are_not_native_needs_no_new_child() -> None:
    names = [f"t{n}" for n in range(40)]
    before = catalog(client(1, "web", *map(tool, names)))
    after = catalog(client(1, "web", *map(tool, names[:-1])))
    assert before.fingerprint != after.fingerprint
    assert before.native_fingerprint == after.native_fingerprint


def test_excluded_tools_are_not_native_and_say_why() -> None:
    made = catalog(client(1, "web", tool("a"), tool("b")), excluded={"client__web__a": "refused"})
    assert native(made) == ["client__web__b"]
    assert made.by_name["client__web__a"].notes == ("refused",)


def test_what_goes_to_the_child_is_redacted_before_it_is_measured() -> None:
    redaction = DescriptorRedaction(
        lambda text: ModelText(text.replace("s3cret", "[redacted:known]")),
        lambda schema: ModelJson(schema.replace(b"s3cret", b"[redacted:known]")),
    )
    entry = client(1, "web", tool("a", "s3cret " + "x" * 2041, {"type": "object", "title": "s3cret"}))
    made = build_catalog([entry], redaction=redaction)
    assert made.descriptors[0].description.startswith("[redacted:known] x")
    assert len(made.descriptors[0].description.encode()) == 2048
    assert b"s3cret" not in registry_json(made.descriptors)
