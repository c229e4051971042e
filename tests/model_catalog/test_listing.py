"""What a model is told about the list (bridge 3)."""

from gateway.model.listing import change_line, list_text, tool_text
from tests.model_catalog.offered import NOTHING_TO_HIDE, catalog, client, tool

WEB = client(1, "web", tool("go-to", "Open a page.\nAny page."), tool("click", "Click " + "x" * 300))


def test_the_list_has_a_line_for_each_tool() -> None:
    lines = list_text(catalog(WEB), NOTHING_TO_HIDE).splitlines()
    assert lines[0] == "2 of 2 tools, called with client__use or directly:"
    assert lines[1] == "client__web__go_to: Open a page. Any page."
    assert lines[2].startswith("client__web__click: Click xxx")
    assert len(lines[2]) == len("client__web__click: ") + 160
    assert lines[2].endswith("…")


def test_a_query_filters_by_all_words_in_names_and_descriptions() -> None:
    made = catalog(WEB)
    assert "go_to" in list_text(made, NOTHING_TO_HIDE, "PAGE open")
    assert "click" not in list_text(made, NOTHING_TO_HIDE, "PAGE open")
    assert "go_to" in list_text(made, NOTHING_TO_HIDE, "go-to")
    assert list_text(made, NOTHING_TO_HIDE, "nothing") == (
        "None of the 2 tools has these words; client__tools without a query lists all."
    )
    assert list_text(catalog(), NOTHING_TO_HIDE) == "No client offers a tool at this moment."


def test_one_tool_is_shown_whole_with_its_clients_schema() -> None:
    schema = {"type": "object", "$defs": {"a": {}}, "if": {}}
    made = catalog(client(1, "web", tool("a", "line\nline", schema)))
    assert tool_text(made.items[0], NOTHING_TO_HIDE) == (
        "client__web__a\nIt can be called directly, or with client__use.\n\nline\nline\n\n"
        'Schema of its arguments:\n{"type":"object","$defs":{"a":{}},"if":{}}'
    )


def test_the_change_line_says_what_came_went_and_changed() -> None:
    old = catalog(client(1, "web", tool("a"), tool("b"), tool("c")))
    new = catalog(client(1, "web", tool("b", "D"), tool("c"), tool("d")))
    assert change_line(old, old, ()) is None
    assert change_line(old, new, ["client__web__a", "client__web__b"]) == (
        "[The clients' tools have changed. now offered: client__web__d; gone: client__web__a; changed: client__web__b; "
        "client__use calls any of them, client__tools shows their schemas.]"
    )
    assert change_line(new, catalog(), ()) == (
        "[The clients' tools have changed. gone: client__web__b, client__web__c, client__web__d.]"
    )


def test_the_change_line_is_bounded() -> None:
    many = catalog(*(client(n, f"w{n}", *(tool("t" * 60 + str(i)) for i in range(64))) for n in range(32)))
    line = change_line(catalog(), many, ())
    assert line is not None
    assert len(line) < 2_000
    assert "and 2024 more" in line
