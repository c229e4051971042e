"""The command: what it prints, how it ends, and what it asks a gateway."""

import io
import json
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway import __version__
from gateway.auth.tokens import mint_api_key, mint_session_token
from gateway.cli import following
from gateway.config.settings import Settings

if TYPE_CHECKING:
    from tests.cli.conftest import Double, Ended

    Command = Callable[..., Ended]

SID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
TID = "6ba7b811-9dad-11d1-80b4-00c04fd430c8"
GOOD = (
    '[auth]\napi_keys = [{ label = "a", key = "env:KEY_OF_TEST" }]\n'
    '[[agents]]\nname = "a"\ncommand = ["x"]\ncwd = "/srv"\n'
)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Settings, dict[str, Any]]]:
    """What the server was started with."""
    found: list[tuple[Settings, dict[str, Any]]] = []

    def run(settings: Settings, **how: Any) -> int:
        found.append((settings, how))
        return 0

    module = types.ModuleType("gateway.server")
    module.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gateway.server", module)
    return found


def test_help_is_light() -> None:
    program = (
        "import sys\nfrom gateway.cli.main import main\nassert main(['--help']) == 0\n"
        "heavy = {'starlette', 'uvicorn', 'redis', 'httpx', 'msgspec', 'structlog', 'websockets', 'asyncio'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    for word in ("serve", "demo", "doctor", "config", "agents", "sessions", "calls", "token", "version"):
        assert f"    {word}" in ended.stdout


def test_version(command: "Command") -> None:
    assert command("version").out == command("--version").out == f"toolrelay {__version__}\n"


@pytest.mark.parametrize(
    "words",
    [[], ["nope"], ["serve", "--prot", "1"], ["token"], ["calls", "list", "x"], ["sessions", "list", "--limit", "0"]],
)
def test_usage_is_2(command: "Command", words: list[str]) -> None:
    ended = command(*words)
    assert ended.code == 2
    assert ended.err


# --- serve and demo


def test_serve_without_a_configuration_says_what_is_missing(command: "Command", started: list[Any]) -> None:
    ended = command("serve")
    assert ended.code == 2
    assert "--config FILE" in ended.err
    assert "--dev" in ended.err
    assert not started


def test_serve_with_an_incomplete_configuration(command: "Command", started: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[server]\nport = 1\n")
    ended = command("serve", "--config", str(path))
    assert ended.code == 2
    assert "auth.api_keys: is missing" in ended.err
    assert "agents: is missing" in ended.err
    assert not started


def test_serve_with_a_mistake(command: "Command", started: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[server]\nprot = 1\n")
    ended = command("serve", "--config", str(path), "--port", "99999")
    assert ended.code == 2
    assert "server.prot: unknown setting; did you mean port?" in ended.err
    assert "--port: expected `int` <= 65535" in ended.err
    assert not started


def test_serve_takes_flags(
    command: "Command", started: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(GOOD)
    monkeypatch.setenv("KEY_OF_TEST", "k" * 20)
    monkeypatch.setenv("TOOLRELAY_CONFIG", str(path))
    words = ["--host", "0.0.0.0", "--port", "81", "--redis-url", "redis://h:1", "--roles", "edge"]
    ended = command("serve", *words)
    assert ended.code == 0
    ((settings, how),) = started
    assert (settings.server.host, settings.server.port, settings.server.roles) == ("0.0.0.0", 81, ("edge",))
    assert settings.redis.url.reveal() == "redis://h:1"
    assert how == {"dev": False, "demo_agent": "demo"}
    assert "only loopback is served" in ended.err


def test_dev_prints_a_fresh_key_and_adds_the_demo_agent(command: "Command", started: list[Any]) -> None:
    first, second = command("serve", "--dev"), command("serve", "--dev")
    assert first.code == second.code == 0
    (settings, how), _ = started
    assert how == {"dev": True, "demo_agent": "demo"}
    key = settings.auth.api_keys[0].key.reveal()
    assert key.startswith("trk_")
    assert key in first.out
    assert key not in second.out
    assert [agent.name for agent in settings.agents] == ["demo"]
    assert settings.agents[0].command[0] == sys.executable


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "gateway.example", "::"])
def test_dev_listens_on_loopback_only(command: "Command", started: list[Any], host: str) -> None:
    ended = command("serve", "--dev", "--host", host)
    assert ended.code == 2
    assert "loopback only" in ended.err
    assert not started
    assert not ended.out  # no key for a node that does not start


def test_demo_leaves_nothing(command: "Command", started: list[Any]) -> None:
    assert command("demo", "--port", "0").code == 0
    ((settings, how),) = started
    assert how == {"dev": True, "demo": True}
    assert not Path(settings.server.state_dir).exists()


# --- config


def test_config_example_passes_config_check(
    command: "Command", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(command("config", "example").out)
    monkeypatch.setenv("TOOLRELAY_API_KEY", "k" * 20)
    ended = command("config", "check", "--config", str(path))
    assert (ended.code, ended.out, ended.err) == (0, f"{path}: fine\n", "")
    shown = command("config", "show", "--config", str(path))
    assert 'key = "env:TOOLRELAY_API_KEY"' in shown.out
    assert "k" * 20 not in shown.out


def test_config_check_fails_with_1(command: "Command", tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[server]\nport = 'x'\n")
    ended = command("config", "check", "--config", str(path))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "toolrelay: server.port: expected `int`, got `str`\n"
    assert command("config", "check").code == 2


def test_config_schema(command: "Command") -> None:
    schema = json.loads(command("config", "schema").out)
    assert "Limits" in schema["$defs"]


# --- what asks a gateway


def test_a_key_is_needed(command: "Command", double: "Double", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLRELAY_API_KEY")
    ended = command("agents", "list")
    assert ended.code == 2
    assert "TOOLRELAY_API_KEY is not set" in ended.err
    assert not double.asked


def test_agents_list(command: "Command", double: "Double") -> None:
    item = {"id": SID, "name": "support\x1b[2J", "workspace_id": TID, "created_at": "2026-01-01T00:00:00Z"}
    double.answers["GET /v1/agents"] = (200, {"items": [item], "next_cursor": None})
    ended = command("agents", "list")
    assert ended.code == 0
    assert ended.out.splitlines()[1].split() == [SID, "support\\x1b[2J", "2026-01-01T00:00:00Z"]
    assert double.asked[0].headers["authorization"] == "Bearer trk_test"
    assert json.loads(command("agents", "list", "--json").out) == item


def test_a_refusal_is_its_message(command: "Command", double: "Double") -> None:
    error = {"code": "unauthorized", "message": "a valid credential is required"}
    double.answers["GET /v1/agents"] = (401, {"error": error})
    ended = command("agents", "list")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "toolrelay: a valid credential is required (401 unauthorized)\n"


@pytest.mark.parametrize("answer", [(200, b"<html>"), (200, b"[]"), (502, b"bad gateway"), (500, {"a": 1})])
def test_what_is_no_gateway(command: "Command", double: "Double", answer: tuple[int, Any]) -> None:
    double.answers["GET /v1/agents"] = answer
    assert command("agents", "list").code == 1


def test_nobody_answers(command: "Command", double: "Double", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLRELAY_URL", "http://127.0.0.1:1")
    ended = command("agents", "list")
    assert ended.code == 1
    assert "http://127.0.0.1:1 does not answer" in ended.err


def test_sessions_list_goes_from_page_to_page(command: "Command", double: "Double") -> None:
    def page(first: int, count: int) -> list[dict[str, Any]]:
        return [{"id": f"s{number}", "status": "idle"} for number in range(first, first + count)]

    double.answers["GET /v1/sessions?limit=100"] = (200, {"items": page(0, 100), "next_cursor": "s99"})
    double.answers["GET /v1/sessions?after=s99&limit=20"] = (200, {"items": page(100, 20), "next_cursor": "s119"})
    ended = command("sessions", "list", "--limit", "120", "--json")
    assert [json.loads(line)["id"] for line in ended.out.splitlines()] == [f"s{number}" for number in range(120)]


def test_calls_list(command: "Command", double: "Double") -> None:
    item = {"call_id": "c1", "tool": "highlight", "state": "settled", "outcome": "done", "reason": None}
    double.answers[f"GET /v1/sessions/{SID}/calls?state=settled&limit=50"] = (200, {"items": [item]})
    ended = command("calls", "list", SID, "--state", "settled")
    assert ended.out.splitlines()[1].split() == ["c1", "-", "highlight", "settled", "done", "-", "-"]


def test_token_create_and_revoke(command: "Command", double: "Double") -> None:
    answer = {"session_token": "trs_x", "expires_at": "2026-01-02T00:00:00Z"}
    double.answers[f"POST /v1/sessions/{SID}/tokens"] = (201, answer)
    double.answers[f"DELETE /v1/sessions/{SID}/tokens/{TID}"] = (204, None)
    ended = command("token", "create", SID.upper())
    assert (ended.code, ended.out) == (0, "trs_x\n")
    assert "2026-01-02" in ended.err
    assert double.asked[0].headers["idempotency-key"]
    ended = command("token", "revoke", SID, TID)
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_token_inspect(command: "Command", monkeypatch: pytest.MonkeyPatch) -> None:
    token = mint_session_token(SID)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{token}\n"))
    ended = command("token", "inspect")
    assert ended.code == 0
    assert SID in ended.out
    assert token not in ended.out + ended.err
    wrong = token[:-1] + ("0" if token[-1] != "0" else "1")
    for text in (wrong, mint_api_key(), "", "x" * 10_000):
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{text}\n"))
        ended = command("token", "inspect")
        assert (ended.code, ended.out) == (1, "")
        assert not text or text not in ended.err


def frame(seq: int, **fields: Any) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (seq, json.dumps({"seq": seq, **fields}, ensure_ascii=False).encode())


def test_sessions_tail_goes_on_where_it_broke(
    command: "Command", double: "Double", monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    block = {"type": "text", "data": {"text": "a\u2028b \x1b[31m"}}
    first = (
        b"retry: 1\nid: 0\n\n: beat\n\n"
        + frame(1, type="run_queued", run_id="r1")
        + frame(2, type="message_user", message={"role": "user", "content": [block]})
        + b'data: {"seq": 3, "cut'
    )
    path = f"/v1/sessions/{SID}/events/stream?after_seq=0"
    double.answers[f"GET {path}"] = (
        200,
        [first, frame(3, type="tool_call", call_id="c", name="n", arguments={"a": 1})],
    )

    def stop(_: float) -> None:
        waits.append(0)
        if len(waits) == 2:
            double.answers.clear()  # the session is gone: a final refusal ends the command

    monkeypatch.setattr(following.time, "sleep", stop)
    ended = command("sessions", "tail", SID, "--after-seq", "0")
    assert ended.code == 1
    assert "there is no such thing here (404 not_found)" in ended.err
    rows = [line.split(maxsplit=2) for line in ended.out.split("\n")[:-1]]
    assert rows == [
        ["1", "run_queued", "run_id=r1"],
        ["2", "message_user", "a\\u2028b \\x1b[31m"],
        ["3", "tool_call", 'call_id=c name=n arguments={"a":1}'],
    ]
    assert [asked.headers.get("last-event-id") for asked in double.asked] == [None, "2", "3"]
