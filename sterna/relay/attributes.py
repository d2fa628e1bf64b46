"""Attributes of operators: typed records from which builders, text and JSON are derived.

An operator's attributes are declared as a node whose fields all have defaults or not:

    @attributes
    class SoftmaxAttrs(Attrs):
        axis: int = -1

Values are checked and brought into their declared form when the record is made: lists become
tuples, NumPy integers become ints, one int becomes a pair where a pair is declared. An attribute
that has other spellings normalises them in `normalize`.
"""

import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any, dataclass_transform

from sterna.ir.expr import Expr, IntImm
from sterna.ir.node import Node, NodeType, node
from sterna.support.dtype import DataType


class Attrs(Node):
    """The attributes of one call."""

    __slots__ = ()

    CHECKS_FIELDS = True

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        for name in self.FIELDS:
            value = getattr(self, name)
            converted = convert(value, hints[name])
            if converted is REFUSED:
                wanted = _describe(hints[name])
                raise TypeError(f"the attribute {name} is {wanted}, not {value!r}")
            if converted is not value:
                setattr(self, name, converted)
        self.normalize()

    def normalize(self) -> None:
        """Bring other spellings into the one that the compiler works on."""

    def keys(self) -> list[str]:
        """The names of the attributes."""
        return list(self.FIELDS)

    def __getitem__(self, name: str) -> Any:
        if name not in self.FIELDS:
            raise KeyError(f"there is no attribute {name}; there are {', '.join(self.FIELDS)}")
        return getattr(self, name)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and values."""
        return ((name, getattr(self, name)) for name in self.FIELDS)

    def shown(self) -> list[tuple[str, Any]]:
        """Names and values that differ from the defaults: a record of these alone is equal to it.

        Defaults are compared as they are normalised beside what has none, 0 of a padding as
        (0, 0, 0, 0). Where that does not give the record back, because what one attribute is by
        default hangs on another that is given, everything is shown.
        """
        every = list(self.items())
        kind = type(self)
        required = _required(kind)
        told = [(name, value) for name, value in every if name in required]
        try:
            plain = kind(**dict(told))
            told = [
                (name, value) for name, value in every
                if name in required or not _is_same(value, getattr(plain, name))
            ]
            again = kind(**dict(told))
        except (TypeError, ValueError):  # what has no default does not do without the rest
            return every
        is_whole = all(_is_same(value, getattr(again, name)) for name, value in every)
        return told if is_whole else every

    def get_int(self, name: str) -> int:
        """An attribute that is a whole number."""
        return int(self[name])

    def get_int_tuple(self, name: str) -> tuple[int, ...]:
        """An attribute that is a tuple of whole numbers."""
        return tuple(map(int, self[name]))

    def get_str(self, name: str) -> str:
        """An attribute that is text."""
        return str(self[name])

    def replace(self: NodeType, **changes: Any) -> NodeType:
        """The attributes with some of them changed."""
        values = {name: getattr(self, name) for name in self.FIELDS}
        unknown = set(changes) - set(values)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no attribute {', '.join(sorted(unknown))}")
        return type(self)(**{**values, **changes})

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.items())
        return f"{type(self).__name__}({inner})"


@dataclass_transform(eq_default=False)
def attributes(cls: type[NodeType]) -> type[NodeType]:
    """Makes a class a record of attributes."""
    return node(cls)


_REQUIRED: dict[type, frozenset[str]] = {}


def _required(kind: type) -> frozenset[str]:
    """The attributes that have no default."""
    if kind not in _REQUIRED:
        _REQUIRED[kind] = frozenset(
            one.name for one in fields(kind)
            if one.init and one.default is MISSING and one.default_factory is MISSING
        )
    return _REQUIRED[kind]


def _is_same(a: Any, b: Any) -> bool:
    """Whether two attributes are one value of one type, whose text is one: 1, 1.0 and True differ.
    """
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_is_same, a, b))
    if isinstance(a, Node) or isinstance(b, Node):
        return a is b
    return type(a) is type(b) and repr(a) == repr(b)


REFUSED = object()

_HINTS: dict[type, dict[str, Any]] = {}


def _hints(kind: type) -> dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = typing.get_type_hints(kind)
    return _HINTS[kind]


def convert(value: Any, hint: Any) -> Any:
    """The value in its declared form, or REFUSED."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return tuple(value) if isinstance(value, list) else value
    if origin in (typing.Union, types.UnionType):
        return _convert_union(value, typing.get_args(hint))
    if origin is tuple:
        return _convert_tuple(value, typing.get_args(hint))
    if hint is type(None) or hint is None:
        return None if value is None else REFUSED
    if hint is bool:
        is_flag = isinstance(value, bool | int) or type(value).__name__ in ("bool_", "bool")
        return bool(value) if is_flag else REFUSED
    if hint is int:
        return _convert_int(value)
    if hint is float:
        return float(value) if _is_number(value) else REFUSED
    if hint is DataType:
        return _convert_dtype(value)
    return value if isinstance(value, hint) else REFUSED


def _convert_union(value: Any, options: tuple[Any, ...]) -> Any:
    for option in options:  # an exact fit first: 1 must not become 1.0
        if isinstance(option, type) and type(value) is option:
            return value
    for option in options:
        converted = convert(value, option)
        if converted is not REFUSED:
            return converted
    return REFUSED


def _convert_tuple(value: Any, inner: tuple[Any, ...]) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, tuple | list):
        if len(inner) == 2 and inner[1] is Ellipsis:
            return REFUSED
        value = (value,) * len(inner)
    if len(inner) == 2 and inner[1] is Ellipsis:
        items = tuple(convert(item, inner[0]) for item in value)
    elif len(value) != len(inner):
        return REFUSED
    else:
        items = tuple(convert(item, hint) for item, hint in zip(value, inner, strict=True))
    return REFUSED if any(item is REFUSED for item in items) else items


def _convert_int(value: Any) -> Any:
    if isinstance(value, bool):
        return REFUSED
    if isinstance(value, IntImm):
        return value.value
    if isinstance(value, Expr):
        return REFUSED
    return int(value.__index__()) if hasattr(value, "__index__") else REFUSED


def _is_number(value: Any) -> bool:
    return not isinstance(value, str | Expr) and hasattr(value, "__float__")


def _convert_dtype(value: Any) -> Any:
    if value == "":
        return value
    try:
        return DataType(str(value))
    except ValueError:
        return REFUSED


def _describe(hint: Any) -> str:
    text = getattr(hint, "__name__", str(hint)) if not typing.get_args(hint) else str(hint)
    return text.replace("typing.", "").replace("NoneType", "None")
