"""Rows of elements that are reduced together and then used each with the result, as in softmax."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sterna.ir.build import as_expr
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, as_dim
from sterna.op.checks import axis_of
from sterna.te import IterVar, Tensor, compute, reduce_axis
from sterna.te import sum as te_sum


def axes_of(axis: int | Sequence[int] | None, ndim: int) -> list[int]:
    """Axes counted from the front, in order; None for all of them."""
    if axis is None:
        return list(range(ndim))
    given = [axis] if isinstance(axis, int) else list(axis)
    found = sorted(axis_of(one, ndim) for one in given)
    if len(set(found)) != len(found):
        raise ValueError(f"axis {axis} names a dimension twice")
    return found


# element(indices): what is reduced, a value or several; reduction(it, axes): how.
Value = TypeVar("Value", Expr, tuple[Expr, ...])
Element = Callable[[Sequence[Expr]], Value]
Reduction = Callable[[Value, list[IterVar]], Value]


class Rows:
    """A tensor cut into rows: whole axes, and groups of neighbours along others."""

    def __init__(
        self, data: Tensor, axes: Sequence[int], groups: Mapping[int, int] | None = None
    ) -> None:
        self.data = data
        self.axes = list(axes)
        self.lengths: dict[int, Dim] = {axis: as_dim(data.shape[axis]) for axis in axes}
        self.groups = dict(groups or {})
        for axis, count in self.groups.items():
            self.lengths[axis] = as_dim(data.shape[axis]) // count

    @property
    def shape(self) -> list[Any]:
        """The extents of a tensor with one element for each row."""
        kept = [(i, extent) for i, extent in enumerate(self.data.shape) if i not in self.axes]
        return [self.groups.get(i, extent) for i, extent in kept]

    @property
    def count(self) -> Dim:
        """How many elements a row has."""
        total: Dim = 1
        for length in self.lengths.values():
            total = total * length
        return total

    def row(self, indices: Sequence[Expr]) -> list[Expr]:
        """The row of an element."""
        kept = [(i, index) for i, index in enumerate(indices) if i not in self.axes]
        return [index // self.lengths[i] if i in self.groups else index for i, index in kept]

    def reduced(
        self, reduction: Reduction[Value], element: Element[Value], name: str
    ) -> Any:
        """A reduction of element(indices) over each row."""
        order = sorted(self.lengths)
        steps = {i: reduce_axis((0, self.lengths[i]), f"k{i}") for i in order}

        def total(*row: Expr) -> Any:
            places = iter(row)
            indices: list[Any] = []
            for i in range(self.data.ndim):
                if i in self.axes:
                    indices.append(steps[i].var)
                elif i in self.groups:
                    indices.append(next(places) * self.lengths[i] + steps[i].var)
                else:
                    indices.append(next(places))
            return reduction(element(indices), [steps[i] for i in order])

        return compute(self.shape, total, name=name)

    def mean(self, element: Element[Expr], name: str) -> Tensor:
        """The mean of element(indices) over each row."""
        total = self.reduced(te_sum, element, f"{name}_sum")
        count = as_expr(self.count).astype(total.dtype)
        made: Tensor = compute(total.shape, lambda *i: total(*i) / count, name=name)
        return made
