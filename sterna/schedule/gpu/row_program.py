"""What a kernel of rows computes: sums of each row, one after the other, and then the results.

    softmax:  largest = max over k of x[row, k]
              total = sum over k of exp(x[row, k] - largest)
              out[row, k] = exp(x[row, k] - largest) / total

Each step is an expression of a place in a row, of what was read there, and of the sums before it.
Rows may be neighbours along an axis that arrays have once, as the groups of a norm's channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sterna.arith import Analyzer, substitute
from sterna.ir import build
from sterna.ir.expr import INT32, Expr, Var
from sterna.te import ComputeOp, IterVar, Operation, PlaceholderOp, Tensor
from sterna.te.tensor import CommReducer, ProducerLoad, Reduce, replace_loads

# Loads in an expression that are followed at most: stages that read each other often grow fast.
MOST_LOADS = 256


@dataclass(frozen=True, slots=True)
class RowSum:
    """One number of each row."""

    name: str
    value: Var
    """What later steps know it by."""
    combiner: CommReducer
    source: Expr


@dataclass(frozen=True, slots=True)
class RowProgram:
    """A kernel of rows."""

    outer: tuple[Var, ...]
    """Which row: the axes of more than one element that number them, and their extents."""
    rows: tuple[int, ...]
    inner: tuple[Var, ...]
    """Which place in a row, and the extents of its axes."""
    row: tuple[int, ...]
    sums: tuple[RowSum, ...]
    result: Expr
    is_element: bool
    """Whether there is a result for each element, rather than one for each row."""
    reads: tuple[Tensor, ...]
    full: tuple[Expr, ...]
    """Where arrays that have all elements have the place at hand: the indices of their axes of more
    than one element."""

    def along(self, load: ProducerLoad) -> bool:
        """Whether an operand is read element by element, at the very place that is at hand."""
        return _are(_used(load), self.full)

    def at_place(self, load: ProducerLoad) -> bool:
        """Whether an operand that has no rows is read at the very place that is at hand in one."""
        return _are(_used(load), self.inner)


def row_program(out: Tensor) -> RowProgram | None:
    """The steps that make a tensor of rows; None if it is none, or if only a run tells its size."""
    try:
        return _Reader(out).read()
    except _NoRows:
        return None


class _NoRows(Exception):
    """What is read is no kernel of rows."""


class _Reader:
    def __init__(self, out: Tensor) -> None:
        self.out = out
        self.values: dict[Tensor, Var] = {}
        self.reads: dict[Tensor, None] = {}
        self.loads = 0

    def read(self) -> RowProgram:
        sums = _sums_of(self.out)
        if not sums:
            raise _NoRows
        self.rows, self.row = _sizes(sums[0].axis), _sizes(sums[0].reduce_axis)
        self.outer = tuple(Var(f"row{n}", INT32) for n in range(len(self.rows)))
        self.inner = tuple(Var(f"place{n}", INT32) for n in range(len(self.row)))
        self.analyzer = Analyzer()
        for var, size in zip((*self.outer, *self.inner), (*self.rows, *self.row), strict=True):
            self.analyzer.bind(var, build.const(0), build.const(size))
        op = self.out.op
        assert isinstance(op, ComputeOp)
        sizes = _sizes(op.axis)
        self.full = self.place_in(sizes)
        steps = tuple(self.step(op) for op in sums)
        is_element = sizes != self.rows
        if op.reduce_axis:
            result: Expr = self.values[self.out]
        else:
            places = self.full if is_element else self.outer
            result = self.inlined(op.body[0], _places(op.axis, places))
        return RowProgram(
            self.outer, self.rows, self.inner, self.row, steps, result, is_element,
            tuple(self.reads), self.full,
        )

    def place_in(self, sizes: tuple[int, ...]) -> tuple[Expr, ...]:
        """The place at hand among all elements, by the extents of the result."""
        if sizes in (self.rows, (*self.rows, *self.row)):
            return (*self.outer, *self.inner)
        if not self.rows or not self.row:
            raise _NoRows
        (*before, groups), (each, *behind) = self.rows, self.row
        if sizes != (*before, groups * each, *behind):
            raise _NoRows
        return (*self.outer[:-1], self.outer[-1] * each + self.inner[0], *self.inner[1:])

    def step(self, op: ComputeOp) -> RowSum:
        """A sum of all rows."""
        body = op.body[0]
        alike = _sizes(op.axis) == self.rows and _sizes(op.reduce_axis) == self.row
        if not alike or not isinstance(body, Reduce) or op.num_outputs > 1:
            raise _NoRows
        if body.init or not build.is_const(body.condition, 1):
            raise _NoRows
        places = _places(op.axis, self.outer) | _places(op.reduce_axis, self.inner)
        source = self.inlined(body.source[0], places)
        tensor = op.output(0)
        self.values[tensor] = Var(op.name, tensor.dtype)
        return RowSum(op.name, self.values[tensor], body.combiner, source)

    def inlined(self, expr: Expr, places: dict[Var, Expr]) -> Expr:
        """An expression of what is read from memory and of the sums before it."""
        return replace_loads(substitute(expr, places), self.loaded)

    def loaded(self, tensor: Tensor, at: tuple[Expr, ...]) -> Expr | None:
        self.loads += 1
        if self.loads > MOST_LOADS:
            raise _NoRows
        if tensor in self.values:
            used = [i for i, n in zip(at, tensor.shape, strict=True) if not build.is_const(n, 1)]
            if not _are([self.analyzer.simplify(index) for index in used], self.outer):
                raise _NoRows
            return self.values[tensor]
        op = tensor.op
        if isinstance(op, PlaceholderOp):
            self.reads[tensor] = None
            return None
        if not isinstance(op, ComputeOp) or op.reduce_axis or op.num_outputs > 1:
            raise _NoRows
        return self.inlined(op.body[0], {
            axis.var: index for axis, index in zip(op.axis, at, strict=True)
        })


def _sums_of(out: Tensor) -> list[ComputeOp]:
    """The reductions that a tensor is made by, each behind those that it needs."""
    found: dict[Operation, None] = {}
    seen: set[Operation] = set()
    waiting: list[tuple[Operation, bool]] = [(out.op, False)]
    while waiting:
        op, is_done = waiting.pop()
        if is_done:
            found[op] = None
        elif op not in seen:
            seen.add(op)
            if not isinstance(op, ComputeOp | PlaceholderOp):
                raise _NoRows
            if isinstance(op, ComputeOp) and op.reduce_axis:
                waiting.append((op, True))
            waiting += [(tensor.op, False) for tensor in op.input_tensors]
    return [op for op in found if isinstance(op, ComputeOp)]


def _sizes(axes: Sequence[IterVar]) -> tuple[int, ...]:
    """The extents of axes, without those of one element."""
    sizes = [None if axis.dom is None else build.int_value(axis.dom.extent) for axis in axes]
    starts = [axis.dom is not None and build.is_const(axis.dom.min, 0) for axis in axes]
    if not all(starts):
        raise _NoRows
    known = [size for size in sizes if size]
    if len(known) != len(sizes):
        raise _NoRows
    return tuple(size for size in known if size > 1)


def _places(axes: Sequence[IterVar], places: Sequence[Expr]) -> dict[Var, Expr]:
    """By the variables of axes: which place each is; 0 for those of one element."""
    left = iter(places)
    return {
        axis.var: build.const(0, axis.var.dtype)
        if axis.dom is not None and build.is_const(axis.dom.extent, 1) else next(left)
        for axis in axes
    }


def _used(load: ProducerLoad) -> list[Expr]:
    """The indices of the axes that have more than one element."""
    return [i for i, n in zip(load.indices, load.tensor.shape, strict=True)
            if not build.is_const(n, 1)]


def _are(indices: Sequence[Expr], places: Sequence[Expr]) -> bool:
    return len(indices) == len(places) and all(
        a is b or (not isinstance(b, Var) and str(a) == str(b))
        for a, b in zip(indices, places, strict=True)
    )
