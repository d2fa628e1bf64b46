"""Operands that lie in another array: a part of it, in another order of its axes.

What only moves elements (reshapes, transposes, parts along an axis) is an index into the array that
they come from. Where that index is a sum of the axes, each times a number of its own, nothing needs
to be moved: kernels read it where it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sterna.arith import Analyzer, substitute
from sterna.ir import build
from sterna.ir.expr import Cast, Expr, Var
from sterna.ir.visitor import Rewriter
from sterna.support.dtype import DataType
from sterna.te import ComputeOp, PlaceholderOp, Tensor, compute
from sterna.te.tensor import ProducerLoad
from sterna.tir.stmt import row_major


@dataclass(frozen=True, slots=True)
class Strided:
    """Where the elements of a tensor are."""

    array: Tensor
    first: int
    """The place of its first element in the array."""
    steps: tuple[int, ...]
    """How far neighbours along each axis are apart, in elements; 0 where an axis has but one."""
    is_rounded: bool = False
    """Whether the array is float32, and the tensor's elements are rounded to 16 bits."""

    def place(self, index: Sequence[Expr]) -> Expr:
        """Where an element is."""
        found: Expr = build.const(self.first)
        for at, step in zip(index, self.steps, strict=True):
            found = found + at * step
        return found

    def has_quads(self, width: int) -> bool:
        """Whether rows of such a width are whole quads of neighbours."""
        whole = all(step % 4 == 0 for step in (self.first, *self.steps[:-1], width))
        return whole and self.steps[-1] == 1


def strided(tensor: Tensor, shared: int = 1) -> Strided | None:
    """Where a tensor's elements are in the array that they come from; None if no rule says it.

    shared: so many neighbours along axis 2 are one: its step is from one of these to the next.
    """
    sizes = [build.int_value(extent) for extent in tensor.shape]
    if None in sizes or not all(sizes):
        return None
    axes = [Var(f"axis{place}", build.const(0).dtype) for place in range(len(sizes))]
    found = _origin(tensor, tuple(axes))
    if found is None:
        return None
    array, index = found
    is_rounded = array.dtype != tensor.dtype
    analyzer, one_place = Analyzer(), {
        var: build.const(0) for var, size in zip(axes, sizes, strict=True) if size == 1
    }
    index = substitute(index, one_place)
    if shared > 1:
        within = Var("within", build.const(0).dtype)
        analyzer.bind(within, 0, shared)
        heads = (sizes[2] or 0) // shared
        own = axes[2] * shared + within if heads > 1 else within
        sizes[2] = heads
        index = substitute(index, {axes[2]: own})
    for var, size in zip(axes, sizes, strict=True):
        analyzer.bind(var, 0, size)
    zero, one = build.const(0), build.const(1)
    start = dict.fromkeys(axes, zero)
    first = _constant(index, start, analyzer)
    steps: list[int] = []
    line: Expr = build.const(first or 0)
    for var, size in zip(axes, sizes, strict=True):
        place = _constant(index, {**start, var: one}, analyzer) if size != 1 else first
        if first is None or place is None:
            return None
        steps.append(place - first)
        line = line + var * (place - first)
    straight = build.is_const(analyzer.simplify(index - line), 0)
    return Strided(array, first or 0, tuple(steps), is_rounded) if straight else None


def heads_shared(tensor: Tensor) -> int:
    """How many heads side by side have the same keys or values: 1 where each has its own."""
    sizes = [build.int_value(extent) or 0 for extent in tensor.shape]
    axes = [Var(f"axis{place}", build.const(0).dtype) for place in range(len(sizes))]
    found = _origin(tensor, tuple(axes))
    if found is None or not all(sizes):
        return 1
    analyzer, start = Analyzer(), dict.fromkeys(axes, build.const(0))
    places = [
        _constant(found[1], {**start, axes[2]: build.const(head)}, analyzer)
        for head in range(sizes[2])
    ]
    first = next((n for n, place in enumerate(places) if place != places[0]), sizes[2])
    while first > 1:  # the most that the whole array bears out
        if sizes[2] % first == 0 and strided(tensor, first) is not None:
            return first
        first -= 1
    return 1


@dataclass(frozen=True, slots=True)
class Heads:
    """Queries, keys or values of attention in an array, of shape (batch, length, heads, width)."""

    array: Tensor
    kind: DataType
    before: int
    """Heads that lie before the first in the array."""
    steps: tuple[int, int, int]
    """From sample to sample, row to row and head to head, in elements."""
    is_rounded: bool = False
    """Whether the array is float32, and its elements are rounded to 16 bits."""
    shared: int = 1
    """Heads of queries that have each of them."""

    @property
    def byte_steps(self) -> list[int]:
        """The same in bytes."""
        return [self.array.dtype.bytes * step for step in self.steps]


def rounded_together(parts: Sequence[Heads]) -> list[Heads]:
    """The same in arrays that other kernels round: arrays of one shape by one kernel."""
    waiting = dict.fromkeys(part.array for part in parts if part.is_rounded)
    made: dict[Tensor, Tensor] = {}
    while waiting:
        first = next(iter(waiting))
        alike = [array for array in waiting if _sizes(array) == _sizes(first)]
        kind = next(part.kind for part in parts if part.array is first)
        made |= dict(zip(alike, _rounded(alike, kind), strict=True))
        for array in alike:
            del waiting[array]
    return [
        replace(part, array=made[part.array], is_rounded=False) if part.is_rounded else part
        for part in parts
    ]


def _rounded(arrays: Sequence[Tensor], kind: DataType) -> Sequence[Tensor]:
    """Arrays of one shape, rounded by one kernel."""

    def elements(*at: Expr) -> list[Expr]:
        return [build.cast(kind, array(*at)) for array in arrays]

    made = compute(arrays[0].shape, elements, name="T_rounded")
    return [made] if isinstance(made, Tensor) else list(made)


def _sizes(array: Tensor) -> list[int | None]:
    return [build.int_value(extent) for extent in array.shape]


def part_of(tensor: Tensor, shared: int = 1) -> Heads | None:
    """Where queries, keys or values lie: an array of their own where no rule says it.

    None where copies of 16 bytes do not reach them. shared: heads of queries that have each head.
    """
    count, length, heads, width = (build.int_value(n) or 0 for n in tensor.shape)
    heads //= shared
    found = strided(tensor, shared)
    if shared > 1 and (found is None or (width > 1 and found.steps[3] != 1)):
        return part_of(tensor)
    is_step = found is not None and (heads == 1 or found.steps[2] > 0)
    if found is None or not is_step or (width > 1 and found.steps[3] != 1):
        found = Strided(tensor, 0, (length * heads * width, heads * width, width, 1))
    batch, row, head, _ = found.steps
    head = head if heads > 1 else width
    row = row if length > 1 else heads * head
    batch = batch if count > 1 else max(length * row, heads * head)
    sizes = [tensor.dtype.bytes * step for step in (batch, row, head)]
    if found.first % head or any(size % 16 or size <= 0 for size in sizes):
        return None
    return Heads(
        found.array, tensor.dtype, found.first // head, (batch, row, head), found.is_rounded,
        shared,
    )


def _constant(index: Expr, at: dict[Var, Expr], analyzer: Analyzer) -> int | None:
    return build.int_value(analyzer.simplify(substitute(index, at)))


def _origin(tensor: Tensor, indices: tuple[Expr, ...]) -> tuple[Tensor, Expr] | None:
    """The array that an element is read of, and its place there."""
    while not isinstance(tensor.op, PlaceholderOp):
        op = tensor.op
        if not isinstance(op, ComputeOp) or op.num_outputs > 1:
            return None
        body = op.body[0]
        if isinstance(body, Cast) and _rounds(body):
            body = body.value
        if not isinstance(body, ProducerLoad):
            return None
        values = {axis.var: index for axis, index in zip(op.axis, indices, strict=True)}
        numbers = _Numbers()
        indices = tuple(numbers.rewrite(substitute(index, values)) for index in body.indices)
        tensor = body.tensor
    sizes = tuple(build.cast("int32", extent) for extent in tensor.shape)
    return tensor, row_major(sizes, tuple(build.cast("int32", index) for index in indices))


def _rounds(cast: Cast) -> bool:
    """Whether float32 becomes a float of 16 bits."""
    return cast.value.dtype == "float32" and cast.dtype.is_float and cast.dtype.bits == 16


class _Numbers(Rewriter):
    """Constants that were made stages of a kernel, as numbers again."""

    def visit_ProducerLoad(self, load: ProducerLoad) -> Expr:
        op = load.tensor.op
        if isinstance(op, ComputeOp) and not op.axis and build.int_value(op.body[0]) is not None:
            return op.body[0]
        return load
