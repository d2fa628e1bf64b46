"""Depthwise convolutions of bytes, four channels in a vector (MVE)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.across_steps import MOST_SUMS, QUAD, REACH
from sterna.schedule.choose import choose
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import INT32
from sterna.schedule.implementation import Candidate, PackedImplementation, Plan, expect_shape
from sterna.schedule.implementations.across import CALLED
from sterna.schedule.kernel import Processor
from sterna.schedule.quad_kernel import (
    MOST_KEPT,
    QuadKernel,
    band_rows,
    plane_columns,
    plane_height,
)
from sterna.te import Tensor


@dataclass(frozen=True, slots=True)
class Instructions:
    """What parts of such a kernel take, by MVE or in plain C."""

    copied: int
    """Four bytes that are copied."""
    repeated: int
    """The same where several channels read one."""
    finished: int
    """Four sums that are rounded and stored."""
    product: int
    """Four products."""
    lanes: int
    """Passes in which four channels are summed."""


MVE = Instructions(copied=5, repeated=14, finished=15, product=3, lanes=1)
# Rounding and storing is what loops in plain C take too, and is not counted there.
PLAIN = Instructions(copied=14, repeated=14, finished=12, product=2, lanes=QUAD)


class Quads(PackedImplementation):
    """Channels last, any window."""

    name = "quads"
    wants = "a depthwise convolution of int8 with its channels last"

    def suits(self, made: Contraction) -> bool:
        kinds = {str(made.data), str(made.weight)} == {"int8"} and made.out == INT32
        places = made.multiplier > 0 and made.channels_last and not made.transposed
        return kinds and made.rank == 2 and places and made.macs > 0 and bool(tiles_of(made))

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        if not (processor.has_dot_across or processor.is_scalar_controller):
            return []
        if not self.suits(made):
            return []
        cost = MVE if processor.has_dot_across else PLAIN
        found = {outputs: quad_instructions(made, outputs, cost) for outputs in tiles_of(made)}
        outputs = choose("tile", list(found), found.__getitem__)
        plan = Plan.of(self.name, outputs=outputs)
        return [Candidate(plan, found[outputs], lambda: (packed(made, weights),), label=self.name)]

    def expect_types(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        outputs = plan.integer("outputs")
        if outputs not in tiles_of(made):
            raise ValueError(f"a tile has one of {tiles_of(made)} results of a row, not {outputs}")
        expect_shape(operands, packed_shape(made))

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        channels_first = operands[0].transpose(0, 3, 1, 2)
        return channels_first.reshape(-1, *made.window, 1)[: made.outputs]

    def kernel(
        self, made: Contraction, plan: Plan, out: TensorType, packed: Sequence[Tensor]
    ) -> QuadKernel:
        return QuadKernel(made, plan.integer("outputs"))


def packed_shape(made: Contraction) -> tuple[int, ...]:
    """Four channels, window, channel of the four."""
    return -(-made.outputs // QUAD), *made.window, QUAD


def packed(made: Contraction, weights: Array) -> Array:
    """Weights (C, window, 1), filled up with channels of zeros."""
    whole = np.pad(weights[..., 0], [(0, -made.outputs % QUAD), (0, 0), (0, 0)])
    fours = whole.reshape(-1, QUAD, *made.window).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(fours)


def tiles_of(made: Contraction) -> list[int]:
    """Results of a row whose sums fit into registers, and that loads reach from the first."""
    return [
        outputs for outputs in range(1, min(MOST_SUMS, made.result[1]) + 1)
        if QUAD * (plane_columns(made, outputs, 1) - 1) <= REACH
    ]


def quad_instructions(
    made: Contraction, outputs: int, cost: Instructions = MVE
) -> float:
    """Of the whole layer."""
    columns = plane_columns(made, outputs, -(-made.result[1] // outputs))
    band = band_rows(made, columns)
    rows = made.result[0] // band * plane_height(made, band)
    tiles = -(-made.result[1] // outputs)
    taps = made.window[1] * (1 + cost.product * outputs)
    tile = cost.lanes * (6 + 2 * outputs + made.window[0] * (2 + taps))
    calls = -(-tiles * outputs // max(outputs, MOST_KEPT))
    row = calls * CALLED + tiles * tile + cost.finished * made.result[1]
    quads = made.batch * -(-made.outputs // QUAD)
    copied = cost.copied if made.multiplier == 1 else cost.repeated
    return quads * (copied * rows * columns + made.result[0] * row)


IMPLEMENTATION = Quads()
