"""Where values come from, and what a mistake is told."""

import re
import tomllib
from pathlib import Path
from uuid import UUID

import pytest

from gateway.config import reference
from gateway.config.load import ConfigError, load, variables
from gateway.config.settings import AGENT_NAMESPACE, Agent, Settings, known_secrets

KEY = "k" * 20
AGENT = '[[agents]]\nname = "support"\ncommand = ["x"]\ncwd = "/srv"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "toolrelay.toml"
    path.write_text(text, "utf-8")
    return path


def problems(folder: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(write(folder, text), environ=environ or {})
    return caught.value.problems


def test_flags_stand_above_environment_above_file_above_default(tmp_path: Path) -> None:
    path = write(tmp_path, "[server]\nport = 1\n")
    variable = {"TOOLRELAY_SERVER_PORT": "2"}
    assert load(None, environ={}).server.port == 8080
    assert load(path, environ={}).server.port == 1
    assert load(path, environ=variable).server.port == 2
    assert load(path, environ=variable, flags={"server.port": 3}).server.port == 3
    assert load(path, environ=variable, flags={"server.port": None}).server.port == 2


def test_every_scalar_setting_has_a_variable() -> None:
    known = set(variables().values())
    for setting in reference.settings():
        if setting.section in ("server", "redis", "limits"):
            assert f"{setting.section}.{setting.name}" in known
    assert variables()["TOOLRELAY_REDIS_URL"] == "redis.url"


def test_a_list_in_a_variable_has_commas() -> None:
    assert load(None, environ={"TOOLRELAY_SERVER_ROLES": "edge, agents"}).server.roles == ("edge", "agents")
    assert load(None, environ={}, flags={"server.roles": "edge"}).server.roles == ("edge",)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[servr]\n", "servr: unknown setting; did you mean server?"),
        ("[server]\nprot = 1\n", "server.prot: unknown setting; did you mean port?"),
        ("[limits]\nmax_childern = 1\n", "limits.max_childern: unknown setting; did you mean max_children?"),
        ("[limits]\nmax_children = 0\n", "limits.max_children: expected `int` >= 1"),
        ("[limits]\nmax_children = '3'\n", "limits.max_children: expected `int`, got `str`"),
        ("[server]\nroles = []\n", "server.roles: at least one of edge, agents"),
        ("[server]\nroles = ['edge', 'boss']\n", "server.roles[1]: invalid enum value 'boss'"),
        ("[server]\npublic_url = 'https://h/x'\n", "server.public_url: http:// or https:// and a host, without a path"),
        ("[redis]\nprefix = 'a{b}'\n", "redis.prefix: 1 to 32 of A-Z a-z 0-9 . _ -"),
        ("server = 3\n", "server: must be a table"),
        ("agents = 3\n", "agents: must be an array of tables"),
        ("[[agents]]\nname = 'a'\ncwd = '/x'\n", "agents[0].command: is missing"),
        (AGENT.replace("/srv", "srv"), "agents[0].cwd: must be an absolute path"),
        (AGENT.replace("/srv", "/srv/{user}"), "agents[0].cwd: only {session_id} may stand in braces"),
        (AGENT + "id = 'x'\n", "agents[0].id: must be a uuid"),
        (AGENT + "allowed_origins = ['null']\n", "agents[0].allowed_origins: null is never allowed"),
        (AGENT + AGENT, "the agent name support is there twice"),
        ("[auth]\napi_keys = [{ label = 'a' }]\n", "auth.api_keys[0].key: is missing"),
        ("[auth]\napi_keys = [{ label = 'a', key = 'env:NOPE' }]\n",
         "auth.api_keys[0].key: the environment variable NOPE is not set"),
        ("[auth]\noperator_key = 'short'\n",
         "auth: a key has 16 to 512 printable ASCII characters without spaces"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_its_path(tmp_path: Path, text: str, line: str) -> None:
    assert problems(tmp_path, text) == [line]


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, "[server]\nport = -1\nhots = 'x'\n[limits]\nlog_events = 1\n", {"TOOLRELAY_X": "1"})
    assert len(found) == 4


@pytest.mark.parametrize("origin", [
    "*", "null", "https://a/", "https://a/x", "a.example", "https://A.example", "https://a:443", "http://a:80",
    "https://a:0", "https://*.a", "https://u@a", "",
])  # fmt: skip
def test_an_origin_that_can_never_match_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match="allowed_origins"):
        Agent(name="a", command=("x",), cwd="/x", allowed_origins=(origin,))


def test_origins_as_browsers_write_them_are_taken() -> None:
    origins = ("https://a.example", "http://localhost:3000", "chrome-extension://abcdef", "http://[::1]:8080")
    assert Agent(name="a", command=("x",), cwd="/x", allowed_origins=origins).allowed_origins == origins


@pytest.mark.parametrize(
    ("name", "near"), [("TOOLRELAY_REDIS_URI", "TOOLRELAY_REDIS_URL"), ("TOOLRELAY_APIKEY", "TOOLRELAY_API_KEY")]
)
def test_an_unknown_variable_is_an_error_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: unknown variable; did you mean {near}"):
        load(None, environ={name: "x"})


def test_variables_that_are_no_mistake(tmp_path: Path) -> None:
    path = write(tmp_path, "[auth]\napi_keys = [{ label = 'a', key = 'env:TOOLRELAY_SECOND_KEY' }]\n")
    environ = {
        "TOOLRELAY_SECOND_KEY": KEY,
        "TOOLRELAY_URL": "http://x",
        "TOOLRELAY_PORT": "tcp://10.0.0.1:80",
        "TOOLRELAY_SERVICE_HOST": "10.0.0.1",
        "TOOLRELAY_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    assert load(path, environ=environ).auth.api_keys[0].key.reveal() == KEY


def test_file_secrets_are_relative_to_the_toml(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY + "\n")
    path = write(tmp_path, "[auth]\napi_keys = [{ label = 'a', key = 'file:key' }]\n")
    assert load(path, environ={}).auth.api_keys[0].key.reveal() == KEY


def test_no_secret_is_shown(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        f"[auth]\noperator_key = 'env:OP'\napi_keys = [{{ label = 'a', key = '{KEY}' }}]\n"
        "[redis]\nurl = 'redis://user:pass%40word@h:1'\n" + AGENT + "env = { A = 'env:OP', B = 'plainvalue' }\n",
    )
    settings = load(path, environ={"OP": "operator-secret-1"})
    for shown in (repr(settings), str(settings), reference.in_force(settings)):
        for secret in (KEY, "operator-secret-1", "pass%40word", "pass@word"):
            assert secret not in shown
    assert "redis://user:[secret]@h:1" in reference.in_force(settings)


def test_errors_do_not_quote_a_secret(tmp_path: Path) -> None:
    text = "[auth]\noperator_key = 'sesame door'\n[redis]\nurl = 'foo://u:sesame@h'\n"
    assert "sesame" not in "\n".join(problems(tmp_path, text))


def test_known_secrets(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        f"[auth]\noperator_key = 'env:OP'\napi_keys = [{{ label = 'a', key = '{KEY}' }}]\n"
        "[redis]\nurl = 'redis://user:pass%40word@h:1'\n"
        + AGENT
        + "env = { LONG = 'env:LONG', SHORT = 'env:SHORT', PLAIN = 'literal-value' }\n",
    )
    settings = load(path, environ={"OP": "operator-secret-1", "LONG": "12345678", "SHORT": "1234567"})
    assert dict(known_secrets(settings)) == {
        KEY: "api_key:a",
        "operator-secret-1": "operator_key",
        "pass%40word": "redis_password",
        "pass@word": "redis_password",
        "12345678": "env:support:LONG",
    }
    assert settings.agents[0].environment()["SHORT"] == "1234567"


@pytest.mark.parametrize(
    ("url", "passwords"),
    [
        ("embedded", []),
        ("redis://h:1", []),
        ("redis://:p@h", ["p"]),
        ("unix://u:p@/run/r.sock?db=1", ["p"]),
        ("redis://h?password=a%20b", ["a%20b", "a b"]),
        ("redis+sentinel://u:p@h1:1,h2:2/name", ["p"]),
        ("redis+sentinel://h1:1,u:p@h2:2/name", ["p"]),
        ("redis+cluster://u:p@h1:1,v:q@h2:2", ["p", "q"]),
    ],
)
def test_redis_passwords(url: str, passwords: list[str]) -> None:
    from gateway.config.checks import redis_passwords

    assert redis_passwords(url) == passwords


def test_agent_ids_are_the_same_on_every_node() -> None:
    # A value that is written here: a change of the namespace would lose every session of every agent.
    assert str(AGENT_NAMESPACE) == "fc35848a-256d-5194-b6aa-902f9e85dd97"
    agent = Agent(name="support", command=("x",), cwd="/x")
    assert UUID(agent.id).version == 5
    given = Agent(name="b", id="6BA7B810-9DAD-11D1-80B4-00C04FD430C8", command=("x",), cwd="/x")
    assert given.id == "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    assert Settings(agents=(agent, given)).agent(agent.id) is agent


def test_the_example_loads_and_shows_every_setting(tmp_path: Path) -> None:
    text = reference.example()
    settings = load(write(tmp_path, text), environ={"TOOLRELAY_API_KEY": KEY})
    assert settings.agents[0].name == "support"
    bare = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    assert load(write(tmp_path, bare), environ={"TOOLRELAY_API_KEY": KEY}) == settings
    for setting in reference.settings():
        if setting.section != "auth.api_keys":
            assert re.search(rf"^(# )?{setting.name} = ", text, re.MULTILINE), setting.name


def test_what_is_in_force_is_toml(tmp_path: Path) -> None:
    settings = load(write(tmp_path, reference.example()), environ={"TOOLRELAY_API_KEY": KEY})
    shown = tomllib.loads(reference.in_force(settings))
    assert shown["auth"]["api_keys"][0]["key"] == "env:TOOLRELAY_API_KEY"
    assert shown["agents"][0]["id"] == settings.agents[0].id


@pytest.mark.parametrize("content", [b"[server", b"\xff\xfe", b"x" * (4 * 1024 * 1024 + 1)])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(path, environ={})
    assert len(caught.value.problems) == 1
    assert str(path) in caught.value.problems[0]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.toml", environ={})
