"""What is generated and committed of the JavaScript client is what its sources give, and it stays small."""

import gzip
import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

from tests.clients.driven import JS, ROOT

COPIES = ("examples/demo/client", "examples/extension-mv3/client")
MOST_BYTES = 6_000


def test_the_types_are_those_of_the_gateways_structs() -> None:
    spec = importlib.util.spec_from_file_location("generate", JS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert (JS / "src/protocol.ts").read_text("utf-8") == generate.generate(), "run `make client`"


@pytest.mark.parametrize("copy", COPIES)
def test_what_the_examples_load_is_the_build(copy: str, js_client: None) -> None:
    built = {path.name: path.read_bytes() for path in (JS / "dist").glob("*.js") if path.name != "react.js"}
    copied = {path.name: path.read_bytes() for path in (ROOT / copy).iterdir()}
    assert copied == built, "run `make client`"


def test_the_main_entry_is_small(js_client: None) -> None:
    """As an app's own bundler would make it; the build needs none."""
    command = ["node_modules/.bin/esbuild", "--bundle", "--minify", "--format=esm", "dist/index.js"]
    made = subprocess.run(command, cwd=JS, capture_output=True, check=True, timeout=60).stdout
    assert b"react" not in made
    size = len(gzip.compress(made, 9))
    assert size <= MOST_BYTES, f"{size} bytes gzipped"


def test_the_package_depends_on_nothing_and_is_pinned() -> None:
    package = json.loads((JS / "package.json").read_text("utf-8"))
    assert "dependencies" not in package
    assert all(version[0].isdigit() for version in package["devDependencies"].values())
    assert not Path(JS / "package-lock.json").exists()


def test_its_own_tests_pass(js_client: None) -> None:
    tests = sorted(map(str, (JS / "test").glob("*.test.mjs")))
    made = subprocess.run(["node", "--test", *tests], capture_output=True, text=True, check=False, timeout=120)
    assert made.returncode == 0, made.stdout[-4_000:]
    assert "# fail 0" in made.stdout
    assert len(tests) >= 3
