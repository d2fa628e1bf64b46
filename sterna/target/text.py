"""The text form of a target: a kind, then -name=value, -name value or -flag."""

import json
import re
import shlex
from collections.abc import Mapping

from sterna.target.kind import Option, TargetKind, Value
from sterna.target.wording import unknown

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_WHOLE = re.compile(r"[+-]?\d+|0x[0-9a-fA-F]+")


def split_words(text: str) -> list[str]:
    """The words of a target's text; quotes hold one together."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"the target {text!r} cannot be read: {error}") from None


def read_options(words: list[str], kind: TargetKind, text: str) -> dict[str, object]:
    """The options that follow the kind, not yet converted."""
    found: dict[str, object] = {}
    left = list(reversed(words))
    while left:
        word = left.pop()
        name, equals, value = word.partition("=")
        if not name.startswith("-") or not name.strip("-"):
            raise ValueError(
                f"'{word}' in the target '{text}' is no option; options are written -name=value"
            )
        option = find_option(name.removeprefix("-").removeprefix("-"), kind, text)
        if option.name in found:
            raise ValueError(f"the option '{option.name}' stands twice in the target '{text}'")
        if equals:
            found[option.name] = value
        elif option.type == "bool":
            follows = bool(left) and left[-1].lower() in _TRUE | _FALSE
            found[option.name] = left.pop() if follows else True
        elif not left or _is_option(left[-1], kind):
            raise ValueError(
                f"the option '{option.name}' in the target '{text}' needs a value: "
                f"-{option.name}=..."
            )
        else:
            found[option.name] = left.pop()
    return found


def _is_option(word: str, kind: TargetKind) -> bool:
    name = word.partition("=")[0]
    return name.startswith("-") and kind.option(name.lstrip("-")) is not None


def find_option(name: str, kind: TargetKind, text: str) -> Option:
    """A kind's option by its name."""
    option = kind.option(name)
    if option is None:
        raise unknown(
            name, kind.option_names,
            f"It stands as an option of target kind '{kind.name}' in '{text}'",
        )
    return option


def convert(option: Option, value: object, text: str) -> Value:
    """A given value in the option's type; options of type targets are converted elsewhere."""
    result = _CONVERT[option.type](value)
    if result is None:
        raise ValueError(
            f"the option '{option.name}' of the target '{text}' takes {_MEANING[option.type]}, "
            f"not {value!r}"
        )
    if option.choices and result not in option.choices:
        raise unknown(
            str(result), option.choices, f"It is the value of '{option.name}' in '{text}'"
        )
    return result


def _to_int(value: object) -> int | None:
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value, 0) if value.lower().startswith("0x") else int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _to_bool(value: object) -> bool | None:
    if isinstance(value, str):
        word = value.lower()
        return True if word in _TRUE else False if word in _FALSE else None
    return bool(value) if isinstance(value, int) and value in (0, 1) else None


def _to_text(value: object) -> str | None:
    # One spelling per value: what the text form cannot tell apart is not kept apart.
    return value.strip() if isinstance(value, str) else None


def _to_list(value: object) -> tuple[str, ...] | None:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        return None
    return tuple(stripped for part in parts if (stripped := part.strip()))


_CONVERT = {"int": _to_int, "bool": _to_bool, "str": _to_text, "list": _to_list}
_MEANING = {"int": "a whole number", "bool": "1 or 0", "str": "text", "list": "a list of texts"}


def write(kind: str, fields: Mapping[str, Value], exported: Mapping[str, object]) -> str:
    """The text of a target; as JSON where a list's element has a comma in it."""
    if any(isinstance(v, tuple) and any("," in part for part in v) for v in fields.values()):
        return json.dumps(exported)
    return " ".join([kind, *(f"-{name}={_quote(value)}" for name, value in fields.items())])


def _quote(value: Value) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return shlex.quote(",".join(value) if isinstance(value, tuple) else str(value))
