"""Matching for tensorization: whether loops compute what an intrinsic does, part by part."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from sterna.arith import Analyzer, substitute
from sterna.ir import build
from sterna.ir.expr import Expr, Let, Var, variables_in
from sterna.ir.node import Node, post_order
from sterna.te.intrin import TensorIntrin
from sterna.te.tensor import (
    CommReducer,
    ComputeOp,
    IterVar,
    ProducerLoad,
    Range,
    Reduce,
    Tensor,
    axis_range,
)

Dims = tuple[int | None, ...]
"""For each dimension of an intrinsic's tensor the one that it is of another; None: of length 1."""


class Mismatch(Exception):
    """Loops compute something else than an intrinsic; the text says what differs first."""


@dataclass
class Tile:
    """An operation over a rectangle of its axes: what one round of the loops around it does."""

    op: ComputeOp
    ranges: dict[IterVar, Range]


@dataclass
class Region:
    """The part of a tensor that is an input of an intrinsic."""

    tensor: Tensor
    first: list[Expr]
    dims: Dims


@dataclass
class Match:
    """What the parts of an intrinsic are."""

    inputs: dict[Tensor, Region]
    output_dims: Dims
    values: dict[Var, Expr]
    """Of the variables in its shapes, and of its scalar parameters."""


def match(intrin: TensorIntrin, tile: Tile, analyzer: Analyzer) -> Match:
    """How a tile is what an intrinsic computes; raises Mismatch if it is not."""
    return _Matcher(intrin, tile, analyzer).run()


class _Matcher:
    def __init__(self, intrin: TensorIntrin, tile: Tile, analyzer: Analyzer) -> None:
        self.intrin = intrin
        self.tile = tile
        self.analyzer = analyzer
        self.values: dict[Var, Expr] = {}
        self.local: set[Var] = set()
        self.bound: dict[Var, Expr] = {}
        self.loads: dict[Tensor, list[tuple[ProducerLoad, ProducerLoad]]] = {}

    def run(self) -> Match:
        ours, theirs = self.intrin.op, self.tile.op
        if bool(ours.reduce_axis) != bool(theirs.reduce_axis):
            raise Mismatch("one is a reduction, the other is none")
        if len(ours.body) != len(theirs.body):
            raise Mismatch(f"{len(theirs.body)} results against {len(ours.body)}")
        output_dims = self.axes(theirs.axis, ours.axis)
        reduced_dims = self.axes(theirs.reduce_axis, ours.reduce_axis)
        at = {
            **self.indices(theirs.axis, ours.axis, output_dims),
            **self.indices(theirs.reduce_axis, ours.reduce_axis, reduced_dims),
        }
        for a, b in zip(ours.body, theirs.body, strict=True):
            self.same(a, substitute(b, at))
        inputs = {tensor: self.region(tensor) for tensor in self.intrin.inputs}
        return Match(inputs, output_dims, self.values)

    # ---- axes ----

    def axes(self, theirs: Sequence[IterVar], ours: Sequence[IterVar]) -> Dims:
        """Which of the tile's axes each axis of the intrinsic is; the others are of length 1."""
        offered = [self.tile.ranges[axis].extent for axis in theirs]
        wanted = [axis_range(axis).extent for axis in ours]
        for dims in placements(wanted, len(offered)):
            values = self.fitting(wanted, offered, dims)
            if values is not None:
                self.values = values
                return dims
        shown = [
            ", ".join(f"{axis.name}: {extent}" for axis, extent in zip(axes, extents, strict=True))
            for axes, extents in ((theirs, offered), (ours, wanted))
        ]
        raise Mismatch(f"the loops run over ({shown[0]}), the intrinsic over ({shown[1]})")

    def fitting(
        self, wanted: Sequence[Expr], offered: Sequence[Expr], dims: Dims
    ) -> dict[Var, Expr] | None:
        """Values of variables with which the extents agree."""
        values = dict(self.values)
        for extent, place in zip(wanted, dims, strict=True):
            other = build.const(1, extent.dtype) if place is None else offered[place]
            if isinstance(extent, Var) and extent not in values:
                values[extent] = build.cast(extent.dtype, other)
            elif not self.analyzer.can_prove_equal(substitute(extent, values), other):
                return None
        rest = [extent for place, extent in enumerate(offered) if place not in dims]
        return values if all(build.is_const(extent, 1) for extent in rest) else None

    def indices(
        self, theirs: Sequence[IterVar], ours: Sequence[IterVar], dims: Dims
    ) -> dict[Var, Expr]:
        """The tile's axes in terms of where the intrinsic is on its own."""
        found = {axis.var: self.tile.ranges[axis].min for axis in theirs}
        for axis, place in zip(ours, dims, strict=True):
            index = self.bound[axis.var] = self.local_index(axis)
            if place is not None:
                var = theirs[place].var
                found[var] = self.analyzer.simplify(found[var] + index)
        return found

    def local_index(self, axis: IterVar) -> Expr:
        """Where the intrinsic is on one of its axes."""
        extent = substitute(axis_range(axis).extent, self.values)
        if build.is_const(extent, 1):
            return build.const(0, axis.var.dtype)
        var = Var(axis.name, axis.var.dtype)
        self.local.add(var)
        self.analyzer.bind(var, 0, extent)
        return var

    # ---- expressions ----

    def same(self, a: Any, b: Any) -> None:
        """The intrinsic's expression must be the tile's."""
        if isinstance(a, Var) and any(a is param for param in self.intrin.scalar_params):
            self.take_scalar(a, b)
        elif isinstance(a, Var) and a in self.bound:
            self.same_index(self.bound[a], b)
        elif isinstance(a, Expr) and isinstance(b, Expr) and a.dtype != b.dtype:
            raise Mismatch(f"{b} is {b.dtype}, {a} is {a.dtype}")
        elif isinstance(a, Expr) and self.is_own_index(a) and self.is_index(b):
            self.same_index(substitute(a, {**self.bound, **self.values}), b)
        elif type(a) is not type(b):
            raise Mismatch(f"{b} against {a}")
        elif isinstance(a, ProducerLoad):
            self.loads.setdefault(a.tensor, []).append((a, b))
        elif isinstance(a, CommReducer):
            self.bound.update(zip((*a.left, *a.right), (*b.left, *b.right), strict=True))
            self.same((a.result, a.identity), (b.result, b.identity))
        elif isinstance(a, Let):
            self.same(a.value, b.value)
            self.bound[a.var] = b.var
            self.same(a.body, b.body)
        elif isinstance(a, Node):
            for name in a.FIELDS:
                if not (isinstance(a, Reduce) and name == "axis"):
                    self.same(getattr(a, name), getattr(b, name))
        elif isinstance(a, tuple) and len(a) == len(b):
            for one, other in zip(a, b, strict=True):
                self.same(one, other)
        elif a != b:
            raise Mismatch(f"{b} against {a}")

    def is_index(self, expr: object) -> bool:
        return isinstance(expr, Expr) and _is_plain_index(expr)

    def is_own_index(self, expr: Expr) -> bool:
        scalars = set(self.intrin.scalar_params)
        return _is_plain_index(expr) and not scalars.intersection(variables_in(expr))

    def same_index(self, a: Expr, b: Any) -> None:
        known = _is_plain_index(a) and self.is_index(b)
        if a is not b and not (known and self.analyzer.can_prove_equal(a, b)):
            raise Mismatch(f"{b} against {a}")

    def take_scalar(self, param: Var, value: Any) -> None:
        if not isinstance(value, Expr) or value.dtype != param.dtype:
            raise Mismatch(f"{value} cannot be the {param.dtype} {param.name}")
        if self.local.intersection(variables_in(value)):
            raise Mismatch(f"{value}, which is {param.name}, is not the same for all elements")
        if not _identical(self.values.setdefault(param, value), value):
            raise Mismatch(f"{param.name} is {self.values[param]} here and {value} there")

    # ---- inputs ----

    def region(self, tensor: Tensor) -> Region:
        """The part of a tensor of the tile that an input is."""
        pairs = self.loads[tensor]
        other = pairs[0][1].tensor
        for _, load in pairs:
            if load.tensor.op is not other.op or load.tensor.value_index != other.value_index:
                raise Mismatch(f"{tensor.name} is {other.name} here and {load.tensor.name} there")
        shape = [substitute(extent, self.values) for extent in tensor.shape]
        for dims in placements(shape, other.ndim):
            first = self.first_element(pairs, dims, other.ndim)
            if first is not None:
                return Region(other, first, dims)
        raise Mismatch(f"{pairs[0][1]} is read where the intrinsic reads {pairs[0][0]}")

    def first_element(
        self, pairs: Sequence[tuple[ProducerLoad, ProducerLoad]], dims: Dims, ndim: int
    ) -> list[Expr] | None:
        """The element that the input's first one is, if all loads agree on it."""
        found: list[Expr | None] = [None] * ndim
        at: Mapping[Var, Expr] = {**self.bound, **self.values}
        for ours, theirs in pairs:
            moved = [substitute(index, at) for index in ours.indices]
            for place, index in zip(dims, moved, strict=True):
                if place is None and not self.analyzer.can_prove_equal(index, 0):
                    return None
            for place, index in enumerate(theirs.indices):
                if place in dims:
                    index = build.sub(index, moved[dims.index(place)])
                index = self.analyzer.simplify(index)
                known = found[place]
                if self.local.intersection(variables_in(index)):
                    return None
                if known is not None and not self.analyzer.can_prove_equal(known, index):
                    return None
                found[place] = index
        return [index for index in found if index is not None]


def placements(wanted: Sequence[Expr], offered: int) -> Iterator[Dims]:
    """The ways to find some dimensions, in order, among others; the last ones come first.

    Dimensions of length 1 need not be found.
    """
    units = [place for place, extent in enumerate(wanted) if build.is_const(extent, 1)]
    for count in range(len(units) + 1):
        for missing in combinations(units, count):
            size = len(wanted) - count
            if size > offered:
                continue
            for chosen in reversed(list(combinations(range(offered), size))):
                rest = iter(chosen)
                yield tuple(None if i in missing else next(rest) for i in range(len(wanted)))


def _identical(a: Any, b: Any) -> bool:
    """Whether two expressions say the same of the same variables and tensors."""
    if a is b or type(a) is not type(b):
        return a is b
    if isinstance(a, tuple):
        return len(a) == len(b) and all(_identical(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Var) or not isinstance(a, Node):
        return isinstance(a, int | float | str) and a == b
    return all(_identical(getattr(a, name), getattr(b, name)) for name in a.FIELDS)


def _is_plain_index(expr: Expr) -> bool:
    """Whether an expression is of loop variables alone."""
    if not expr.dtype.is_int or expr.dtype.lanes > 1 or expr.dtype.bits < 32:
        return False
    found: list[Node] = []
    post_order(expr, lambda n: found.append(n) if isinstance(n, ProducerLoad) else None)
    return not found
