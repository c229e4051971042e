"""Model names and client names (bridge 2; HTTP protocol, Registrations)."""

import hashlib
import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.model.names import RESERVED, client_name, counted_name, hashed_name, model_names
from gateway.model.registration import Registration, ToolSpec


def client(order: int, name: str, *tools: str) -> Registration:
    specs = tuple(ToolSpec(name=tool, description="d", parameters=b"{}") for tool in tools)
    return Registration(client_id=f"id{order}", name=name, order=order, tools=specs)


def names(*registrations: Registration, held: dict[tuple[str, str], str] | None = None) -> dict[tuple[str, str], str]:
    return model_names(registrations, held)


def test_dashes_become_underscores() -> None:
    assert names(client(1, "web-2", "go-to")) == {("id1", "go-to"): "client__web_2__go_to"}


def test_the_first_in_the_list_keeps_the_plain_name() -> None:
    digest = hashlib.sha256(b"web\0go_to").hexdigest()[:6]
    assert names(client(1, "web", "go-to", "go_to")) == {
        ("id1", "go-to"): "client__web__go_to",
        ("id1", "go_to"): f"client__web__go_to_{digest}",
    }


def test_the_older_registration_keeps_the_plain_name_whatever_the_order_given() -> None:
    old, new = client(1, "a", "b__c"), client(2, "a--b", "c")
    assert names(new, old) == names(old, new)
    assert names(new, old)["id1", "b__c"] == "client__a__b__c"
    assert names(new, old)["id2", "c"] == hashed_name("a--b", "c")


def test_a_long_name_is_cut_to_64_bytes_with_six_digits() -> None:
    name = names(client(1, "w" * 32, "t" * 64))["id1", "t" * 64]
    assert len(name) == 64
    assert re.fullmatch(r"client__w{32}__t{15}_[0-9a-f]{6}", name)
    fits = "t" * (64 - len("client____") - 32)
    assert names(client(1, "w" * 32, fits))["id1", fits] == f"client__{'w' * 32}__{fits}"


def test_who_holds_a_name_keeps_it_when_an_older_registration_wants_it() -> None:
    old, new = client(1, "web", "other"), client(2, "web-", "x")
    held = names(old, client(2, "web-", "x"))
    later = names(client(1, "web", "other", "_x"), new, held=held)
    assert later["id2", "x"] == held["id2", "x"] == "client__web___x"
    assert later["id1", "_x"] == hashed_name("web", "_x")


def test_a_name_that_nobody_holds_any_more_is_free() -> None:
    held = names(client(1, "web", "go-to", "go_to"))
    assert names(client(1, "web", "go_to"), held=held) == {("id1", "go_to"): held["id1", "go_to"]}
    assert names(client(2, "web", "go_to"), held=held) == {("id2", "go_to"): "client__web__go_to"}


def test_a_tool_called_like_the_hashed_name_does_not_take_it() -> None:
    hashed = hashed_name("web", "go_to").removeprefix("client__web__")
    given_names = names(client(1, "web", hashed, "go-to", "go_to"))
    assert len(set(given_names.values())) == 3
    assert given_names["id1", "go_to"] == hashed_name("web", "go_to", 7)


TOOL = st.text(st.sampled_from("ab-_"), min_size=1, max_size=64)
CLIENT = st.text(st.sampled_from("ab-"), min_size=1, max_size=32)


@given(st.lists(st.tuples(CLIENT, st.lists(TOOL, unique=True, max_size=6)), max_size=5), st.integers(0, 4))
def test_names_are_legal_unique_and_stay(clients: list[tuple[str, list[str]]], gone: int) -> None:
    registrations = [client(order, name, *tools) for order, (name, tools) in enumerate(clients)]
    first = names(*registrations)
    assert len(set(first.values())) == len(first) == sum(len(entry.tools) for entry in registrations)
    assert all(re.fullmatch(r"client__[A-Za-z0-9_]{1,56}", name) for name in first.values())
    assert RESERVED.isdisjoint(first.values())
    left = [entry for entry in registrations if entry.order != gone]
    more = [*left, client(99, "a", "a", "b", "a-b", "a_b")]
    second = names(*more, held=first)
    assert all(second[key] == name for key, name in first.items() if key in second)
    assert len(set(second.values())) == len(second)


def test_a_spent_client_name_gets_a_counter() -> None:
    assert client_name("web", set()) == "web"
    assert client_name("web", {"web"}) == "web-2"
    assert client_name("web", {"web", "web-2", "web-4"}) == "web-3"


def test_the_counter_cuts_the_base() -> None:
    assert counted_name("a" * 32, 2) == "a" * 30 + "-2"
    assert counted_name("a" * 32, 1000) == "a" * 27 + "-1000"
    assert counted_name("web", 2) == "web-2"
