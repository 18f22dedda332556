"""Settings of a server process: file, then environment, then flags; the later wins. Checked before anything starts.

The settings are the fields of a frozen dataclass (`NodeConfig`, `RepositoryConfig`), plus `data`, the folders,
which the process itself opens. In a TOML file they stand in a table of the process's name:

    [node]
    repositories = ["127.0.0.1:7700"]
    data = ["/var/lib/varlog"]
    listen = "127.0.0.1:7711"

and in the environment as VARLOG_NODE_LISTEN and so on, lists with commas.
"""

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from varlog.base.errors import InvalidArgument

Config = TypeVar("Config")


def load(
    kind: type[Config],
    name: str,
    flags: Mapping[str, Any],
    *,
    file: str | None = None,
    environment: Mapping[str, str] = os.environ,
    needs_data: bool = True,
) -> tuple[Config, tuple[str, ...]]:
    """The settings, and the data folders. Flags that are None were not given."""
    types: dict[str, Any] = {**field_types(kind), "data": tuple[str, ...]}
    values: dict[str, Any] = {}
    if file is not None:
        values |= from_file(file, name, types)
    values |= from_environment(environment, f"VARLOG_{name.upper()}_", types)
    values |= {key: value for key, value in flags.items() if value is not None}
    data = values.pop("data", ())
    if not data and needs_data:
        raise InvalidArgument(f"a {name} needs a folder for its data: --data DIR")
    missing = [key for key in required(kind) if key not in values]
    if missing:
        raise InvalidArgument(f"a {name} needs a setting for: {', '.join(missing)}")
    return kind(**values), data


def field_types(kind: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def required(kind: type[Any]) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]


def from_file(path: str, name: str, types: Mapping[str, Any]) -> dict[str, Any]:
    """The table `name` of a TOML file; a key that is no setting is an error, not a silent wish."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(f"the settings file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the settings file {path} is not TOML: {error}") from error
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise InvalidArgument(f"{name} in {path} is not a table; write [{name}]")
    unknown = sorted(set(table) - set(types))
    if unknown:
        raise InvalidArgument(f"unknown setting {unknown[0]!r} in {path}; there are: {', '.join(sorted(types))}")
    return {key: from_toml(value, types[key], f"{key} in {path}") for key, value in table.items()}


def from_toml(value: object, wanted: Any, where: str) -> Any:
    if get_origin(wanted) is tuple:
        if isinstance(value, str):
            value = [value]
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
    elif type(value) is wanted:
        return value
    elif wanted is float and type(value) is int:
        return float(value)
    raise InvalidArgument(f"{where}: {value!r} is not {describe(wanted)}")


def from_environment(environment: Mapping[str, str], prefix: str, types: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for key, wanted in types.items():
        variable = prefix + key.upper()
        if variable in environment:
            found[key] = from_text(environment[variable], wanted, variable)
    return found


def from_text(text: str, wanted: Any, where: str) -> Any:
    if get_origin(wanted) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if wanted is bool:
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off", ""):
            return False
    elif wanted in (int, float, str):
        try:
            return wanted(text)
        except ValueError:
            pass  # said below, with its name
    raise InvalidArgument(f"{where}: {text!r} is not {describe(wanted)}")


def describe(wanted: Any) -> str:
    if get_origin(wanted) is tuple:
        return f"a list of {'texts' if get_args(wanted)[0] is str else 'values'}"
    return {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}.get(wanted, str(wanted))
