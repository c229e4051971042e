"""Where values come from: flags > ``TOOLRELAY_*`` environment > TOML > default. Owns reading and naming mistakes.

Every mistake is found in one pass and named by its path (``limits.max_children``) or variable. Messages never hold a
secret's value. An unknown setting or variable is a mistake, with the nearest known name.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

import msgspec

from gateway.config.secret import Secret
from gateway.config.settings import Agent, ApiKey, Auth, Limits, Redis, Server, Settings, Table

VARIABLE_PREFIX = "TOOLRELAY_"
SECTIONS: dict[str, type[Table]] = {"server": Server, "redis": Redis, "auth": Auth, "limits": Limits}
ITEMS: dict[str, type[Table]] = {"agents": Agent, "auth.api_keys": ApiKey}
"""Arrays of tables, which the TOML alone can give."""

OTHER_VARIABLES = ("TOOLRELAY_CONFIG", "TOOLRELAY_URL", "TOOLRELAY_API_KEY", "TOOLRELAY_OPERATOR_KEY")
"""Variables that are no setting: the path of the TOML, and what the commands that speak HTTP use."""

CONFIG_BYTES = 4 * 1024 * 1024

# What Kubernetes and container links set for a service that is called toolrelay: not ours, and no mistake.
SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$")


class ConfigError(Exception):
    """The configuration is not valid. ``problems`` are lines for people: a path or a variable, and what is wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def variables() -> dict[str, str]:
    """Every variable that gives a setting, and the path of that setting."""
    return {
        f"{VARIABLE_PREFIX}{section}_{field.name}".upper(): f"{section}.{field.name}"
        for section, table in SECTIONS.items()
        for field in msgspec.structs.fields(table)
        if f"{section}.{field.name}" not in ITEMS
    }


def load(
    path: Path | None, *, flags: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Settings from a TOML file (or none), the environment and flags.

    ``flags`` are values by path (``{"server.port": 8081}``); ``None`` stands for a flag that was not given. Raises
    ``ConfigError``.
    """
    return _Loader(os.environ if environ is None else environ, path).load(flags or {})


class _Loader:
    """One pass: collects every problem instead of stopping at the first."""

    def __init__(self, environ: Mapping[str, str], path: Path | None) -> None:
        self._environ = environ
        self._path = path
        self._base = path.parent if path else Path.cwd()
        self._problems: list[str] = []

    def load(self, flags: Mapping[str, object]) -> Settings:
        document = self._read()
        self._unknown(document, [*SECTIONS, "agents"], "")
        values: dict[str, Any] = {}
        for section, table in SECTIONS.items():
            given = self._table(document.get(section, {}), section)
            values[section] = self._build(table, given, section, self._overrides(section, flags))
        agents = document.get("agents", [])
        values["agents"] = self._items(Agent, agents, "agents")
        self._unknown_variables(document)
        if self._problems:
            raise ConfigError(self._problems)
        try:
            return Settings(**values)
        except ValueError as error:
            raise ConfigError([str(error)]) from None

    def _read(self) -> dict[str, Any]:
        if self._path is None:
            return {}
        try:
            with self._path.open("rb") as file:
                data = file.read(CONFIG_BYTES + 1)
            if len(data) > CONFIG_BYTES:
                raise ConfigError([f"{self._path}: larger than {CONFIG_BYTES} bytes"])
            return tomllib.loads(data.decode("utf-8"))
        except OSError as error:
            raise ConfigError([f"{self._path}: {error.strerror or type(error).__name__}"]) from None
        except UnicodeDecodeError:
            raise ConfigError([f"{self._path}: not UTF-8 text"]) from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError([f"{self._path}: not valid TOML: {error}"]) from None

    def _overrides(self, section: str, flags: Mapping[str, object]) -> dict[str, tuple[object, str]]:
        """Values of one table that stand above the TOML, each with the name of where it came from."""
        found: dict[str, tuple[object, str]] = {}
        for variable, path in variables().items():
            table, _, name = path.partition(".")
            if table != section:
                continue
            if variable in self._environ:
                found[name] = (self._environ[variable], variable)
            flag = flags.get(path)
            if flag is not None:
                found[name] = (flag, f"--{name.replace('_', '-')}" if section != "redis" else f"--redis-{name}")
        return found

    def _table(self, value: object, where: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        self._problems.append(f"{where}: must be a table")
        return {}

    def _build(
        self, table: type[Table], given: dict[str, Any], where: str, overrides: dict[str, tuple[object, str]]
    ) -> Table | None:
        fields = msgspec.structs.fields(table)
        types = get_type_hints(table, include_extras=True)
        self._unknown(given, [field.name for field in fields], where)
        count = len(self._problems)
        values: dict[str, Any] = {}
        for field in fields:
            name, path = field.name, f"{where}.{field.name}"
            if name in overrides:
                value, source = overrides[name]
                self._convert(values, name, _split(value, types[name]), types[name], source, strict=False)
            elif path in ITEMS and name in given:
                values[name] = self._items(ITEMS[path], given[name], path)
            elif name in given:
                self._convert(values, name, given[name], types[name], path, strict=True)
            elif field.required:
                self._problems.append(f"{path}: is missing")
        if len(self._problems) > count:
            return None
        try:
            return table(**values)
        except ValueError as error:
            self._problems.append(_located(where, [field.name for field in fields], str(error)))
            return None

    def _items(self, table: type[Table], value: object, where: str) -> tuple[Table, ...]:
        if not isinstance(value, list):
            self._problems.append(f"{where}: must be an array of tables")
            return ()
        items = [
            self._build(table, self._table(item, f"{where}[{index}]"), f"{where}[{index}]", {})
            for index, item in enumerate(cast("list[object]", value))
        ]
        return tuple(item for item in items if item is not None)

    def _convert(
        self, values: dict[str, Any], name: str, value: object, kind: Any, where: str, *, strict: bool
    ) -> None:
        try:
            values[name] = msgspec.convert(value, kind, strict=strict, dec_hook=self._secret)
        except msgspec.ValidationError as error:
            text, _, inner = str(error).partition(" - at `$")
            self._problems.append(f"{where}{inner.rstrip('`')}: {text[:1].lower()}{text[1:]}")

    def _secret(self, kind: type, value: object) -> Any:
        if kind is not Secret:
            raise NotImplementedError  # how a msgspec hook says that a type is not its own
        if isinstance(value, Secret):
            return value
        if not isinstance(value, str):
            raise ValueError("Expected `str`")  # noqa: TRY004  # msgspec turns a ValueError into its own, with the path
        return Secret.resolve(value, environ=self._environ, base=self._base)

    def _unknown(self, given: Mapping[str, object], known: list[str], where: str) -> None:
        for name in given:
            if name not in known:
                path = f"{where}.{name}" if where else name
                self._problems.append(f"{path}: unknown setting{_nearest(name, known)}")

    def _unknown_variables(self, document: dict[str, Any]) -> None:
        known = [*variables(), *OTHER_VARIABLES]
        named = set(_referenced(document))
        for name, value in self._environ.items():
            if not name.startswith(VARIABLE_PREFIX) or name in known or name in named:
                continue
            if SERVICE_LINK.search(name) or (name.endswith("_PORT") and "://" in value):
                continue
            self._problems.append(f"{name}: unknown variable{_nearest(name, known)}")


def _referenced(value: object) -> Iterator[str]:
    """Names of variables that ``env:NAME`` texts of the document refer to."""
    if isinstance(value, str):
        if value.startswith("env:"):
            yield value[4:]
    elif isinstance(value, dict):
        for item in cast("dict[str, object]", value).values():
            yield from _referenced(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _referenced(item)


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"


def _split(value: object, kind: Any) -> object:
    """A text for a list is its items, with commas between them."""
    plain = get_args(kind)[0] if hasattr(kind, "__metadata__") else kind
    if isinstance(value, str) and get_origin(plain) is tuple:
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _located(where: str, names: list[str], text: str) -> str:
    """``server`` and ``public_url: no user`` -> ``server.public_url: no user``."""
    name, colon, rest = text.partition(": ")
    return f"{where}.{name}: {rest}" if colon and name in names else f"{where}: {text}"
