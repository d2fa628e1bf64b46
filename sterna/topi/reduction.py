"""Reductions over axes: one stage whose reduce axes schedules may split and bind."""

from collections.abc import Callable, Sequence
from typing import Any

from sterna import te
from sterna.te import Tensor
from sterna.tir import op as functions
from sterna.topi.operators import one_tensor
from sterna.topi.stage import stage
from sterna.topi.tag import COMM_REDUCE

Axis = int | Sequence[int] | None


def _axes(data: Tensor, axis: Axis) -> list[int]:
    rank = len(data.shape)
    given = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
    found = []
    for one in given:
        if not -rank <= one < rank:
            raise ValueError(f"axis {one} is none of a tensor of {rank} dimensions, {data}")
        found.append(one % rank)
    if len(set(found)) < len(found):
        raise ValueError(f"the axes {tuple(given)} name one of them twice")
    return sorted(found)


def _reduce(
    data: Tensor, axis: Axis, keepdims: bool, reducer: Callable[..., Any], name: str
) -> Tensor:
    axes = _axes(data, axis)
    inner = [te.reduce_axis((0, data.shape[i]), f"k{n}") for n, i in enumerate(axes)]
    kept = [i for i in range(len(data.shape)) if i not in axes]
    shape = [1 if i in axes else extent for i, extent in enumerate(data.shape)]
    if not keepdims:
        shape = [data.shape[i] for i in kept]

    def element(*indices: Any) -> Any:
        outer = [indices[i] for i in kept] if keepdims else list(indices)
        at: list[Any] = [None] * len(data.shape)
        for i, index in zip(kept, outer, strict=True):
            at[i] = index
        for i, index in zip(axes, inner, strict=True):
            at[i] = index
        return reducer(data(*at), axis=inner)

    return stage(tuple(shape), element, name=name, tag=COMM_REDUCE)


def sum(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The sum over axes; all of them without any."""
    return _reduce(data, axis, keepdims, te.sum, f"{data.op.name}_red")


def prod(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The product over axes."""
    return _reduce(data, axis, keepdims, te.prod, f"{data.op.name}_red")


def max(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest over axes."""
    return _reduce(data, axis, keepdims, te.max, f"{data.op.name}_red")


def min(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest over axes."""
    return _reduce(data, axis, keepdims, te.min, f"{data.op.name}_red")


def _logical(all_of: bool) -> Callable[..., Any]:
    combine = functions.all if all_of else functions.any
    return te.comm_reducer(
        lambda x, y: combine(x, y), lambda kind: te.const(int(all_of), kind),
        name="all" if all_of else "any",
    )


def all(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether all are true."""
    return _reduce(data, axis, keepdims, _logical(True), f"{data.op.name}_red")


def any(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether one is true."""
    return _reduce(data, axis, keepdims, _logical(False), f"{data.op.name}_red")


def argmax(
    data: Tensor, axis: Axis = None, keepdims: bool = False, select_last_index: bool = False
) -> Tensor:
    """Where the largest lies."""
    return one_tensor("argmax", data, axis, keepdims, select_last_index=select_last_index)


def argmin(
    data: Tensor, axis: Axis = None, keepdims: bool = False, select_last_index: bool = False
) -> Tensor:
    """Where the smallest lies."""
    return one_tensor("argmin", data, axis, keepdims, select_last_index=select_last_index)
