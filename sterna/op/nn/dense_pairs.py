"""A dense layer of bytes by an instruction that adds products in pairs of 16 bits.

It is a convolution of single pixels, the rows of its data: nn.dense_pair_dots.
"""

import math
from itertools import pairwise
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import at_least
from sterna.op.nn._byte_pair_kernel import (
    LEAST_LANES,
    SEEN_BYTES,
    SIGN,
    Four,
    PairTiles,
    channels_of,
    cheapest_steps,
    lifted,
    runs_of,
    sample_steps,
    steps_as_constants,
)
from sterna.op.nn._dense_layout import plain_weight
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.relay.op import call as call_of
from sterna.schedule.amx_kernel import places_of
from sterna.schedule.default import schedule_as_written
from sterna.schedule.dot4 import GROUP, INT32, are_bytes, dot_lanes
from sterna.schedule.epilogue import Epilogue
from sterna.schedule.kernel import Processor
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


def dense_by_pairs(call: Call, processor: Processor) -> RelayExpr | None:
    """Rows of bytes in whole groups, with known weights."""
    data, weight, out = call.args[0].checked_type, call.args[1], call.checked_type
    if not processor.prefers_dot2 or not isinstance(weight, Constant):
        return None
    assert isinstance(data, TensorType) and isinstance(out, TensorType)
    kind = weight.checked_type
    assert isinstance(kind, TensorType)
    if not are_bytes(data, kind) or not kind.dtype.is_int or out.dtype != INT32:
        return None
    plain = plain_weight(call.attrs, to_numpy(weight.data))
    units, depth = plain.shape
    lanes = dot_lanes(units, processor)
    if lanes < LEAST_LANES or depth % GROUP or not data.is_static or len(data.shape) < 2:
        return None
    if 0 in data.concrete_shape:
        return None
    steps = cheapest_steps(plain.reshape(units, -1, GROUP), lanes)
    if steps is None:
        return None
    constants = steps_as_constants(steps, np.arange(0, depth, GROUP), lanes)
    made: RelayExpr = call_of("nn.dense_pair_dots", call.args[0], *constants)
    return made if data.dtype.is_uint else call_of("subtract", made, lifted(plain))


def _infer(attrs: None, data: Type, weight: Type, places: Type, starts: Type) -> TensorType:
    x = at_least(data, "data", 2)
    return TensorType((*x.shape[:-1], channels_of(x, weight, places, starts)), INT32)


def _reference(attrs: None, data: Array, weight: Array, places: Array, starts: Array) -> Array:
    """A product of matrices for each group of each panel."""
    x = data.astype(np.int32) + (SIGN if data.dtype == np.int8 else 0)
    panel = weight.shape[1] * weight.shape[2]
    total = np.zeros((*data.shape[:-1], (len(starts) - 1) * panel), np.int32)
    for number, (first, last) in enumerate(pairwise(starts[:, 0])):
        own = total[..., number * panel : (number + 1) * panel]
        for group in range(first, last):
            seen = x[..., places[group] : places[group] + GROUP]
            own += seen @ weight[group].reshape(panel, GROUP).T.astype(np.int32)
    return total


def _macs(
    attrs: None, out: TensorType, data: TensorType, weight: TensorType, places: TensorType,
    starts: TensorType,
) -> int:
    return math.prod(out.concrete_shape) * data.concrete_shape[-1]


def _compute(attrs: None, out: TensorType, *operands: Tensor) -> Tensor:
    return _compute_with(attrs, out, None, *operands)


def _compute_with(
    attrs: None, out: TensorType, epilogue: Epilogue | None, *operands: Tensor
) -> Tensor:
    kernel = _Kernel(out, *operands)
    return kernel.tensor(epilogue, out, operands, "T_dense_pair_dots")


class _Kernel(PairTiles):
    """The statements of a dense layer: some rows and some channels after the other."""

    def __init__(
        self, out: TensorType, data: Tensor, weight: Tensor, places: Tensor, starts: Tensor
    ) -> None:
        *self.outer, units = out.concrete_shape
        self.every = math.prod(self.outer)
        self.depth = build.int_value(data.shape[-1]) or 1
        super().__init__(data, weight, units, self.every)
        fitting = max(1, SEEN_BYTES // (self.rows * self.depth))
        tiles = -(-self.every // self.rows)
        self.band = -(-tiles // -(-tiles // fitting)) * self.rows
        self.bands = -(-self.every // self.band)
        self.shares = self.shares_of(units // self.block, self.bands)
        self.blocks = units // self.block // self.shares

    def describe(self) -> str:
        return (
            f"pairs of bytes, {self.rows} rows x {self.vectors * self.lanes} units in registers, "
            f"{self.band} rows x {self.blocks * self.block} units at a time"
        )

    def write(self, ib: IRBuilder, data: BufferVar) -> None:
        """Bands of rows; only the last may end within a tile."""
        with ib.for_range(0, self.bands * self.shares, name="piece", kind="parallel") as piece:
            share, first = piece % self.shares, piece // self.shares * self.band
            count = build.minimum(self.band, self.every - first)
            with ib.new_scope():
                seen = self._seen(ib, data, first, count)
                with ib.for_range(0, self.blocks, name="block") as number:
                    block = share * self.blocks + number
                    with ib.for_range(0, count // self.rows, name="across") as across:
                        self._some(ib, seen, first, across * self.rows, self.rows, block)
                    if rest := self.every % self.rows:
                        with ib.if_scope(count % self.rows > 0):
                            self._some(ib, seen, first, count - rest, rest, block)

    def _seen(self, ib: IRBuilder, data: BufferVar, first: Expr, count: Expr) -> Four:
        """four(row, place): bytes of a row of the band, without a sign."""
        kind = f"uint8x{GROUP}"

        def given(row: Any, place: Any, kind: str) -> Expr:
            return data.buffer.vload((*places_of(first + row, self.outer), place), kind)

        if self.kind.is_uint:
            return lambda row, place: given(row, place, kind)
        seen = ib.allocate("uint8", (self.band, self.depth), name="seen")
        with ib.for_range(0, count, name="row") as row:
            for place, length in runs_of(self.depth, self.lanes * GROUP):
                part = given(row, place, f"{self.kind}x{length}")
                ib.emit(seen.buffer.vstore((row, place), self.unsigned(part, length)))
        return lambda row, place: seen.buffer.vload((row, place), kind)

    def _some(
        self, ib: IRBuilder, seen: Four, first: Expr, left: Expr, rows: int, block: Expr
    ) -> None:
        """So many rows of a band."""
        self.tile(ib, lambda row, place: seen(left + row, place), rows, block,
                  lambda row: places_of(first + left + row, self.outer))


register(OpRecord(
    "nn.dense_pair_dots",
    inputs=("data", "weight", "places", "starts"),
    infer=_infer,
    compute=_compute,
    compute_with=_compute_with,
    reference=_reference,
    macs=_macs,
    pattern=OUT_ELEMWISE_FUSABLE,
    schedule=schedule_as_written,
    mixed_precision="never",
    cases=[
        Case((((3, 3, 8), "uint8"), *sample_steps((32, 2, GROUP), np.arange(0, 8, GROUP), 2)), {}),
        Case((((7, 12), "int8"), *sample_steps((24, 3, GROUP), np.arange(0, 12, GROUP), 3)), {}),
    ],
    doc="A dense layer of bytes; its weights lie in steps whose products fit 16 bits. Data with a "
        "sign counts 128 more.",
))
