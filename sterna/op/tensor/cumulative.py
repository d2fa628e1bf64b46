"""Prefix sums, products and log-sum-exps (scans): of all elements up to each along an axis."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.ir.types import TensorType, Type
from sterna.op.axis_rows import ROWS_PER_BLOCK, AxisRows, product
from sterna.op.checks import axis_of, of_kind, size_of, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.elementwise import quiet
from sterna.op.indexing import dims_of, unravel
from sterna.op.statements import Variable, statements, variable
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr
from sterna.relay.op import OPAQUE, Case, OpRecord, call, register
from sterna.schedule.products import AS_DATA, wide
from sterna.support.dtype import DataType
from sterna.target import Target
from sterna.te import Tensor
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder

# Shorter rows are not worth three steps.
SHORTEST_IN_PARTS = 64
# Elements of a thread that are on their way together.
PART = 16


@attributes
class ScanopAttrs(Attrs):
    """Of cumsum, cumprod and logcumsumexp."""

    axis: int | None = None
    dtype: DataType | None = None
    exclusive: bool | None = None
    reverse: bool = False

    def normalize(self) -> None:
        if self.dtype is None:
            self.dtype = AS_DATA
        if self.exclusive is None:
            self.exclusive = False


def _infer(attrs: ScanopAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    if not attrs.dtype:
        of_kind(kind, "data without a dtype for the result", "float", "int", "uint")
    made = attrs.dtype or kind.dtype
    if attrs.axis is None:
        return TensorType((size_of(kind.shape),), made)
    axis_of(attrs.axis, kind.ndim)
    return TensorType(kind.shape, made)


def _infer_floats(attrs: ScanopAttrs, data: Type) -> TensorType:
    of_kind(tensor(data, "data"), "data", "float")
    return _infer(attrs, data)


def _with_one_inner_axis(name: str) -> Callable[..., RelayExpr | None]:
    """Axes behind the one that is added along become one: rows that lie side by side are many.

        cumsum(%x, axis=0) of (20, 300, 30)  ->  as (20, 9000), given its shape again
    """

    def rewrite(
        attrs: ScanopAttrs, args: tuple[RelayExpr, ...], target: Target | None
    ) -> RelayExpr | None:
        kind = tensor_type(args[0])
        axis = None if attrs.axis is None else axis_of(attrs.axis, kind.ndim)
        if axis is None or axis >= kind.ndim - 2 or not kind.is_static or 0 in kind.shape:
            return None
        outer, inner = kind.concrete_shape[: axis + 1], kind.concrete_shape[axis + 1 :]
        flat = call("reshape", args[0], newshape=(*outer, math.prod(inner)))
        made = call(name, flat, **{**dict(attrs.items()), "axis": axis})
        return call("reshape", made, newshape=kind.concrete_shape)

    return rewrite


def _compute(
    name: str, combine: Callable[[Expr, Expr], Expr], start: float
) -> Callable[..., Tensor]:
    def build_it(attrs: ScanopAttrs, out: TensorType, data: Tensor) -> Tensor:
        shape = dims_of(data)
        kind = wide(out.dtype)
        flat = attrs.axis is None
        axis = 0 if attrs.axis is None else axis_of(attrs.axis, data.ndim)
        rows = AxisRows([product(shape)] if flat else shape, axis)

        def add_up(
            total: Variable, at: tuple[ExprLike, ...], result: BufferVar, source: Expr
        ) -> None:
            """Takes one element into a total, and writes the total before it or after it."""
            if attrs.exclusive:
                result[at] = build.cast(out.dtype, total.get())
            total.set(combine(total.get(), build.cast(kind, source)))
            if not attrs.exclusive:
                result[at] = build.cast(out.dtype, total.get())

        def placed(k: Expr) -> Expr:
            return rows.length - 1 - k if attrs.reverse else k

        def one_by_one(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
            with rows.each(ib) as at:
                total = variable(ib, kind, "total", build.const(start, kind))
                with ib.for_range(0, rows.length, name="k") as k:
                    read = tuple(unravel(placed(k), shape)) if flat else at(placed(k))
                    add_up(total, at(placed(k)), outs[0], ins[0][read])

        def side_by_side(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
            with rows.each_block(ib) as (width, at):
                totals = ib.allocate(kind, (ROWS_PER_BLOCK,), name="totals")
                with ib.for_range(0, width, name="row") as row:
                    totals[row] = build.const(start, kind)
                with (
                    ib.for_range(0, rows.length, name="k") as k,
                    ib.for_range(0, width, name="row") as row,
                ):
                    place = at(placed(k), row)
                    add_up(Variable(totals, row), place, outs[0], ins[0][place])

        def by_rows_before(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
            """What has been written is the total: rows go on from those before them."""
            with rows.each_block(ib) as (width, at):
                with ib.for_range(0, width, name="row") as row:
                    place, first = at(placed(build.const(0)), row), build.const(start, kind)
                    outs[0][place] = combine(first, build.cast(kind, ins[0][place]))
                with (
                    ib.for_range(0, rows.length - 1, name="k") as k,
                    ib.for_range(0, width, name="row") as row,
                ):
                    place, before = at(placed(k + 1), row), at(placed(k), row)
                    outs[0][place] = combine(outs[0][before], build.cast(kind, ins[0][place]))

        fill = side_by_side if rows.lie_side_by_side else one_by_one
        is_total = not attrs.exclusive and kind == out.dtype
        if rows.lie_side_by_side and is_total and isinstance(rows.length, int) and rows.length:
            fill = by_rows_before
        return statements(out, [data], fill, f"T_{name}")[0]

    return build_it


def _compute_by_threads(
    name: str, combine: Callable[[Expr, Expr], Expr], start: float
) -> Callable[..., Tensor | None]:
    """Totals of parts of each row first, of parts of these, until there are few; then what is
    before each, back to the elements. A thread has a part: a short one where elements of rows lie
    side by side, so that its neighbours read what follows."""

    def build_it(attrs: ScanopAttrs, out: TensorType, data: Tensor) -> Tensor | None:
        shape = dims_of(data)
        flat = attrs.axis is None
        axis = 0 if attrs.axis is None else axis_of(attrs.axis, data.ndim)
        rows = AxisRows([product(shape)] if flat else shape, axis)
        kind, length = wide(out.dtype), rows.length
        if not rows.is_static or not isinstance(length, int) or length < SHORTEST_IN_PARTS:
            return None
        across = rows.lie_side_by_side
        size = max(PART, 1 << (math.isqrt(length) - 1).bit_length()) if across else PART
        counts = [length]
        while counts[-1] >= (length if across else SHORTEST_IN_PARTS):
            counts.append(-(-counts[-1] // size))

        def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
            totals = {
                level: ib.allocate(kind, (rows.count * count,), name=f"totals{level}")
                for level, count in enumerate(counts) if level
            }

            def index(level: int, line: Expr, part: Expr) -> Expr:
                return rows.number_of(line, part, counts[level])

            def read(line: Expr, k: Expr) -> Expr:
                place = length - 1 - k if attrs.reverse else k
                at = tuple(unravel(place, shape)) if flat else rows.at(line, place)
                return build.cast(kind, ins[0][at])

            @contextmanager
            def each(level: int, line: Expr, part: Expr) -> Iterator[tuple[Expr, Expr]]:
                """The elements of a part, several of which are on their way together, and the place
                of each in the row."""
                is_whole = counts[level] % size == 0
                with ib.for_range(0, size // PART, name="turn") as turn:
                    first = part * size + (turn * PART if size > PART else 0)
                    brought = ib.allocate(kind, (PART,), name="brought", scope="local")
                    with ib.for_range(0, PART, name="k", kind="unroll") as k:
                        at = first + k if is_whole else build.minimum(
                            first + k, counts[level] - 1)
                        brought[k] = (
                            totals[level][index(level, line, at)] if level else read(line, at))
                    with ib.for_range(0, PART, name="k", kind="unroll") as k, (
                        nullcontext() if is_whole else ib.if_scope(first + k < counts[level])
                    ):
                        yield brought[k], first + k

            def store(level: int, line: Expr, at: Expr, total: Variable) -> None:
                if level:
                    totals[level][index(level, line, at)] = total.get()
                else:
                    place = length - 1 - at if attrs.reverse else at
                    outs[0][rows.at(line, place)] = build.cast(out.dtype, total.get())

            last = len(counts) - 1
            for level in range(last):
                with rows.each_part(ib, counts[level + 1]) as (line, part, _):
                    total = variable(ib, kind, "total", build.const(start, kind))
                    with each(level, line, part) as (element, _):
                        total.set(combine(total.get(), element))
                    totals[level + 1][index(level + 1, line, part)] = total.get()
            with rows.each_part(ib, 1) as (line, _, _):
                before = variable(ib, kind, "before", build.const(start, kind))
                with ib.for_range(0, counts[last], name="part") as part:
                    own = ib.let("own", totals[last][index(last, line, part)])
                    totals[last][index(last, line, part)] = before.get()
                    before.set(combine(before.get(), own))
            for level in reversed(range(last)):
                with rows.each_part(ib, counts[level + 1]) as (line, part, _):
                    known = totals[level + 1][index(level + 1, line, part)]
                    total = variable(ib, kind, "total", known)
                    is_before = level > 0 or attrs.exclusive
                    with each(level, line, part) as (element, at):
                        if is_before:
                            store(level, line, at, total)
                        total.set(combine(total.get(), element))
                        if not is_before:
                            store(level, line, at, total)

        return statements(out, [data], fill, f"T_{name}")[0]

    return build_it


def _reference(combine: Callable[..., Array], start: float) -> Callable[..., Array]:
    def reference(attrs: ScanopAttrs, data: Array) -> Array:
        made = numpy_dtype(attrs.dtype) if attrs.dtype else data.dtype
        source = data.reshape(-1) if attrs.axis is None else data
        axis = 0 if attrs.axis is None else attrs.axis
        values = source.astype(numpy_dtype(wide(str(made))))
        if attrs.reverse:
            values = np.flip(values, axis)
        total = combine(values, axis=axis, dtype=values.dtype)
        if attrs.exclusive:
            first = np.full_like(np.take(values, [0], axis) if values.size else values, start)
            rest = np.take(total, np.arange(max(values.shape[axis] - 1, 0)), axis)
            total = np.concatenate([first, rest], axis)
        if attrs.reverse:
            total = np.flip(total, axis)
        return np.asarray(total).astype(made)

    return quiet(reference)


def _log_add_exp(a: Expr, b: Expr) -> Expr:
    """log(exp(a) + exp(b)); the same infinities twice have no difference."""
    high = build.select(a > b, a, b)
    more = t.log1p(t.exp(build.sub(0, t.abs(a - b))))
    return build.select(build.equal(a, b), a + build.const(math.log(2.0), a.dtype), high + more)


def _log_sum_exps(values: Array, axis: int, dtype: Any) -> Array:
    found: Array = np.logaddexp.accumulate(values, axis=axis, dtype=dtype)
    return found


_CASES = [
    Case(((2, 3, 4),), {"axis": 1}),
    Case(((2, 5),), {"axis": -1, "exclusive": True}),
    Case((((4, 3), "int32"),), {"axis": 0, "reverse": True}),
    Case((((6,), "int8"),), {"axis": 0, "exclusive": True, "reverse": True}),
    Case(((3, 2),)),
    Case((((2, 3), "bool"),), {"dtype": "int32", "axis": 1}),
    Case((((40,), "float16"),), tolerance=2e-3),
    Case(((2, 0),), {"axis": 1, "exclusive": True}),
    Case((np.array(3.0, "float32"),)),
    Case(((2, 3, 2, 70),), {"axis": 1, "reverse": True}),
    Case((((3, 64), "float16"),), {"axis": 0, "exclusive": True}, tolerance=2e-3),
    Case(((2, 75, 5),), {"axis": 1, "reverse": True}),
    Case(((3, 7, 5, 4),), {"axis": -4, "exclusive": True}),
]

register(OpRecord(
    "cumsum",
    inputs=("data",),
    attrs=ScanopAttrs,
    infer=_infer,
    legalize=_with_one_inner_axis("cumsum"),
    compute=_compute("cumsum", build.add, 0),
    compute_by_threads=_compute_by_threads("cumsum", build.add, 0),
    reference=_reference(np.cumsum, 0),
    pattern=OPAQUE,
    mixed_precision="never",
    cases=_CASES,
    doc="For each element the sum of all up to it along an axis, or without it; all elements in a "
        "row if there is no axis. reverse: from the end.",
))

register(OpRecord(
    "cumprod",
    inputs=("data",),
    attrs=ScanopAttrs,
    infer=_infer,
    legalize=_with_one_inner_axis("cumprod"),
    compute=_compute("cumprod", build.mul, 1),
    compute_by_threads=_compute_by_threads("cumprod", build.mul, 1),
    reference=_reference(np.cumprod, 1),
    pattern=OPAQUE,
    mixed_precision="never",
    cases=_CASES,
    doc="For each element the product of all up to it along an axis, or without it; all elements "
        "in a row if there is no axis. reverse: from the end.",
))

register(OpRecord(
    "logcumsumexp",
    inputs=("data",),
    attrs=ScanopAttrs,
    infer=_infer_floats,
    legalize=_with_one_inner_axis("logcumsumexp"),
    compute=_compute("logcumsumexp", _log_add_exp, -math.inf),
    compute_by_threads=_compute_by_threads("logcumsumexp", _log_add_exp, -math.inf),
    reference=_reference(_log_sum_exps, -math.inf),
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case(((2, 75, 5),), {"axis": 1, "reverse": True}),
        Case(((2, 70),), {"axis": -1}),
        Case(((4, 3),), {"axis": 0, "exclusive": True}),
        Case((np.array([-np.inf, -np.inf, 1, np.inf, np.inf, np.nan, 2], "float32"),)),
        Case((((40,), "float16"),), tolerance=2e-3),
    ],
    doc="For each element the logarithm of the sum of the exponentials of all up to it along an "
        "axis, or without it; all elements in a row if there is no axis. reverse: from the end.",
))
