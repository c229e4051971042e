"""Collect the JSON Schemas that installed packages hold, one JSON line each: {"kind", "source", "schema"}.

Run it with the interpreter whose packages are meant; it needs nothing of this project:

    python benchmarks/collect_schemas.py MODULE... > schemas.jsonl

For each module its pydantic models are printed (as a tool's parameters would be), then the tools of FastMCP servers in
it; for each installed distribution the JSON files that are schemas, and the request bodies of OpenAPI documents.
"""

import importlib
import inspect
import json
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

LARGEST_FILE = 4 * 1024 * 1024


def models(name: str) -> Iterator[tuple[str, str, Any]]:
    """The schemas of every pydantic model in a module and the modules below it."""
    base: Any = importlib.import_module("pydantic").BaseModel
    top = importlib.import_module(name)
    paths = getattr(top, "__path__", None)
    names = [name] + [found.name for found in pkgutil.walk_packages(paths, name + ".")] if paths else [name]
    seen: set[type] = set()
    for inner in names:
        try:
            module = importlib.import_module(inner)
        except Exception as error:  # an optional part of a package may lack what it needs
            print(f"not imported: {inner}: {type(error).__name__}", file=sys.stderr)
            continue
        for _, found in inspect.getmembers(module, inspect.isclass):
            model: Any = found
            if issubclass(found, base) and found is not base and found not in seen:
                seen.add(found)
                try:
                    yield "pydantic model", f"{found.__module__}.{found.__qualname__}", model.model_json_schema()
                except Exception as error:  # a model may hold what has no schema
                    print(f"no schema: {inner}.{found.__name__}: {type(error).__name__}", file=sys.stderr)


def files() -> Iterator[tuple[str, str, Any]]:
    """The schemas among the JSON files of installed distributions, and those in OpenAPI documents."""
    for distribution in distributions():
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if path.suffix != ".json" or not path.is_file() or path.stat().st_size > LARGEST_FILE:
                continue
            try:
                document = json.loads(path.read_text())
            except ValueError:
                continue
            source = f"{distribution.metadata['Name']}: {file}"
            if isinstance(document, dict) and "json-schema.org" in str(document.get("$schema")):
                yield "schema file", source, document
            elif isinstance(document, dict) and ("openapi" in document or "swagger" in document):
                yield from bodies(document, source)


def bodies(document: dict[str, Any], source: str) -> Iterator[tuple[str, str, Any]]:
    """The request bodies of an OpenAPI document, with its components beside them so that references are found."""
    components = document.get("components", {})
    for path, item in document.get("paths", {}).items():
        for method, operation in item.items() if isinstance(item, dict) else ():
            content = operation.get("requestBody", {}).get("content", {}) if isinstance(operation, dict) else {}
            schema = content.get("application/json", {}).get("schema")
            if schema:
                yield "OpenAPI body", f"{source} {method} {path}", {**schema, "components": components}


def main() -> None:
    """Print what is found, each schema once."""
    warnings.simplefilter("ignore")
    seen: set[str] = set()
    sources = [models(name) for name in sys.argv[1:]]
    for source in (*sources, files()):
        for kind, name, schema in source:
            line = json.dumps(schema)
            if line not in seen:
                seen.add(line)
                print(json.dumps({"kind": kind, "source": name, "schema": schema}))


if __name__ == "__main__":
    main()
