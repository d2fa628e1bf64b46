"""Results that are stored in another order of axes, and in another type, than they are made in."""

from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Cast, Expr
from sterna.te import ComputeOp, Tensor
from sterna.te.tensor import ProducerLoad


@dataclass(frozen=True, slots=True)
class MovedResult:
    """A tensor that holds the elements of another one."""

    result: Tensor
    source: Tensor
    axes: tuple[int, ...]
    """Which axis of the source each of the result's is."""


def moved_result(result: Tensor) -> MovedResult:
    """What a result is moved from; itself where that is all that there is."""
    source, axes = result, tuple(range(len(result.shape)))
    while isinstance(source.op, ComputeOp) and source.op.num_outputs == 1:
        op, body = source.op, source.op.body[0]
        load = body.value if isinstance(body, Cast) else body
        if not isinstance(load, ProducerLoad) or len(load.indices) != len(axes):
            break
        places: dict[Expr, int] = {axis.var: place for place, axis in enumerate(op.axis)}
        moved = [
            n if build.is_const(index, 0) and build.is_const(extent, 1) else places.get(index)
            for n, (index, extent) in enumerate(zip(load.indices, load.tensor.shape, strict=True))
        ]
        if sorted(place if place is not None else -1 for place in moved) != sorted(axes):
            break
        # Axis n of what is read is axis moved[n] of this one.
        inverse = {place: n for n, place in enumerate(moved)}
        axes = tuple(inverse[axis] for axis in axes)
        source = load.tensor
    return MovedResult(result, source, axes)
