"""Layouts: how the axes of a tensor are laid out, written as text.

A capital letter is an axis. A number and a small letter is a block of that axis: "NCHW16c" keeps
channels in blocks of 16, the blocks innermost. An axis may be blocked several times, the coarsest
block first: in "OIHW4i16o4i" input channel c lies at I = c // 16, i = c // 4 % 4, i = c % 4.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim
from sterna.relay.arrays import Array

_PART = re.compile(r"([A-Z])|([1-9]\d*)([a-z])")


@dataclass(frozen=True, slots=True)
class Part:
    """One dimension of a tensor: an axis, or a block of one."""

    axis: str
    """The axis, a capital letter."""
    factor: int | None = None
    """The extent of a block; None for the axis itself."""

    def __str__(self) -> str:
        return self.axis if self.factor is None else f"{self.factor}{self.axis.lower()}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes of a tensor and where each of them lies; made by layout_of."""

    name: str
    parts: tuple[Part, ...]

    @property
    def primal(self) -> str:
        """The axes without their blocks, in the order of the layout."""
        return "".join(part.axis for part in self.parts if part.factor is None)

    @property
    def is_blocked(self) -> bool:
        """Whether an axis has blocks."""
        return any(part.factor is not None for part in self.parts)

    def blocks_of(self, axis: str) -> list[int]:
        """The extents of an axis's blocks, the coarsest first."""
        return [p.factor for p in self.parts if p.axis == axis and p.factor is not None]

    def factor_of(self, axis: str) -> int:
        """How many elements of an axis its blocks hold together; -1 if it has no blocks."""
        blocks = self.blocks_of(axis.upper())
        return math.prod(blocks) if blocks else -1

    def index_of(self, letter: str) -> int:
        """The dimension that a letter names: "C" the axis, "c" its first block; -1 if none."""
        wanted = letter.isupper()
        for place, part in enumerate(self.parts):
            if part.axis == letter.upper() and (part.factor is None) == wanted:
                return place
        return -1

    def dims(self, shape: Sequence[Dim]) -> dict[str, Dim]:
        """The extent of every axis of a tensor of this shape."""
        if len(shape) != len(self.parts):
            raise ValueError(
                f"layout {self.name} has {len(self.parts)} dimensions, the shape has {len(shape)}"
            )
        found: dict[str, Dim] = {}
        for part, dim in zip(self.parts, shape, strict=True):
            if part.factor is None:
                blocks = self.factor_of(part.axis)
                found[part.axis] = dim if blocks == -1 or _unknown(dim) else dim * blocks
            elif type(dim) is int and dim != part.factor:
                raise ValueError(
                    f"layout {self.name} has blocks {part}, so that dimension is {part.factor}, "
                    f"not {dim}"
                )
        return found

    def shape(self, dims: Mapping[str, Dim]) -> tuple[Dim, ...]:
        """The shape of a tensor whose axes have these extents; the last block may be padded."""
        return tuple([self._extent(part, dims[part.axis]) for part in self.parts])

    def _extent(self, part: Part, dim: Dim) -> Dim:
        if part.factor is not None:
            return part.factor
        blocks = self.factor_of(part.axis)
        return dim if blocks == -1 or _unknown(dim) else (dim + (blocks - 1)) // blocks

    def coordinates(self, indices: Sequence[Any]) -> dict[str, Any]:
        """The place along every axis of the element at these indices."""
        found: dict[str, Any] = {}
        for part, index in zip(self.parts, indices, strict=True):
            if part.factor is None:
                found[part.axis] = index
        for part, index in zip(self.parts, indices, strict=True):
            if part.factor is not None:
                found[part.axis] = found[part.axis] * part.factor + index
        return found

    def index(self, coordinates: Mapping[str, Any]) -> tuple[Any, ...]:
        """The indices of the element at these places along the axes."""
        inner = {axis: max(self.factor_of(axis), 1) for axis in self.primal}
        found: dict[int, Any] = {}
        for place, part in enumerate(self.parts):
            if part.factor is not None:
                inner[part.axis] //= part.factor
                found[place] = coordinates[part.axis] // inner[part.axis] % part.factor
            else:
                found[place] = coordinates[part.axis] // max(self.factor_of(part.axis), 1)
        return tuple([found[place] for place in range(len(self.parts))])

    def __contains__(self, letter: str) -> bool:
        return self.index_of(letter) >= 0

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, place: int) -> str:
        part = self.parts[place]
        return part.axis if part.factor is None else part.axis.lower()

    def __str__(self) -> str:
        return self.name


def _unknown(dim: Dim) -> bool:
    return isinstance(dim, AnyDim)


@cache
def layout_of(name: str) -> Layout:
    """The layout that a text such as "NCHW16c" describes."""
    parts, place = [], 0
    while place < len(name):
        match = _PART.match(name, place)
        if match is None:
            raise ValueError(
                f"layout '{name}': '{name[place:]}' begins neither with an axis (a capital "
                "letter) nor with a block (its extent and a small letter, like 16c)"
            )
        axis, extent, block = match.groups()
        parts.append(Part(axis) if axis else Part(block.upper(), int(extent)))
        place = match.end()
    axes = [part.axis for part in parts if part.factor is None]
    for axis in axes:
        if axes.count(axis) > 1:
            raise ValueError(f"layout '{name}' has the axis {axis} twice")
    for part in parts:
        if part.axis not in axes:
            raise ValueError(f"layout '{name}' has blocks {part} but no axis {part.axis}")
    return Layout(name, tuple(parts))


def expect_axes(layout: Layout, axes: str, what: str) -> Layout:
    """A layout that must have just these axes, in any order."""
    if sorted(layout.primal) != sorted(axes):
        raise ValueError(f"{what} '{layout}' must have the axes {', '.join(axes)} and no others")
    return layout


@dataclass(frozen=True, slots=True)
class BijectiveLayout:
    """Two layouts of the same axes, and the way from one to the other and back."""

    source: Layout
    target: Layout

    def __post_init__(self) -> None:
        if sorted(self.source.primal) != sorted(self.target.primal):
            raise ValueError(f"layouts {self.source} and {self.target} have different axes")

    def forward_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """The shape in the target layout of a tensor in the source layout."""
        return self.target.shape(self.source.dims(shape))

    def backward_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """The shape in the source layout of a tensor in the target layout."""
        return self.source.shape(self.target.dims(shape))

    def forward_index(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        """Where an element of the source layout lies in the target layout."""
        return self.target.index(self.source.coordinates(indices))

    def backward_index(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        """Where an element of the target layout lies in the source layout."""
        return self.source.index(self.target.coordinates(indices))


def bijective_layout(source: str, target: str) -> BijectiveLayout:
    """The way from one layout to another, both given as text."""
    return BijectiveLayout(layout_of(source), layout_of(target))


def to_plain(array: Array, layout: Layout, axes: str | None = None) -> Array:
    """An array without its blocks, its axes in the given order or in the layout's."""
    order: list[int] = []
    shape: list[int] = []
    for axis in axes or layout.primal:
        places = [i for i, part in enumerate(layout.parts) if part.axis == axis]
        places.sort(key=lambda i: layout.parts[i].factor is not None)
        order += places
        shape.append(math.prod(array.shape[i] for i in places))
    return array.transpose(order).reshape(shape)


def from_plain(array: Array, axes: str, layout: Layout) -> Array:
    """An array with these axes in a layout; blocks that are not full are padded with zeros."""
    padding: list[tuple[int, int]] = []
    shape: list[int] = []
    where: dict[str, int] = {}
    for axis, extent in zip(axes, array.shape, strict=True):
        blocks = layout.blocks_of(axis)
        whole = math.prod(blocks)
        outer = -(-extent // whole)
        padding.append((0, outer * whole - extent))
        where[axis] = len(shape)
        shape += [outer, *blocks]
    padded = np.pad(array, padding) if any(after for _, after in padding) else array
    order = []
    blocked = dict(where)
    for part in layout.parts:
        if part.factor is None:
            order.append(where[part.axis])
        else:
            blocked[part.axis] += 1
            order.append(blocked[part.axis])
    return padded.reshape(shape).transpose(order)


def transform(array: Array, source: Layout, target: Layout) -> Array:
    """An array in another layout."""
    return from_plain(to_plain(array, source), source.primal, target)
