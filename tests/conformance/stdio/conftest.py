"""``subject``: the demo agent and the real child in turn."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from adapters.stdio.reaper import Reaper
from tests.doubles.scripted_model import scripted_model
from tests.doubles.stdio_peers import magi_binary
from tests.doubles.stdio_subject import Subject


@pytest.fixture(scope="session")
def model_port() -> Iterator[int]:
    """One scripted model for all real children."""
    with scripted_model() as port:
        yield port


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    made = Reaper()
    yield made
    made.close()


@pytest.fixture
async def demo(tmp_path: Path, reaper: Reaper) -> AsyncIterator[Subject]:
    """The demo agent alone."""
    made = Subject("demo", tmp_path, reaper, 0)
    yield made
    await made.close()


@pytest.fixture(params=["demo", pytest.param("magi", marks=pytest.mark.peers)])
async def subject(request: pytest.FixtureRequest, tmp_path: Path, reaper: Reaper) -> AsyncIterator[Subject]:
    """Each of the two."""
    port = 0
    if request.param == "magi":
        if not magi_binary().exists():
            pytest.skip("magi-code 0.104.0 is not in the peers' cache")
        port = request.getfixturevalue("model_port")
    made = Subject(request.param, tmp_path, reaper, port)
    yield made
    await made.close()
