"""nn.blockwise_dense: rows times weights of few bits, with a scale for each block of a row.

Weights stay in their bits in memory, which is all that a row at a time waits for: they are widened
as they come into registers, for some rows together. Many rows share a panel that is widened once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import expect_dim, of_kind, same_dtype, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.indexing import dims_of
from sterna.op.nn._packed_columns import columns_of, without_filling
from sterna.op.statements import filled
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import Constant, RelayExpr, RelayExprLike, const
from sterna.relay.op import OPAQUE, Case, OpRecord, call, register
from sterna.schedule.products import narrowed
from sterna.support.dtype import DataType
from sterna.target import Target, is_gpu
from sterna.target.for_schedules import processor_of
from sterna.te import Tensor, compute, reduce_axis
from sterna.te import sum as te_sum
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.stmt import STAYS_ROLLED

FLOAT = "float32"
# Rows that share what is widened: in registers, and by a panel.
ROWS, LEFT_OVER = 4, (2, 1)
PANEL_ROWS = 6
# From so many rows on, a panel costs less than widening for each tile.
MANY = 12
# Multiply-adds for which other threads are woken.
PARALLEL_PRODUCTS = 1 << 17


@attributes
class BlockwiseDenseAttrs(Attrs):
    """Of nn.blockwise_dense."""

    bits: int = 4
    columns: int = 0
    """Units that lie side by side in packed weights, (block of units, number, unit), each byte with
    what follows each other in a unit's row; 0: (unit, byte), as models have them."""

    def normalize(self) -> None:
        if self.bits not in (2, 4, 8):
            raise ValueError(f"weights have 2, 4 or 8 bits, not {self.bits}")
        if self.columns < 0:
            raise ValueError(f"columns is 0 or more, not {self.columns}")


def _infer(
    attrs: BlockwiseDenseAttrs, data: Type, weight: Type, scale: Type, zero: Type
) -> TensorType:
    rows = of_kind(tensor(data, "data", 2), "data", "float")
    rank = 3 if attrs.columns else 2
    packed = tensor(weight, "weight", rank)
    if packed.dtype != "uint8":
        raise ValueError(f"weight is bytes (uint8) of {attrs.bits} bits each, not {packed.dtype}")
    scales, zeros = tensor(scale, "scale", rank), tensor(zero, "zero", rank)
    same_dtype([rows, scales, zeros], ["data", "scale", "zero"])
    for have, want in zip(zeros.shape, scales.shape, strict=True):
        expect_dim(have, want, "an extent of zero, which is as that of scale,")
    blocks = scales.concrete_shape[1]
    depth = packed.concrete_shape[1] * 8 // attrs.bits
    expect_dim(rows.shape[1], depth, "the numbers of a row of weight")
    expect_dim(scales.shape[0], packed.shape[0], "the units of scale")
    if not blocks or depth % blocks or depth // blocks * attrs.bits % 8:
        raise ValueError(f"{depth} numbers of {attrs.bits} bits are not {blocks} blocks of bytes")
    units = packed.concrete_shape[0] * (attrs.columns or 1)
    if attrs.columns:
        expect_dim(packed.shape[2], attrs.columns, "the columns of weight")
    return TensorType((rows.shape[0], units), rows.dtype)


def _level(attrs: BlockwiseDenseAttrs, byte: Expr, place: Expr | int) -> Expr:
    """The number at a place of a byte, the first in the lowest bits."""
    wide = build.cast("int32", byte)
    return (wide >> (place * attrs.bits)) & ((1 << attrs.bits) - 1)


# ---- packed weights on a processor ----


def _compute(
    attrs: BlockwiseDenseAttrs, out: TensorType, data: Tensor, weight: Tensor, scale: Tensor,
    zero: Tensor,
) -> Tensor:
    if not attrs.columns:
        return _of_elements(attrs, out, data, weight, scale, zero)

    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        _Units(attrs, ib, ins, result).write()

    return filled(out, [data, weight, scale, zero], fill, "T_blockwise_dense")


class _Units:
    """The statements: a block of units after the other, which threads share."""

    def __init__(
        self, attrs: BlockwiseDenseAttrs, ib: IRBuilder, ins: list[BufferVar], result: BufferVar
    ) -> None:
        self.attrs, self.ib, self.result = attrs, ib, result
        self.data, self.weight, self.scale, self.zero = ins
        self.rows, self.depth = self.data.shape
        self.blocks = self.scale.shape[1]
        self.each = 8 // attrs.bits
        self.bytes = self.depth // self.blocks // self.each

    def write(self) -> None:
        """By tiles of few rows, or by a panel; open rows decide as they come."""
        ib = self.ib
        rows, work = build.int_value(self.rows), PARALLEL_PRODUCTS
        depth, units = build.int_value(self.depth), build.int_value(self.result.shape[1])
        if rows is not None and depth is not None and units is not None:
            work = rows * depth * units
        kind = "serial" if work < PARALLEL_PRODUCTS else "parallel"
        with ib.for_range(0, self.weight.shape[0], name="block", kind=kind) as block:
            if rows is not None:
                (self._by_panel if rows >= MANY else self._by_tiles)(block)
                return
            many = build.greater_equal(self.rows, MANY)
            with ib.if_scope(many):
                self._by_panel(block)
            with ib.if_scope(build.logical_not(many)):
                self._by_tiles(block)

    # ---- few rows ----

    def _by_tiles(self, block: Expr) -> None:
        whole = self.rows // ROWS * ROWS
        if build.int_value(whole) != 0:
            with self._rolled(0, self.rows // ROWS, "tile") as tile:
                self._tile(block, tile * ROWS, ROWS)
        first: Expr = build.as_expr(whole)
        for count in LEFT_OVER:
            left = self.rows % (2 * count) // count
            if build.int_value(left) == 0:
                continue
            with self.ib.if_scope(build.equal(left, 1)):
                self._tile(block, first, count)
            first = first + left * count

    def _tile(self, block: Expr, first: Expr, count: int) -> None:
        """So many rows times the units of a block."""
        ib, zero = self.ib, build.const(0, FLOAT)
        with ib.new_scope():
            sums = self._registers(count, "sums")
            with self._all(count) as (row, unit):
                sums[row, unit] = zero
            with self._rolled(0, self.blocks, "part") as part:
                some = self._registers(count, "some")
                with self._all(count) as (row, unit):
                    some[row, unit] = zero
                with self._rolled(0, self.bytes, "byte") as byte:
                    at = part * self.bytes + byte
                    for place in range(self.each):
                        with self._all(count) as (row, unit):
                            level = _level(self.attrs, self.weight[block, at, unit], place)
                            less = build.cast(FLOAT, level) - self._float(
                                self.zero, block, part, unit)
                            own = build.cast(FLOAT, self.data[first + row, at * self.each + place])
                            some[row, unit] = some[row, unit] + own * less
                with self._all(count) as (row, unit):
                    scale = self._float(self.scale, block, part, unit)
                    sums[row, unit] = sums[row, unit] + some[row, unit] * scale
            self._store(block, first, count, sums)

    # ---- many rows ----

    def _by_panel(self, block: Expr) -> None:
        """All weights of a block of units widened, and read for every tile of rows."""
        ib, width = self.ib, self.attrs.columns
        panel = ib.allocate(FLOAT, (self.depth, width), name="panel")
        with self._rolled(0, self.blocks, "part") as part, self._rolled(
            0, self.bytes, "byte"
        ) as byte:
            at = part * self.bytes + byte
            for place in range(self.each):
                with self._units() as unit:
                    level = _level(self.attrs, self.weight[block, at, unit], place)
                    less = build.cast(FLOAT, level) - self._float(self.zero, block, part, unit)
                    scale = self._float(self.scale, block, part, unit)
                    panel[at * self.each + place, unit] = less * scale
        with self._rolled(0, self.rows // PANEL_ROWS, "tile") as tile:
            self._panel_tile(panel, block, tile * PANEL_ROWS, PANEL_ROWS)
        left = self.rows % PANEL_ROWS
        if build.int_value(left) != 0:
            with self._rolled(self.rows - left, self.rows, "row") as row:
                self._panel_tile(panel, block, row, 1)

    def _panel_tile(self, panel: BufferVar, block: Expr, first: Expr, count: int) -> None:
        with self.ib.new_scope():
            sums = self._registers(count, "sums")
            with self._all(count) as (row, unit):
                sums[row, unit] = build.const(0, FLOAT)
            with self._rolled(0, self.depth, "k") as k, self._all(count) as (row, unit):
                own = build.cast(FLOAT, self.data[first + row, k])
                sums[row, unit] = sums[row, unit] + own * panel[k, unit]
            self._store(block, first, count, sums)

    # ---- what both are made of ----

    def _store(self, block: Expr, first: Expr, count: int, sums: BufferVar) -> None:
        with self._all(count) as (row, unit):
            made = build.cast(self.result.dtype, sums[row, unit])
            self.result[first + row, block * self.attrs.columns + unit] = made

    def _float(self, source: BufferVar, block: Expr, part: Expr, unit: Expr) -> Expr:
        return build.cast(FLOAT, source[block, part, unit])

    def _registers(self, count: int, name: str) -> BufferVar:
        return self.ib.allocate(FLOAT, (count, self.attrs.columns), name=name, scope="local")

    @contextmanager
    def _rolled(self, begin: Any, end: Any, name: str) -> Iterator[Expr]:
        with self.ib.for_range(begin, end, name=name, annotations={STAYS_ROLLED: 1}) as number:
            yield number

    @contextmanager
    def _units(self) -> Iterator[Expr]:
        with self.ib.for_range(0, self.attrs.columns, name="unit", kind="vectorize") as unit:
            yield unit

    @contextmanager
    def _all(self, count: int) -> Iterator[tuple[Expr, Expr]]:
        with self.ib.for_range(0, count, name="row", kind="unroll") as row, self._units() as unit:
            yield row, unit


# ---- every element by itself ----


def _of_elements(
    attrs: BlockwiseDenseAttrs, out: TensorType, data: Tensor, weight: Tensor, scale: Tensor,
    zero: Tensor,
) -> Tensor:
    rows, depth = dims_of(data)
    blocks, each = dims_of(scale)[1], 8 // attrs.bits
    k = reduce_axis((0, depth), "k")

    def element(row: Expr, unit: Expr) -> Any:
        where = (unit // attrs.columns, unit % attrs.columns) if attrs.columns else (unit,)

        def at(source: Tensor, place: Expr) -> Expr:
            return source(where[0], place, *where[1:])

        part = k.var // (depth // blocks)
        level = build.cast(FLOAT, _level(attrs, at(weight, k.var // each), k.var % each))
        less = level - build.cast(FLOAT, at(zero, part))
        own = build.cast(FLOAT, at(scale, part)) * build.cast(FLOAT, data(row, k))
        return te_sum(less * own, axis=k)

    total: Tensor = compute((rows, out.shape[1]), element, name="T_blockwise_dense")
    return narrowed(total, out.dtype, "T_narrowed")


def _compute_by_threads(
    attrs: BlockwiseDenseAttrs, out: TensorType, *operands: Tensor
) -> list[Tensor]:
    return [_of_elements(attrs, out, *operands)]


# ---- how a processor runs it ----


def _legalize(
    attrs: BlockwiseDenseAttrs, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """Known weights with as many units side by side as a tile has registers for."""
    data, *known = args
    if target is None or is_gpu(target) or attrs.columns:
        return None
    if not all(isinstance(part, Constant) for part in known):
        return None
    units = tensor_type(known[0]).concrete_shape[0]
    columns = columns_of(processor_of(target), DataType(FLOAT), ROWS + 2, units)
    arrays = [to_numpy(part.data) for part in known if isinstance(part, Constant)]
    operands = [const(packed(array, columns)) for array in arrays]
    made = call("nn.blockwise_dense", data, *operands, bits=attrs.bits, columns=columns)
    return without_filling(made, units, columns)


def packed(array: Array, columns: int) -> Array:
    """(unit, number) as (block of units, number, unit), the last of which is filled up."""
    whole = np.pad(array, [(0, -len(array) % columns), (0, 0)])
    return np.ascontiguousarray(whole.reshape(-1, columns, array.shape[1]).transpose(0, 2, 1))


# ---- the record ----


def _reference(
    attrs: BlockwiseDenseAttrs, data: Array, weight: Array, scale: Array, zero: Array
) -> Array:
    if attrs.columns:
        weight, scale, zero = (
            part.transpose(0, 2, 1).reshape(len(part) * attrs.columns, part.shape[1])
            for part in (weight, scale, zero)
        )
    shifts = np.arange(0, 8, attrs.bits, dtype="uint8")
    levels = (weight[..., None] >> shifts) & ((1 << attrs.bits) - 1)
    depth = data.shape[1]
    blocks = levels.reshape(*scale.shape, depth // scale.shape[1]).astype("float64")
    whole = (blocks - zero[..., None]) * scale[..., None]
    made: Array = data.astype("float64") @ whole.reshape(len(weight), depth).T
    return made.astype(data.dtype)


def _macs(
    attrs: BlockwiseDenseAttrs, out: TensorType, data: TensorType, *others: TensorType
) -> int:
    rows, depth = data.concrete_shape
    return rows * depth * out.concrete_shape[1]


def _blockwise_dense(
    data: RelayExprLike, weight: RelayExprLike, scale: RelayExprLike, zero: RelayExprLike,
    bits: int = 4,
) -> Any:
    """data times the transpose of weights of 2, 4 or 8 bits, each (level - zero) * scale.

    data is (rows, depth), weight bytes (units, depth * bits / 8) whose lowest bits come first,
    scale and zero (units, blocks): one of each for the numbers of a block.
    """
    return make("nn.blockwise_dense", data, weight, scale, zero, bits=bits)


def _case(rows: int, depth: int, units: int, blocks: int, bits: int, dtype: str = FLOAT,
          columns: int = 0) -> Case:
    def shape(numbers: int) -> tuple[int, ...]:
        return (units // columns, numbers, columns) if columns else (units, numbers)

    scales = (shape(blocks), dtype)
    inputs = (((rows, depth), dtype), (shape(depth * bits // 8), "uint8"), scales, scales)
    attrs = {"bits": bits, "columns": columns}
    return Case(inputs, attrs, 2e-2 if dtype == "float16" else 1e-4)


register(OpRecord(
    "nn.blockwise_dense",
    inputs=("data", "weight", "scale", "zero"),
    attrs=BlockwiseDenseAttrs,
    infer=_infer,
    compute=_compute,
    compute_by_threads=_compute_by_threads,
    reference=_reference,
    legalize=_legalize,
    builder=_blockwise_dense,
    macs=_macs,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        _case(3, 16, 5, 2, 4),
        _case(7, 16, 8, 2, 4, columns=4),
        _case(13, 8, 8, 2, 2, columns=8),
        _case(2, 8, 4, 1, 8, "float16", columns=4),
    ],
    doc=_blockwise_dense.__doc__ or "",
))
