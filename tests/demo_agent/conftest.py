"""The children that these cases run on: ``peer`` is the demo agent and the real child in turn, ``demo`` the first."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.stdio_model import ModelServer
from tests.doubles.stdio_peers import Demo, Magi, Peer, magi_binary


@pytest.fixture(scope="session")
def model_server() -> Iterator[ModelServer]:
    """One scripted model for all real children."""
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    """The demo agent."""
    return Demo(tmp_path)


@pytest.fixture
def magi(tmp_path: Path, model_server: ModelServer) -> Magi:
    """The real child."""
    if not magi_binary().exists():
        pytest.skip("magi-code 0.104.0 is not installed")
    return Magi(tmp_path, model_server)


@pytest.fixture(params=["demo", pytest.param("magi", marks=pytest.mark.peers)])
def peer(request: pytest.FixtureRequest) -> Peer:
    """Each of the two."""
    return request.getfixturevalue(request.param)
