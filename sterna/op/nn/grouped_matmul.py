"""nn.grouped_matmul: rows times the matrix of their group, as mixtures of experts have them.

Rows lie group after group; which ones belong to a group, only a run knows. A block of columns goes
through all groups, so that threads share columns and never rows; a group's rows come by register
tiles of some of them, and what is left over by ever smaller ones.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import expect_dim, not_empty, of_kind, same_dtype, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.indexing import INT32, as_index, dims_of
from sterna.op.nn._packed_columns import columns_of, without_filling
from sterna.op.nn._products_of_groups import one_by_one
from sterna.op.statements import filled, variable
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import Constant, RelayExpr, RelayExprLike, const
from sterna.relay.op import OPAQUE, Case, OpRecord, call, register
from sterna.schedule.products import narrowed, wide, widened
from sterna.target import Target, is_gpu
from sterna.target.for_schedules import processor_of
from sterna.te import Tensor, compute, if_then_else, reduce_axis
from sterna.te import min as te_min
from sterna.te import sum as te_sum
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.stmt import STAYS_ROLLED

# Rows of the register tiles: whole ones, then those of what is left, each at most once.
ROWS = 6
LEFT_OVER = (4, 2, 1)
# Columns of a block that no processor was asked about.
COLUMNS = 16
# Multiply-adds for which other threads are woken.
PARALLEL_PRODUCTS = 1 << 17


@attributes
class GroupedMatmulAttrs(Attrs):
    """Of nn.grouped_matmul."""

    columns: int = COLUMNS
    """Columns that are computed together."""
    packed: bool = False
    """Whether the matrices lie by blocks of so many columns: (group, block, row, column)."""

    def normalize(self) -> None:
        if self.columns < 1:
            raise ValueError(f"a block has 1 column or more, not {self.columns}")


def _infer(attrs: GroupedMatmulAttrs, data: Type, weight: Type, ends: Type) -> TensorType:
    rows = of_kind(tensor(data, "data", 2), "data", "float", "int", "uint")
    matrices = tensor(weight, "weight", 4 if attrs.packed else 3)
    same_dtype([rows, matrices], ["data", "weight"])
    not_empty(matrices, "weight", [0], "its groups are")
    last = of_kind(tensor(ends, "ends", 1), "ends", "int", "uint")
    expect_dim(last.shape[0], matrices.shape[0], "the length of ends, which are the groups,")
    expect_dim(matrices.shape[-2], rows.shape[1], "the rows of a matrix of weight")
    if not attrs.packed:
        return TensorType((rows.shape[0], matrices.shape[2]), rows.dtype)
    blocks, _, columns = matrices.concrete_shape[1:]
    expect_dim(columns, attrs.columns, "the columns of a block of weight")
    return TensorType((rows.shape[0], blocks * columns), rows.dtype)


# ---- one block of columns after the other ----


def _compute(
    attrs: GroupedMatmulAttrs, out: TensorType, data: Tensor, weight: Tensor, ends: Tensor
) -> Tensor:
    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        _Columns(attrs, ib, ins, result).write()

    return filled(out, [data, weight, ends], fill, "T_grouped_matmul")


class _Columns:
    """The statements, of which those for a tile are written once for each of its sizes."""

    def __init__(
        self, attrs: GroupedMatmulAttrs, ib: IRBuilder, ins: list[BufferVar], result: BufferVar
    ) -> None:
        self.attrs, self.ib, self.result = attrs, ib, result
        self.data, self.weight, self.ends = ins
        self.rows, self.depth = self.data.shape
        self.groups, self.total = self.weight.shape[0], result.shape[1]
        self.wide = wide(self.data.dtype)

    def write(self) -> None:
        """Whole blocks, and the columns behind them one by one."""
        ib, each = self.ib, self.attrs.columns
        whole = self.total // each
        extents = [build.int_value(n) for n in (self.rows, self.depth, self.total)]
        known = [n for n in extents if n is not None]
        is_small = len(known) == len(extents) and np.prod(known) < PARALLEL_PRODUCTS
        kind = "serial" if is_small else "parallel"
        with ib.for_range(0, whole, name="block", kind=kind) as block:
            self._all_groups(block, each)
        if build.int_value(self.total % each) != 0:
            with ib.for_range(whole * each, self.total, name="column") as column:
                self._all_groups(column, 1)

    def _all_groups(self, block: Expr, width: int) -> None:
        """So many columns of all rows; those behind the last group are zeros."""
        ib = self.ib
        first = variable(ib, INT32, "first", 0)
        with ib.for_range(0, self.groups, name="group", annotations={STAYS_ROLLED: 1}) as group:
            end = ib.let("end", build.maximum(
                first.get(), build.minimum(as_index(self.ends[group]), as_index(self.rows))))
            with ib.for_range(
                0, (end - first.get()) // ROWS, name="tile", annotations={STAYS_ROLLED: 1}
            ) as tile:
                self._tile(group, block, first.get() + tile * ROWS, ROWS, width)
            left = ib.let("left", (end - first.get()) % ROWS)
            begin = variable(ib, INT32, "begin", end - left)
            for rows in LEFT_OVER:
                with ib.if_scope(build.greater_equal(end - begin.get(), rows)):
                    self._tile(group, block, begin.get(), rows, width)
                    begin.set(begin.get() + rows)
            first.set(end)
        with ib.for_range(first.get(), self.rows, name="row") as row, self._units(width) as unit:
            self.result[row, block * width + unit] = build.const(0, self.result.dtype)

    def _tile(self, group: Expr, block: Expr, begin: Expr, rows: int, width: int) -> None:
        """So many rows times as many columns, in registers."""
        ib = self.ib
        with ib.new_scope():
            first = ib.let("row", begin)
            sums = ib.allocate(self.wide, (rows, width), name="sums", scope="local")
            with self._each(rows, width) as (row, unit):
                sums[row, unit] = build.const(0, self.wide)
            with ib.for_range(0, self.depth, name="k") as k, self._each(rows, width) as (row, unit):
                own = build.cast(self.wide, self.data[first + row, k])
                other = build.cast(self.wide, self._weight(group, block, k, unit, width))
                sums[row, unit] = sums[row, unit] + own * other
            with self._each(rows, width) as (row, unit):
                made = build.cast(self.result.dtype, sums[row, unit])
                self.result[first + row, block * width + unit] = made

    def _weight(self, group: Expr, block: Expr, k: Expr, unit: Expr, width: int) -> Expr:
        if self.attrs.packed:
            return self.weight[group, block, k, unit]
        return self.weight[group, k, block * width + unit]

    @contextmanager
    def _each(self, rows: int, width: int) -> Iterator[tuple[Expr, Expr]]:
        with (
            self.ib.for_range(0, rows, name="row", kind="unroll") as row,
            self._units(width) as unit,
        ):
            yield row, unit

    @contextmanager
    def _units(self, width: int) -> Iterator[Expr]:
        kind = "vectorize" if width > 1 else "serial"
        with self.ib.for_range(0, width, name="unit", kind=kind) as unit:
            yield unit


# ---- every element by itself ----


def _compute_by_threads(
    attrs: GroupedMatmulAttrs, out: TensorType, data: Tensor, weight: Tensor, ends: Tensor
) -> list[Tensor]:
    rows, depth = dims_of(data)
    groups = dims_of(weight)[0]
    g, k = reduce_axis((0, groups), "g"), reduce_axis((0, depth), "k")
    dtype = wide(out.dtype)
    of_row = compute(
        (rows,),
        lambda row: te_min(build.select(as_index(ends(g)) > row, g.var, groups), axis=g),
        name="T_group_of_row",
    )

    def element(row: Expr, column: Expr) -> Any:
        group = build.minimum(of_row(row), groups - 1)
        other = weight(group, column // attrs.columns, k, column % attrs.columns) \
            if attrs.packed else weight(group, k, column)
        has = of_row(row) < groups
        product = build.cast(dtype, data(row, k)) * build.cast(dtype, other)
        return te_sum(if_then_else(has, product, build.const(0, dtype)), axis=k)

    total = compute(out.shape, element, name="T_grouped_matmul")
    return [narrowed(total, out.dtype, "T_narrowed")]


# ---- how a processor runs it ----


def _legalize(
    attrs: GroupedMatmulAttrs, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """Blocks of as many columns as registers hold, of which constants are packed.

    On a GPU, products of the groups.
    """
    data, weight, ends = args
    if target is None or attrs.packed or attrs.columns != COLUMNS:
        return None
    if is_gpu(target):
        return one_by_one(data, weight, ends)
    kind = tensor_type(weight)
    total = build.int_value(kind.shape[2])
    columns = columns_of(processor_of(target), wide(kind.dtype), ROWS + 1, total)
    is_packed = isinstance(weight, Constant) and bool(total) and columns > 1
    if not is_packed:
        changed = columns != attrs.columns
        return call("nn.grouped_matmul", *args, columns=columns) if changed else None
    assert isinstance(weight, Constant) and total is not None
    made = call(
        "nn.grouped_matmul", data, const(packed(to_numpy(weight.data), columns)), ends,
        columns=columns, packed=True,
    )
    return without_filling(made, total, columns)


def packed(weight: Array, columns: int) -> Array:
    """Matrices (group, row, column) by blocks of columns, the last of which is filled up."""
    groups, depth, total = weight.shape
    whole = np.pad(weight, [(0, 0), (0, 0), (0, -total % columns)])
    blocks = whole.reshape(groups, depth, -1, columns).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(blocks)


# ---- the record ----


def _reference(attrs: GroupedMatmulAttrs, data: Array, weight: Array, ends: Array) -> Array:
    a, b = (widened(part, str(data.dtype)) for part in (data, weight))
    if attrs.packed:
        b = b.transpose(0, 2, 1, 3).reshape(len(b), b.shape[2], -1)
    made, first = np.zeros((len(a), b.shape[2]), a.dtype), 0
    for matrix, told in zip(b, ends, strict=True):
        end = max(first, min(int(told), len(a)))
        made[first:end] = a[first:end] @ matrix
        first = end
    return made.astype(data.dtype)


def _macs(
    attrs: GroupedMatmulAttrs, out: TensorType, data: TensorType, *others: TensorType
) -> int:
    rows, depth = data.concrete_shape
    return rows * depth * out.concrete_shape[1]


def _grouped_matmul(data: RelayExprLike, weight: RelayExprLike, ends: RelayExprLike) -> Any:
    """Each row of data times the matrix of its group: mixtures of experts.

    data is (rows, depth), weight (groups, depth, columns). Rows lie group after group, and ends
    says before which row each group ends; rows behind the last give zeros.
    """
    return make("nn.grouped_matmul", data, weight, ends)


def _case(rows: int, depth: int, total: int, ends: list[int], dtype: str = "float32",
          **attrs: Any) -> Case:
    shape: tuple[int, ...] = (len(ends), depth, total)
    if attrs:
        shape = (len(ends), total // attrs["columns"], depth, attrs["columns"])
    tolerance = 1e-2 if dtype == "float16" else 1e-5
    return Case((((rows, depth), dtype), (shape, dtype), np.array(ends, "int32")), attrs, tolerance)


register(OpRecord(
    "nn.grouped_matmul",
    inputs=("data", "weight", "ends"),
    attrs=GroupedMatmulAttrs,
    infer=_infer,
    compute=_compute,
    compute_by_threads=_compute_by_threads,
    reference=_reference,
    legalize=_legalize,
    builder=_grouped_matmul,
    macs=_macs,
    pattern=OPAQUE,
    mixed_precision="always",
    cases=[
        _case(17, 5, 35, [7, 7, 10, 17]),
        _case(9, 4, 16, [3, 20, 2]),
        _case(12, 3, 8, [1, 6, 9], columns=4, packed=True),
        _case(6, 4, 20, [4, 6], "float16"),
        _case(6, 4, 3, [4, 5], "int32"),
    ],
    doc=_grouped_matmul.__doc__ or "",
))
