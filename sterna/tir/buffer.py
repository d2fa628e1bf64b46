"""Declaring buffers."""

from collections.abc import Sequence
from typing import Any

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.support.dtype import DataType
from sterna.tir.stmt import Buffer


def decl_buffer(
    shape: Sequence[ExprLike] | ExprLike,
    dtype: str | None = None,
    name: str = "buffer",
    data: Any = None,
    strides: Sequence[ExprLike] | None = None,
    elem_offset: ExprLike | None = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] | None = None,
) -> Buffer:
    """A rectangle of elements, without gaps unless strides (in elements) are given.

    A buffer begins at its own address: it takes neither another's (data) nor an offset from it.
    """
    if data is not None or not (elem_offset is None or build.is_const(elem_offset, 0)):
        raise ValueError(f"the buffer {name} begins at its own address: leave data and elem_offset")
    if buffer_type:
        raise ValueError(f"the buffer {name}: buffer_type is not supported")
    extents = _integers(shape, name)
    steps = _integers(strides or (), name)
    if steps and len(steps) != len(extents):
        raise ValueError(f"the buffer {name} has {len(extents)} dimensions, {len(steps)} strides")
    alignment = data_alignment if data_alignment > 0 else 0
    separators = tuple(axis_separators or ())
    if separators and (steps or list(separators) != sorted(set(separators))):
        raise ValueError(f"the buffer {name}: axis_separators rise, and leave no place for strides")
    if any(not 0 <= place <= len(extents) for place in separators):
        raise ValueError(f"the buffer {name} has no dimensions before {list(separators)}")
    kind = DataType(dtype or "float32")
    return Buffer(name, kind, extents, scope or "global", steps, alignment, separators)


def _integers(given: Sequence[ExprLike] | ExprLike, name: str) -> tuple[Expr, ...]:
    listed = given if isinstance(given, tuple | list) else [given]
    exprs = tuple(build.as_expr(item) for item in listed)
    for expr in exprs:
        if not expr.dtype.is_integer:
            raise TypeError(f"the shape of the buffer {name} is made of integers, not {expr.dtype}")
    return exprs
