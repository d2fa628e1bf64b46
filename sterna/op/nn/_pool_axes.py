"""Separable windows: the largest of a window as the largest of the largest along each axis.

    nn.max_pool2d(%x, pool_size=[5, 5])  ->
        nn.max_pool2d(nn.max_pool2d(%x, pool_size=[5, 1]), pool_size=[1, 5])
"""

import math
from collections.abc import Sequence
from typing import Any

from sterna.relay.expr import RelayExpr
from sterna.relay.op import Args, call

# How much less must be compared axis by axis, where what lies between is stored and read again.
MUCH_LESS = 2


def axis_by_axis(attrs: Any, args: Args, target: Any) -> RelayExpr | None:
    """A large window that moves by few elements as one of each axis: the largest of the largest.

    Windows that overlap along an axis share what the others have found along it. Source code for
    small machines stays one loop, without a result in between.
    """
    if target is None or not target.kind.picks_instructions:
        return None
    rank, sizes, steps = len(attrs.pool_size), attrs.pool_size, attrs.strides
    by_axis = sum(sizes[axis] * math.prod(steps[axis + 1 :]) for axis in range(rank))
    moved = attrs.out_layout not in ("", attrs.layout)
    if rank == 1 or moved or MUCH_LESS * by_axis > math.prod(sizes):
        return None
    result = args[0]
    for axis in range(rank):
        own = {
            "pool_size": _only(axis, sizes, 1), "strides": _only(axis, steps, 1),
            "padding": (*_only(axis, attrs.before, 0), *_only(axis, attrs.after, 0)),
        }
        result = call(f"nn.max_pool{rank}d", result, **{**dict(attrs.items()), **own})
    return result


def _only(axis: int, values: Sequence[int], other: int) -> tuple[int, ...]:
    """One of some values, and another one in the place of the rest."""
    return tuple(value if at == axis else other for at, value in enumerate(values))
