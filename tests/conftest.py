"""For every test: its keys have a lifetime when it ends, and its random examples are the same at each run.

Looked at is every Redis that the test used and that outlives it. A server of a test's own is looked at by the double
that started it, when it stops (``tests.doubles.lifetimes``).
"""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.doubles.lifetimes import WATCHED, assert_lifetimes
from tests.doubles.nodes import Node

_URLS = ("redis://", "unix://")
settings.register_profile("same", derandomize=True, database=None, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    """A gate must say the same of the same code twice. New examples are looked for where a seed or a profile is given,
    as `make nightly` does."""
    if config.getoption("--hypothesis-seed") is None and config.getoption("--hypothesis-profile") is None:
        settings.load_profile("same")


@pytest.fixture(autouse=True)
def lifetimes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set up before what the test asks for, so it looks when everything else of the test has ended."""
    yield
    urls = set(WATCHED)
    used: dict[str, object] = getattr(request.node, "funcargs", {})
    given: dict[str, object] = getattr(getattr(request.node, "callspec", None), "params", {})
    for name, value in used.items():
        if name not in given and isinstance(value, str) and value.startswith(_URLS):  # a server's, not a test's text
            urls.add(value)
        elif isinstance(value, Node):
            urls.update(value.embedded())
    for url in sorted(urls):
        assert_lifetimes(url)
