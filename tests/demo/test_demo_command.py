"""The demo page's flag of ``serve``."""

import pytest

from gateway.cli.main import main


def test_the_demo_agent_needs_the_demo_page(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    assert main(["serve", "--config", f"{tmp_path}/none.toml", "--demo-agent", "support"]) == 2
    assert "--demo-agent goes with --dev" in capsys.readouterr().err


def test_the_demo_agent_must_be_configured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLRELAY_CONFIG", raising=False)
    assert main(["serve", "--dev", "--demo-agent", "support"]) == 2
    assert "--demo-agent support: there is no such agent" in capsys.readouterr().err
