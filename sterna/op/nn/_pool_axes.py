"""Separable windows: the largest of a window as the largest of the largest along each axis.

    nn.max_pool2d(%x, pool_size=[5, 5])  ->
        nn.max_pool2d(nn.max_pool2d(%x, pool_size=[5, 1]), pool_size=[1, 5])

So is an average that of averages, as what a window counts is a product of what it counts along each
axis, whether the border counts or not.
"""

import math
from collections.abc import Sequence
from typing import Any

from sterna.ir.types import Dim
from sterna.relay.expr import RelayExpr
from sterna.relay.op import Args, call

# How much less must be compared axis by axis, where what lies between is stored and read again.
MUCH_LESS = 2


def axis_by_axis(
    name: str, attrs: Any, args: Args, extents: Sequence[Dim], counts: Sequence[Dim]
) -> RelayExpr | None:
    """A large window that moves by few elements as one of each axis: the largest of the largest.

    Windows that overlap along an axis share what the others have found along it.
    extents, counts: of the data and of the windows along each axis.
    """
    rank, sizes = len(attrs.pool_size), attrs.pool_size
    moved = attrs.out_layout not in ("", attrs.layout)
    if rank == 1 or moved or MUCH_LESS * _by_axis(attrs, extents, counts) > math.prod(sizes):
        return None
    result = args[0]
    for axis in range(rank):
        own = {
            "pool_size": _only(axis, sizes, 1), "strides": _only(axis, attrs.strides, 1),
            "padding": (*_only(axis, attrs.before, 0), *_only(axis, attrs.after, 0)),
        }
        result = call(name, result, **{**dict(attrs.items()), **own})
    return result


def _by_axis(attrs: Any, extents: Sequence[Dim], counts: Sequence[Dim]) -> float:
    """How many elements are read for each window, axis by axis."""
    total = 0.0
    for axis, size in enumerate(attrs.pool_size):
        rest = list(zip(extents, counts, attrs.strides, strict=True))[axis + 1 :]
        # what lies between has all elements along the axes that come later
        total += size * math.prod(
            extent / max(1, count) if isinstance(extent, int) and isinstance(count, int) else stride
            for extent, count, stride in rest
        )
    return total


def _only(axis: int, values: Sequence[int], other: int) -> tuple[int, ...]:
    """One of some values, and another one in the place of the rest."""
    return tuple(value if at == axis else other for at, value in enumerate(values))
