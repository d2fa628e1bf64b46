"""Settings of passes: every key of PassContext's config, with its type, default and meaning.

A folder registers its keys in a file config.py, which is found by its name when a key is looked up.
"""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from sterna.support.discovery import load_everywhere

# What list_configs calls a type, for programs that know the classic names.
_CLASSIC_NAMES: dict[type, str] = {
    bool: "IntImm",
    int: "IntImm",
    float: "FloatImm",
    str: "runtime.String",
    list: "Array",
    dict: "Map",
}


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """What is known about a key."""

    name: str
    type: type
    default: Any
    help: str


_KEYS: dict[str, ConfigKey] = {}


def register_config(key: str, type: type, default: Any, help: str) -> None:
    """Make a key known. A dataclass as its type takes a dict of some of its fields as well."""
    known = _KEYS.get(key)
    made = ConfigKey(key, type, _checked(key, type, default), help)
    if known is not None and known != made:
        raise ValueError(f"the config option '{key}' is registered already, with another meaning")
    _KEYS[key] = made


def find_key(key: str) -> ConfigKey:
    """What is known about a key; unknown ones are refused."""
    folder = key.partition(".")[0]
    if key not in _KEYS and folder.isidentifier():
        load_everywhere("config", folder=folder)  # others would load all that tunes
    if key not in _KEYS:
        load_everywhere("config")
    if key not in _KEYS:
        raise AttributeError(
            f"there is no config option '{key}'{_near(key, _KEYS)}; "
            "PassContext.list_configs() has them all"
        )
    return _KEYS[key]


def check_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config whose keys are known and whose values have the keys' types."""
    return {key: _checked(key, find_key(key).type, value) for key, value in config.items()}


def list_configs() -> dict[str, dict[str, Any]]:
    """Every key with its type, default and help."""
    load_everywhere("config")
    return {
        name: {"type": _classic_name(key.type), "default": key.default, "help": key.help}
        for name, key in sorted(_KEYS.items())
    }


def _classic_name(kind: type) -> str:
    return _CLASSIC_NAMES.get(kind, kind.__name__)


def _near(name: str, names: Any) -> str:
    """The names that a misspelt one may mean, as the middle of a sentence."""
    by_lower_case = {known.lower(): known for known in names}
    found = difflib.get_close_matches(name.lower(), by_lower_case, n=5)
    return f"; near it are: {', '.join(by_lower_case[one] for one in found)}" if found else ""


def _checked(key: str, kind: type, value: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        return _record(key, kind, value)
    if kind is bool and isinstance(value, int) and value in (0, 1):
        return bool(value)
    if kind is list and isinstance(value, tuple):
        return list(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise _wrong_type(key, kind, value)
    return value


def _record(key: str, kind: type, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise _wrong_type(key, kind, value)
    fields = get_type_hints(kind)
    unknown = next((name for name in value if name not in fields), None)
    if unknown is not None:
        raise AttributeError(
            f"the config option '{key}' has no field '{unknown}'; it has {', '.join(fields)}"
        )
    return kind(**{name: _checked(f"{key}.{name}", fields[name], v) for name, v in value.items()})


def _wrong_type(key: str, kind: type, value: Any) -> TypeError:
    wanted = f"dict or {kind.__name__}" if dataclasses.is_dataclass(kind) else kind.__name__
    return TypeError(
        f"the config option '{key}' must be of type {wanted}, not {type(value).__name__} "
        f"(given: {value!r})"
    )
