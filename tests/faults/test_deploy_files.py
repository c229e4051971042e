"""What is deployed as it stands: the compose file against the part of its schema that it uses, and what it names."""

import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from gateway.config.load import load
from tests.doubles.proxies import config_for, nginx

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
yaml = pytest.importorskip("yaml", reason="lacks PyYAML: the compose file is not read here")

STRINGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
DURATION = {"type": "string", "pattern": r"^(\d+(us|ms|s|m|h))+$"}
SERVICE: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "anyOf": [{"required": ["image"]}, {"required": ["build"]}],
    "properties": {
        "image": {"type": "string"},
        "build": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "context": {"type": "string"},
                "dockerfile": {"type": "string"},
                "target": {"type": "string"},
            },
        },
        "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
        "stop_grace_period": DURATION,
        "command": STRINGS,
        "environment": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}},
        "ports": STRINGS,
        "volumes": STRINGS,
        "depends_on": {
            "oneOf": [
                STRINGS,
                {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["condition"],
                        "properties": {
                            "condition": {
                                "enum": ["service_started", "service_healthy", "service_completed_successfully"]
                            }
                        },
                    },
                },
            ]
        },
        "healthcheck": {
            "type": "object",
            "additionalProperties": False,
            "required": ["test"],
            "properties": {"test": STRINGS, "interval": DURATION, "timeout": DURATION, "retries": {"type": "integer"}},
        },
    },
}
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["services"],
    "patternProperties": {"^x-": True},
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "services": {"type": "object", "additionalProperties": SERVICE},
        "volumes": {"type": "object", "additionalProperties": {"type": ["object", "null"]}},
    },
}


@pytest.fixture
def compose() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text("utf-8"))


def test_the_compose_file_fits_the_schema_of_compose(compose: dict[str, Any]):
    errors = [f"{list(e.instance_path)}: {e.message}" for e in jsonschema_rs.validator_for(SCHEMA).iter_errors(compose)]
    assert errors == []


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
