"""Containers of the classic API, which are Python's own: shapes, texts, tuples."""

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

from sterna.runtime.vm import ADT

__all__ = ["ADT", "ShapeTuple", "String", "tuple_object"]

String = str


class ShapeTuple(tuple[int, ...]):
    """A tuple of extents."""

    __slots__ = ()

    def __new__(cls, shape: Iterable[Any]) -> "ShapeTuple":
        return super().__new__(cls, [index(extent) for extent in shape])


def tuple_object(fields: Sequence[Any]) -> tuple[Any, ...]:
    """Values as the virtual machine takes them for a tuple."""
    return tuple(fields)
