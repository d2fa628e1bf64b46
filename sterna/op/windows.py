"""What operators with windows share: strides, padding, extents of results, padded stages."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

import numpy as np

from sterna.arith import Analyzer
from sterna.ir.build import as_expr
from sterna.ir.expr import Expr, ExprLike
from sterna.ir.types import Dim
from sterna.op.checks import map_dims
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs
from sterna.relay.layout import Layout, expect_axes, layout_of
from sterna.te import Tensor, compute, if_then_else
from sterna.te import all as all_of

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}

Padding = tuple[int, ...] | int


def full_padding(padding: Padding, rank: int) -> tuple[int, ...]:
    """Padding before every spatial axis, then after every one.

    Also written as one number for all, or as one per axis for both its ends.
    """
    given = (padding,) if isinstance(padding, int) else tuple(padding)
    if any(extent < 0 for extent in given):
        raise ValueError(f"padding is not negative: {given}")
    if len(given) == 1:
        return given * (2 * rank)
    if len(given) == 2 * rank:
        return given
    if len(given) == rank:
        return given * 2
    raise ValueError(f"padding is 1, {rank} or {2 * rank} numbers, not {len(given)}: {given}")


def positive(values: Sequence[int], name: str) -> None:
    """Strides, dilations and the like are at least 1."""
    if any(value < 1 for value in values):
        raise ValueError(f"{name} is at least 1, not {tuple(values)}")


class Windowed(Attrs):
    """Attributes of an operator whose windows move along axes."""

    __slots__ = ()

    strides: tuple[int, ...]
    padding: Padding
    dilation: tuple[int, ...]

    def normalize(self) -> None:
        """Padding before all axes, then after all of them."""
        positive(self.strides, "strides")
        positive(self.dilation, "dilation")
        self.padding = full_padding(self.padding, len(self.strides))  # type: ignore[misc]

    @property
    def before(self) -> tuple[int, ...]:
        """The padding before each axis."""
        return full_padding(self.padding, len(self.strides))[: len(self.strides)]

    @property
    def after(self) -> tuple[int, ...]:
        """The padding after each axis."""
        return full_padding(self.padding, len(self.strides))[len(self.strides) :]


W = TypeVar("W", bound=Windowed)


def padded_by(attrs: W, layout: str, width: Sequence[tuple[int, int]]) -> W | None:
    """The attributes with more padding; None if the border is not one of whole spatial axes."""
    axes = layout_of(layout)
    before, after = list(attrs.before), list(attrs.after)
    for part, (first, last) in zip(axes.parts, width, strict=True):
        place = SPATIAL[len(before)].find(part.axis)
        if first < 0 or last < 0 or (place < 0 and (first or last)):
            return None
        if place >= 0:
            before[place] += first
            after[place] += last
    return attrs.replace(padding=(*before, *after))


@cache
def spatial_layout(name: str, axes: str, what: str) -> Layout:
    """A layout with these axes, of which only channels may be blocked."""
    layout = expect_axes(layout_of(name), axes, what)
    for axis in axes:
        if axis in "NDHW" and layout.blocks_of(axis):
            raise ValueError(f"{what} '{name}' blocks the axis {axis}; only channels are blocked")
    return layout


def whole_blocks(layout: Layout, channels: Dim) -> None:
    """Channels that fill the blocks of the result's layout."""
    block = layout.factor_of("C")
    if block != -1 and isinstance(channels, int) and channels % block:
        raise ValueError(
            f"{channels} channels do not fill whole blocks of {block}, as the result's layout "
            f"{layout} has them"
        )


def window_result(size: Dim, window: Dim, stride: int, padding: int, dilation: int) -> Dim:
    """How many places a window finds along an axis that is padded by so much in all."""
    if isinstance(size, int) and isinstance(window, int):
        reach = (window - 1) * dilation + 1
        if size + padding < reach:
            raise ValueError(
                f"a window that reaches over {reach} elements does not fit into an extent of "
                f"{size} padded by {padding}"
            )
    return map_dims(
        lambda n, k: (n + (padding - 1) - (k - 1) * dilation) // stride + 1, size, window
    )


def axis_names(layout: Layout) -> list[str]:
    """Names for the axes of a stage that gives a tensor in a layout."""
    return [
        part.axis.lower() if part.factor is None else f"{part.axis.lower()}{place}"
        for place, part in enumerate(layout.parts)
    ]


def simple_index(layout: Layout, places: Mapping[str, ExprLike], ranges: Analyzer) -> list[Expr]:
    """The indices of an element, simplified by what is known about the ranges of variables."""
    return [ranges.simplify(as_expr(index)) for index in layout.index(places)]


def padded(
    data: Tensor,
    layout: Layout,
    axes: str,
    before: Sequence[int],
    after: Sequence[int],
    value: ExprLike = 0,
    name: str = "pad_temp",
) -> Tensor:
    """The tensor with a border of a value around some axes; itself if the border is nothing."""
    if not any(before) and not any(after):
        return data
    places = [layout.index_of(axis) for axis in axes]
    shape = list(data.shape)
    for place, first, last in zip(places, before, after, strict=True):
        shape[place] = shape[place] + (first + last)

    def element(*indices: Expr) -> Expr:
        moved = list(indices)
        conditions = []
        for place, first, last in zip(places, before, after, strict=True):
            moved[place] = indices[place] - first
            if first:
                conditions.append(indices[place] >= first)
            if last:
                conditions.append(moved[place] < data.shape[place])
        return if_then_else(all_of(*conditions), data(*moved), value)

    made: Tensor = compute(shape, element, name=name, varargs_names=axis_names(layout))
    return made


def pad_array(
    array: Array, before: Sequence[int], after: Sequence[int], value: float = 0
) -> Array:
    """An array with a border of a value around its last axes."""
    spatial = list(zip(before, after, strict=True))
    border = [(0, 0)] * (array.ndim - len(spatial)) + spatial
    return np.pad(array, border, constant_values=value)
