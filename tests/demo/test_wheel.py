"""What the wheel carries of the examples, and that an installation without a checkout finds it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_nothing_is_installed_under_a_general_name(unpacked: Path) -> None:
    names = {path.name for path in unpacked.iterdir()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"gateway", "adapters"}


def test_an_installation_finds_the_agent_and_the_page(unpacked: Path, tmp_path: Path) -> None:
    program = """
from gateway.config.dev import demo_agent
from gateway.config.settings import Settings
from gateway.web.demo import example_folder
print(demo_agent(Settings()).command[2])
print(example_folder("demo") / "index.html")
"""
    environment = {"PYTHONPATH": str(unpacked), "PATH": "", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True, timeout=60)
    agent, page = map(Path, run.stdout.split())
    assert (agent / "__main__.py").is_relative_to(unpacked)
    assert (agent / "__main__.py").is_file()
    assert page.is_file()
