"""Short ways to make registrations and catalogs in tests."""

import json
from typing import Any

from gateway.model.catalog import Catalog, DescriptorRedaction, build_catalog
from gateway.model.clean import ModelJson, ModelText
from gateway.model.registration import Registration, ToolSpec

NOTHING_TO_HIDE = DescriptorRedaction(ModelText, ModelJson)


def tool(name: str, description: str = "d", schema: Any = None, timeout_ms: int | None = None) -> ToolSpec:
    parameters = json.dumps({"type": "object"} if schema is None else schema, separators=(",", ":")).encode()
    return ToolSpec(name=name, description=description, parameters=parameters, timeout_ms=timeout_ms)


def client(order: int, name: str, *tools: ToolSpec) -> Registration:
    return Registration(client_id=f"id{order}", name=name, order=order, tools=tools)


def catalog(*registrations: Registration, **settings: Any) -> Catalog:
    return build_catalog(registrations, redaction=NOTHING_TO_HIDE, **settings)
