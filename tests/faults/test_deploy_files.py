"""What is deployed as it stands: the compose file against the schema of Compose, and what it names."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import load
from tests.doubles.proxies import SAMPLE, config_for, nginx

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
yaml = pytest.importorskip("yaml", reason="lacks PyYAML: the compose file is not read here")


@pytest.fixture
def compose() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text("utf-8"))


@pytest.mark.peers
def test_the_compose_file_fits_the_schema_of_compose():
    """The Compose Specification's own schema, as check-jsonschema brings it."""
    check = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE]
    checked = subprocess.run([sys.executable, *check], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_the_compose_file_refers_to_is_there(compose: dict[str, Any]):
    services = compose["services"]
    assert set(services) == {"gateway-1", "gateway-2", "valkey", "proxy"}
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        if "build" in service:
            assert (ROOT / service["build"]["dockerfile"]).is_file()
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (ROOT / source).is_file() if source.startswith(".") else source in compose["volumes"]
    mounted = [ROOT / volume.split(":")[0] for volume in services["proxy"]["volumes"]]
    assert mounted == [SAMPLE], "the proxy runs what the tests run"


def test_the_gateways_of_the_compose_file_have_a_configuration_that_loads(
    compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    for name in ("gateway-1", "gateway-2"):
        given = compose["services"][name]["environment"]
        assert set(given) == {"TOOLRELAY_KEY", "TOOLRELAY_SERVER_NODE_NAME"}
        monkeypatch.setenv("TOOLRELAY_KEY", "0123456789abcdef0123")
    settings = load(ROOT / "deploy/docker/toolrelay.toml")
    assert settings.redis.url.reveal() == "redis://valkey:6379"
    grace = int(compose["services"]["gateway-1"]["stop_grace_period"].removesuffix("s"))
    assert grace >= settings.limits.drain_s + 10


def test_the_copied_paths_of_the_image_are_there():
    text = (ROOT / "deploy/docker/Dockerfile").read_text("utf-8")
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for source in line.split():
            assert (ROOT / source).exists(), source


def test_nginx_takes_the_sample(tmp_path: Path):
    program = nginx()
    if program is None:
        pytest.skip("lacks nginx: the sample is not checked here")
    config = tmp_path / "nginx.conf"
    config.write_text(config_for(tmp_path, 18080, ["127.0.0.1:1", "127.0.0.1:2"]))
    checked = subprocess.run([program, "-t", "-c", config], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "warn" not in checked.stderr
