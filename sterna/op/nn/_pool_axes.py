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
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import Args, call, record_of

# How much less must be done axis by axis, by the kind of the windows: averages are divided by their
# counts once more.
MUCH_LESS = {"max": 1.25, "avg": 1.5}
# What a vector of elements costs that lie apart, by that of neighbours: two of each are loaded, and
# put in order.
APART = 3
# What lies between is stored and read again.
STORED_AND_READ = 2
# How many calls before one are looked at for a contraction.
CALLS_BEFORE = 32


def axis_by_axis(
    kind: str, attrs: Any, args: Args, extents: Sequence[Dim], counts: Sequence[Dim]
) -> RelayExpr | None:
    """A large window that moves by few elements as one of each axis: the largest of the largest.

    Windows that overlap along an axis share what the others have found along it.
    extents, counts: of the data and of the windows along each axis.
    """
    rank, sizes = len(attrs.pool_size), attrs.pool_size
    moved = attrs.out_layout not in ("", attrs.layout)
    read = _read(attrs, args[0])
    by_axis = MUCH_LESS[kind] * _by_axis(attrs, extents, counts, read)
    if rank == 1 or moved or by_axis > math.prod(sizes) * read:
        return None
    result = args[0]
    for axis in range(rank):
        own = {
            "pool_size": _only(axis, sizes, 1), "strides": _only(axis, attrs.strides, 1),
            "padding": (*_only(axis, attrs.before, 0), *_only(axis, attrs.after, 0)),
        }
        result = call(f"nn.{kind}_pool{rank}d", result, **{**dict(attrs.items()), **own})
    return result


def _read(attrs: Any, data: RelayExpr) -> int:
    """What a vector of windows costs for each element of them, by the step of the last axis.

    Where a contraction is before them, vectors will lie along its channels.
    """
    apart = attrs.strides[-1] > 1 and attrs.layout.endswith("W") and not _is_contracted(data)
    return APART if apart else 1


def _is_contracted(data: RelayExpr) -> bool:
    """Whether what is computed here comes from a contraction that chooses its layout."""
    waiting = [data]
    for _ in range(CALLS_BEFORE):
        if not waiting:
            return False
        expr = waiting.pop()
        record = record_of(expr)
        if record is not None and record.contraction.alter_layout is not None:
            return True
        waiting.extend(expr.args if isinstance(expr, Call) else getattr(expr, "fields", ()))
    return False


def _by_axis(attrs: Any, extents: Sequence[Dim], counts: Sequence[Dim], read: int) -> float:
    """How much is read for each window, axis by axis, with what is stored between."""
    total = 0.0
    for axis, size in enumerate(attrs.pool_size):
        rest = list(zip(extents, counts, attrs.strides, strict=True))[axis + 1 :]
        # what lies between has all elements along the axes that come later
        each = math.prod(
            extent / max(1, count) if isinstance(extent, int) and isinstance(count, int) else stride
            for extent, count, stride in rest
        )
        total += size * each + STORED_AND_READ * each if rest else size * read
    return total


def _only(axis: int, values: Sequence[int], other: int) -> tuple[int, ...]:
    """One of some values, and another one in the place of the rest."""
    return tuple(value if at == axis else other for at, value in enumerate(values))
