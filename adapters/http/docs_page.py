"""The description as a page, rendered here: no script, nothing from elsewhere. Owns its HTML."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final

Json = Mapping[str, Any]

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, .path { font-family: ui-monospace, monospace; font-size: .95em }
details { border: 1px solid #8886; border-radius: .4rem; margin: .5rem 0; padding: .4rem .8rem }
summary { cursor: pointer }
details > div { scroll-margin-top: 3rem }
.method { display: inline-block; min-width: 4.5rem; font-weight: 600 }
.note { opacity: .75 }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0; border-top: 1px solid #8883 }
"""


def render(document: Json) -> bytes:
    """The whole page."""
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    refusals: Mapping[str, Json] = document["components"]["responses"]
    operations = [
        _operation(method, path, operation, refusals)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [_schema(name, schema) for name, schema in document["components"]["schemas"].items()]
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>',
        f"<h1>{title}</h1><p>{escape(info['description'])}</p>",
        '<p>As a document: <a href="openapi.json">openapi.json</a>.</p>',
        "<h2>Operations</h2>",
        *operations,
        "<h2>Shapes</h2>",
        *schemas,
        "</html>",
    ]
    return "\n".join(parts).encode()


def _operation(method: str, path: str, operation: Json, refusals: Mapping[str, Json]) -> str:
    needs = " or ".join(name.replace("_", " ") for need in operation["security"] for name in need)
    rows = [
        _row(parameter["name"], f"{parameter['in']}; {_type(parameter['schema'])}", parameter["description"])
        for parameter in operation["parameters"]
    ]
    body = operation.get("requestBody")
    if body is not None:
        rows.append(_row("body", _type(body["content"]["application/json"]["schema"]), ""))
    answers = [
        _answer(status, refusals[status] if "$ref" in answer else answer)
        for status, answer in operation["responses"].items()
    ]
    return (
        f'<details><summary><span class="method">{method.upper()}</span>'
        f'<span class="path">{escape(path)}</span> <span class="note">{escape(operation["summary"])}</span></summary>'
        f'<div id="{escape(operation["operationId"])}"><p>Needs: {escape(needs)}.</p>{_table(rows)}'
        f"<h4>Answers</h4>{_table(answers)}</div></details>"
    )


def _answer(status: str, answer: Json) -> str:
    content = answer.get("content", {})
    kinds = ", ".join(_type(media["schema"]) if "json" in name else escape(name) for name, media in content.items())
    headers = "".join(
        f" <code>{escape(name)}</code>: {escape(header['description'])}"
        for name, header in answer.get("headers", {}).items()
    )
    return f"<tr><td><code>{status}</code></td><td>{kinds}</td><td>{escape(answer['description'])}{headers}</td></tr>"


def _schema(name: str, schema: Json) -> str:
    required = set(schema.get("required", ()))
    rows = [
        _row(field, _type(shape) + ("" if field in required else "; optional"), _description(shape))
        for field, shape in schema.get("properties", {}).items()
    ]
    shown = _table(rows) if rows else f"<p>{_type(schema)}</p>"
    # A link to what a closed <details> holds opens it; one to the element itself does not.
    return f'<details><summary class="path">{escape(name)}</summary><div id="{escape(name)}">{shown}</div></details>'


def _description(shape: Json | bool) -> str:
    return "" if isinstance(shape, bool) else shape.get("description", "")


def _type(schema: Json | bool) -> str:
    """A schema in a few words."""
    if isinstance(schema, bool):
        return "anything" if schema else "must not stand here"
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])
    for joined in ("anyOf", "oneOf"):
        if joined in schema:
            return " or ".join(_type(one) for one in schema[joined])
    if "enum" in schema:
        return " | ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    kind: str | list[str] = schema.get("type", "anything")
    text = escape(schema.get("format") or (kind if isinstance(kind, str) else " or ".join(kind)))
    if "items" in schema:
        text += f" of {_type(schema['items'])}"
    bounds = [
        f"{word} {schema[name]}"
        for name, word in (
            ("minimum", "from"),
            ("maximum", "to"),
            ("minLength", "from"),
            ("maxLength", "to"),
            ("maxItems", "at most"),
        )
        if name in schema
    ]
    return text + (f" ({', '.join(bounds)})" if bounds else "")


def _link(name: str) -> str:
    return f'<a href="#{escape(name)}">{escape(name)}</a>'


def _row(name: str, kind: str, text: str) -> str:
    return f"<tr><td><code>{escape(name)}</code></td><td>{kind}</td><td>{escape(text)}</td></tr>"


def _table(rows: Iterable[str]) -> str:
    inner = "".join(rows)
    return f"<table>{inner}</table>" if inner else ""
