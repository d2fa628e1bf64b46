"""Depthwise convolutions of bytes by dot2, pairs of products in 16 bits: vpmaddubsw.

No sum of two rows may leave 16 bits. Vectors of channels whose weights are too large for that are
halved and taken twice.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.byte_pair_steps import fits_pairs
from sterna.schedule.contraction import Contraction
from sterna.schedule.depthwise_bytes_kernel import (
    DepthwiseKernel,
    pack_rows,
    rows_together,
    unpack_rows,
)
from sterna.schedule.dot4 import GROUP, INT32
from sterna.schedule.epilogue import Epilogue, Finish, extern_with
from sterna.schedule.implementation import (
    Candidate,
    Limits,
    PackedImplementation,
    Plan,
    expect_shape,
)
from sterna.schedule.implementations.depthwise_dot4 import (
    LEAST_LANES,
    expect_depthwise_of_bytes,
    is_depthwise_of_bytes,
    lanes_of,
)
from sterna.schedule.kernel import Processor
from sterna.te import Tensor
from sterna.tir import add_pairs, dot2
from sterna.tir.ir_builder import BufferVar, IRBuilder


def halved(packed: Array) -> tuple[Array, Array]:
    """Packed weights in at most two parts, and how many of these each vector of channels has."""
    *_, vectors, lanes, group = packed.shape
    pairs = packed.astype("int32").reshape(-1, vectors, lanes * group // 2, 2)
    fits: Array = np.all(fits_pairs(pairs), axis=(0, 2))
    values = packed.astype("int32")
    first = np.where(fits[:, None, None], values, values >> 1)
    parts = [first] if fits.all() else [first, values - first]
    return np.stack(parts).astype("int8"), np.where(fits, 1, 2).astype("int32")


class DepthwiseDot2(PackedImplementation):
    """Unsigned bytes by weights with a sign, most of which fit."""

    name = "depthwise_dot2"

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor, limits: Limits
    ) -> Sequence[Candidate]:
        lanes = processor.lanes(INT32)
        if not processor.prefers_dot2 or not _suits(made):
            return []
        if made.outputs % lanes or lanes < LEAST_LANES:
            return []
        parts = halved(pack_rows(made, weights[..., 0], lanes))
        each = made.window[1] * float(parts[1].mean()) + GROUP / rows_together(made)
        cycles = made.pixels * made.outputs / lanes * each / processor.threads
        return [Candidate(Plan(self.name), cycles, lambda: parts)]

    def expect(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        expect_depthwise_of_bytes(made)
        if not _suits(made):
            raise ValueError(f"data is uint8 and weight int8, not {made.data} and {made.weight}")
        (parts, *_), lanes = operands[0].concrete_shape, lanes_of(made, operands[0])
        vectors = made.outputs // lanes
        rows = (rows_together(made), made.window[1], vectors, lanes, GROUP)
        expect_shape(operands, (parts, *rows), (vectors,))
        if operands[1].dtype != INT32:
            raise ValueError(f"how many parts channels have is int32, not {operands[1].dtype}")

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        weight, parts = operands
        has = np.arange(len(weight))[:, None] < parts
        total = (weight.astype(np.int32) * has[:, None, None, :, None, None]).sum(axis=0)
        return unpack_rows(made, total)[..., None]

    def compute(
        self, made: Contraction, plan: Plan, out: TensorType, epilogue: Epilogue | None,
        data: Tensor, packed: Sequence[Tensor],
    ) -> Tensor:
        kernel = _PairsKernel(made, build.int_value(packed[0].shape[-2]) or 1)

        def write(ib: IRBuilder, buffers: Sequence[BufferVar], finish: Finish | None) -> None:
            first, weights, kernel.parts, result = buffers
            kernel.finish = finish
            kernel.write(ib, first, weights, result)

        name = "T_depthwise_dot2"
        return extern_with(epilogue, out, (data, *packed), write, name, kernel.describe())


def _suits(made: Contraction) -> bool:
    return is_depthwise_of_bytes(made) and made.data.is_uint and made.weight.is_int


class _PairsKernel(DepthwiseKernel):
    """The same loops over one part or two."""

    most_columns = 4
    parts: BufferVar
    number: Expr

    def _products(
        self, ib: IRBuilder, seen: BufferVar, weight: BufferVar, held: BufferVar, left: Expr,
        columns: int, block: Expr, vector: Expr,
    ) -> None:
        with ib.for_range(0, self.parts[block * self.vectors + vector], name="part") as self.number:
            super()._products(ib, seen, weight, held, left, columns, block, vector)

    def _factors(self, weight: BufferVar, at: tuple[Any, ...]) -> Expr:
        return super()._factors(weight, (self.number, *at))

    def _add(self, before: Expr, given: Expr, factors: Expr) -> Expr:
        return add_pairs(before, dot2(given, factors))


IMPLEMENTATION = DepthwiseDot2()
