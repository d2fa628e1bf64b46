"""Fields of JSON objects that a stranger wrote."""

from typing import Any, TypeVar

T = TypeVar("T")


def field(owner: Any, name: str, kind: type[T]) -> T:
    """A field of an object, of the type that it must have."""
    if not isinstance(owner, dict):
        raise ValueError(f"{type(owner).__name__} where an object with '{name}' was expected")
    value = owner.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"the field '{name}' is {type(value).__name__}, not {kind.__name__}")
    return value


def one_of(union: Any) -> tuple[str, Any]:
    """The one field of an object that stands for a choice of several."""
    if not isinstance(union, dict) or len(union) != 1:
        raise ValueError(f"{str(union)[:80]!r} is no choice of one field")
    name, value = next(iter(union.items()))
    return str(name), value


def name_of(owner: Any) -> str:
    """The name of a value."""
    return field(owner, "name", str)


def whole_number(value: Any) -> int:
    """A number of 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{str(value)[:80]!r} is no whole number")
    return value
