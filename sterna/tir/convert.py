"""Python's values as the compiler's own: tvm.convert of the classic API."""

from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from sterna.ir.build import const
from sterna.runtime import PackedFunc


def convert(value: Any) -> Any:
    """A number as a constant, a function as a packed one, lists and tables of such part by part.

    Strings, arrays, expressions and whatever else the compiler takes as it is stay themselves.
    """
    if isinstance(value, bool | int | float):
        return const(value)
    if isinstance(value, list | tuple):
        return tuple(convert(part) for part in value)
    if isinstance(value, Mapping):
        return {key: convert(part) for key, part in value.items()}
    if isinstance(value, FunctionType | BuiltinFunctionType | MethodType):
        return PackedFunc(value)
    return value
