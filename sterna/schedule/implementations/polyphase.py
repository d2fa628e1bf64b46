"""Depthwise convolutions with channels first, plane by plane: strides part a plane into phases.

Of rows and volumes as well, which no other implementation takes as they are.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.choose import choose
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import depthwise_cycles, regions
from sterna.schedule.im2col_kernel import vector_of_line
from sterna.schedule.implementation import Candidate, PackedImplementation, Plan, expect_shape
from sterna.schedule.kernel import Processor
from sterna.schedule.moved_elements import LINE_BITS
from sterna.schedule.polyphase_kernel import Planes, PolyphaseKernel, inside, written_out
from sterna.schedule.products import FLOAT32
from sterna.te import Tensor

CHANNELS_FIRST = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
# Vectors of a register tile, and taps that are written out.
MOST_VECTORS, MOST_TAPS = 8, 64
# Cycles in which a vector is copied into a phase or stored as a row of results, one of every second
# number is copied, and a tile and a row begin.
COPIED, COPIED_APART, BEGUN = 1.2, 1.8, 1.5
# Cycles in which a plane begins.
PLANE = 15.0
# How much longer multiply-adds take that load a vector each, from any place: most vectors as long
# as a line of the cache lie in two lines.
LOADED, ACROSS_LINES = 1.775, 1.1
# Cycles from a multiply-add to the next one of the same sum.
WAITING = 4.0


class Polyphase(PackedImplementation):
    """Channels first, float32, any border, strides and dilation."""

    name = "polyphase"
    wants = "a depthwise convolution of float32 images with channels first"

    def suits(self, made: Contraction) -> bool:
        floats = {*made.dtypes} == {FLOAT32} and made.border == 0 and not made.transposed
        first = made.data_layout == made.out_layout == CHANNELS_FIRST.get(made.rank)
        small = made.macs > 0 and written_out(made) <= MOST_TAPS
        return floats and first and made.is_depthwise and small

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        if not offers_polyphase(made, processor):
            return []
        plan, cycles = self.plan(made, processor), polyphase_cycles(made, processor)
        return [Candidate(plan, cycles, lambda: (packed(made, weights),), label=self.name)]

    def plan(self, made: Contraction, processor: Processor) -> Plan:
        """The tile that suits there."""
        found, lanes = tile_cycles(made, processor), processor.lanes(FLOAT32)
        vectors = choose("tile", list(found), found.__getitem__)
        return Plan.of(self.name, columns=vectors * lanes, lanes=lanes)

    def expect_types(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        columns, lanes = plan.integer("columns"), plan.integer("lanes")
        if lanes < 1 or columns < 1 or columns % lanes:
            raise ValueError("lanes should divide columns")
        expect_shape(operands, (made.outputs, made.taps))

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        return operands[0].reshape(made.outputs, *made.window, 1)

    def kernel(
        self, made: Contraction, plan: Plan, out: TensorType, packed: Sequence[Tensor]
    ) -> PolyphaseKernel:
        return PolyphaseKernel(made, plan.integer("columns"), plan.integer("lanes"))


def packed(made: Contraction, weights: Array) -> Array:
    """Weights (O, window, 1) as (O, tap)."""
    return np.ascontiguousarray(weights.reshape(made.outputs, made.taps))


def offers_polyphase(made: Contraction, processor: Processor) -> bool:
    """Whether it is offered for a contraction: planes take memory, and pay by vectors of pixels."""
    can = processor.has_spare_memory and processor.lanes(FLOAT32) > 1
    return can and IMPLEMENTATION.suits(made)


@cache
def tile_cycles(made: Contraction, processor: Processor) -> dict[int, float]:
    """What the tiles of a plane take, by the vectors of each."""
    vectors = -(-Planes.of(made).line(made) // processor.lanes(FLOAT32))
    loaded = LOADED + ACROSS_LINES * processor.lanes(FLOAT32) * FLOAT32.bits / LINE_BITS
    each_vector = loaded / processor.throughput.multiply_adds
    most = min(MOST_VECTORS, processor.tile_registers - 2, vectors)

    def cycles(each: int) -> float:
        """A tap's multiply-adds wait for those of the tap before."""
        whole, rest = divmod(vectors, each)
        tiles = [(each, whole), *([(rest, 1)] if rest else [])]
        return sum(
            count * (made.taps * max(wide * each_vector, WAITING) + BEGUN)
            for wide, count in tiles
        )

    return {each: cycles(each) for each in range(1, max(1, most) + 1)}


def polyphase_cycles(made: Contraction, processor: Processor) -> float:
    """Phases copied, tiles of the line, and rows stored."""
    lanes, planes = processor.lanes(FLOAT32), Planes.of(made)
    cycles = PLANE + min(tile_cycles(made, processor).values())
    *rows, wide = made.result
    cycles += math.prod(rows) * (COPIED * _vectors(wide, lanes) + BEGUN)
    each = COPIED if made.strides[-1] == 1 else COPIED_APART
    for phase in planes.phases:
        *above, (left, right) = (
            inside(made, planes, phase, axis) for axis in range(made.rank)
        )
        cycles += planes.numbers / lanes  # of zeros
        if left < right:
            count = math.prod(bottom - top for top, bottom in above)
            cycles += count * (each * _vectors(right - left, lanes) + BEGUN)
    return made.batch * made.outputs * cycles / processor.threads + regions(1, processor)


def depthwise_cycles_first(made: Contraction, processor: Processor) -> float:
    """What a depthwise convolution takes with channels first, by planes or row by row."""
    by_rows = depthwise_cycles(made, processor)
    if not offers_polyphase(made, processor):
        return by_rows
    return min(by_rows, polyphase_cycles(made, processor))


def _vectors(count: int, lanes: int) -> int:
    return -(-count // vector_of_line(count, lanes))


IMPLEMENTATION = Polyphase()
