"""Depthwise convolutions of bytes by dot2, pairs of products in 16 bits: vpmaddubsw.

No sum of two rows may leave 16 bits. Vectors of channels whose weights are too large for that are
halved and taken twice.
"""

from collections.abc import Sequence

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.byte_pair_steps import fits_pairs
from sterna.schedule.contraction import Contraction
from sterna.schedule.depthwise_bytes_kernel import (
    DepthwiseKernel,
    Tile,
    pack_rows,
    packed_shape,
    rows_together,
)
from sterna.schedule.dot4 import GROUP, INT32
from sterna.schedule.implementation import Candidate, Plan, expect_shape
from sterna.schedule.implementations.depthwise_dot4 import LEAST_LANES, DepthwiseDot4, lanes_of
from sterna.schedule.kernel import Processor
from sterna.te import Tensor
from sterna.tir import add_pairs, dot2
from sterna.tir.ir_builder import BufferVar


def halved(packed: Array) -> tuple[Array, Array]:
    """Packed weights in at most two parts, and how many of these each vector of channels has."""
    *_, vectors, lanes, group = packed.shape
    values = packed.astype("int32")
    pairs = values.reshape(-1, vectors, lanes * group // 2, 2)
    fits: Array = np.all(fits_pairs(pairs), axis=(0, 2))
    first = np.where(fits[:, None, None], values, values >> 1)
    parts = [first] if fits.all() else [first, values - first]
    return np.stack(parts).astype("int8"), np.where(fits, 1, 2).astype("int32")


class DepthwiseDot2(DepthwiseDot4):
    """Unsigned bytes by weights with a sign, most of which fit."""

    name = "depthwise_dot2"
    wants = "a depthwise convolution of uint8 by int8"

    def suits(self, made: Contraction) -> bool:
        return super().suits(made) and made.data.is_uint and made.weight.is_int

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        lanes = processor.lanes(INT32)
        if not processor.prefers_dot2 or not self.suits(made):
            return []
        if made.outputs % lanes or lanes < LEAST_LANES:
            return []
        parts = halved(pack_rows(made, weights[..., 0], lanes))
        each = made.window[1] * float(parts[1].mean()) + GROUP / rows_together(made)
        cycles = made.pixels * made.outputs / lanes * each / processor.threads
        return [Candidate(Plan(self.name), cycles, lambda: parts)]

    def expect_types(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        (parts, *_), lanes = operands[0].concrete_shape, lanes_of(made, operands[0])
        expect_shape(operands, (parts, *packed_shape(made, lanes)), (made.outputs // lanes,))
        if operands[1].dtype != INT32:
            raise ValueError(f"how many parts channels have is int32, not {operands[1].dtype}")

    def expect_values(
        self, made: Contraction, plan: Plan, operands: Sequence[Array | None]
    ) -> None:
        weight, parts = operands
        if weight is None or parts is None:
            raise ValueError("weights and how many parts channels have are constants of the graph")
        if parts.min() < 0 or parts.max() > len(weight):
            raise ValueError(f"weights have {len(weight)} parts, channels {parts.tolist()} of them")

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        weight, parts = operands
        has = np.arange(len(weight))[:, None] < parts
        total = (weight.astype(np.int32) * has[:, None, None, :, None, None]).sum(axis=0)
        return super().unpack(made, plan, (total,))

    def kernel(
        self, made: Contraction, plan: Plan, out: TensorType, packed: Sequence[Tensor]
    ) -> DepthwiseKernel:
        return _PairsKernel(made, build.int_value(packed[0].shape[-2]) or 1)


class _PairsKernel(DepthwiseKernel):
    """The same loops over one part or two."""

    most_columns = 4

    def add_products(
        self, tile: Tile, held: BufferVar, vector: Expr, part: tuple[Expr, ...] = ()
    ) -> None:
        (parts,) = self.beside
        count = parts[tile.piece.block * self.vectors + vector]
        with self.ib.for_range(0, count, name="part") as number:
            super().add_products(tile, held, vector, (number,))

    def add(self, before: Expr, given: Expr, factors: Expr) -> Expr:
        return add_pairs(before, dot2(given, factors))


IMPLEMENTATION = DepthwiseDot2()
