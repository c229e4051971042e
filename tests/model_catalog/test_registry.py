"""Whatever may be registered can be offered: a list that is accepted makes a registry that its child gets."""

import json
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.stdio.requests import ToolDescriptor, encode_registry
from gateway.bus.clients import Clients
from gateway.model.catalog import Catalog, DescriptorRedaction, build_catalog
from gateway.model.errors import Refusal
from gateway.model.redaction import Redactor
from gateway.model.registration import Registration
from gateway.model.strictjson import parse_json
from gateway.model.tools import parse_tools
from gateway.services.offers import Offers
from tests.model_catalog.schema_strategies import schemas

REDACTOR = Redactor([])
OFFERS = Offers(cast(Clients, None), REDACTOR)
TEXTS = st.text(st.characters() | st.sampled_from("\x00\x1b[]m\x7f\x85\x9b\r\n\t \u2028\ud800"), max_size=40)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([10**400, -0.0, 1e308])
VALUES = TEXTS | NUMBERS


def offered(raw: bytes) -> Catalog:
    """The catalog of one client that registered this list."""
    tools = OFFERS.cleaned(parse_tools(parse_json(raw, mend_surrogates=True)))
    redaction = DescriptorRedaction(REDACTOR.model_text, REDACTOR.schema_json)
    return build_catalog([Registration(client_id="id", name="web", order=1, tools=tools)], redaction=redaction)


def encoded(catalog: Catalog) -> list[dict[str, Any]]:
    """What ``initialize`` offers."""
    tools = [ToolDescriptor(d.name, d.description, d.input_schema, d.timeout_ms) for d in catalog.descriptors]
    return json.loads(bytes(encode_registry(tools)))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_an_accepted_list_makes_a_registry(data: st.DataObject) -> None:
    extra = st.dictionaries(st.sampled_from(["title", "description", "default", "const", "x"]), VALUES, max_size=2)
    tools = [
        {"name": f"t{n}", "description": data.draw(TEXTS), "parameters": data.draw(schemas()) | data.draw(extra)}
        for n in range(data.draw(st.integers(1, 3)))
    ]
    try:
        catalog = offered(json.dumps(tools).encode())
    except Refusal:
        return
    encoded(catalog)


@pytest.mark.parametrize(
    ("description", "given"),
    [("a\x00b", "ab"), ("\x1b[31mred\x1b[0m", "red"), ("a\r\nb", "a\nb"), ("\x7f \x85", "t"), ("\x1b[0m", "t")],
)  # fmt: skip
def test_controls_of_a_description_go(description: str, given: str) -> None:
    raw = json.dumps([{"name": "t", "description": description, "parameters": {"type": "object"}}]).encode()
    assert next(tool["description"] for tool in encoded(offered(raw)) if tool["name"] == "client__web__t") == given


def test_a_secret_that_controls_take_apart_is_one() -> None:
    secret = "gh" + "p_" + "a1B2c3D4e5F6\x00g7H8i9J0k1L2m3N4o5P6q7R8"
    raw = json.dumps([{"name": "t", "description": secret, "parameters": {"type": "object"}}]).encode()
    assert "[redacted:github-token]" in str(encoded(offered(raw)))
