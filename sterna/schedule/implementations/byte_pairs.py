"""Contractions of bytes by dot2, pairs of products in 16 bits: vpmaddubsw.

Weights prove that no sum leaves 16 bits, so that it is exact for all data. Data with a sign counts
128 more; what sums are too large by then is subtracted from them.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.byte_pair_kernel import ROWS, SIGN, PairKernel
from sterna.schedule.byte_pair_steps import Steps, steps_of
from sterna.schedule.choose import choose
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import GROUP, INT32, dot_lanes
from sterna.schedule.implementation import Candidate, PackedImplementation, Plan, expect_shape
from sterna.schedule.kernel import Processor
from sterna.te import Tensor

LEAST_LANES = 8
# Instructions for each group that are so few that other tiles win nothing, and what the narrowest
# tile costs more.
FEW, NARROW = 2.6, 1.05


class BytePairs(PackedImplementation):
    """Channels last in whole groups of four, one group of channels, weights with a sign."""

    name = "byte_pairs"
    wants = "a contraction of bytes in whole groups of four"

    def suits(self, made: Contraction) -> bool:
        kinds = made.is_of_bytes and made.weight.is_int and made.out == INT32
        return kinds and made.is_plain_image and made.depth % GROUP == 0

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        lanes = dot_lanes(made.outputs, processor)
        if not processor.prefers_dot2 or not self.suits(made) or lanes < LEAST_LANES:
            return []
        steps = cheapest_steps(weights.reshape(made.outputs, -1, GROUP), lanes)
        cycles = made.pixels * steps.cost(lanes) / processor.threads

        def pack() -> tuple[Array, ...]:
            weight = steps.weight.reshape(len(steps.weight), -1, lanes, GROUP)
            lifted = SIGN * weights.reshape(made.outputs, -1).sum(axis=1, dtype="int32")
            at = _places(made)[steps.places].astype("int32")
            return (weight, at, steps.starts, *(() if made.data.is_uint else (lifted,)))

        return [Candidate(Plan(self.name), cycles, pack)]

    def expect_types(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        groups, vectors, lanes, _ = (*operands[0].concrete_shape, 1, 1, 1, 1)[:4]
        panels, rest = divmod(made.outputs, max(1, vectors * lanes))
        if rest:
            raise ValueError(f"panels of {vectors * lanes} channels do not hold {made.outputs}")
        lifted = () if made.data.is_uint else ((made.outputs,),)
        expect_shape(
            operands, (groups, vectors, lanes, GROUP), (groups,), (panels + 1, 2), *lifted
        )
        if any(kind.dtype != INT32 for kind in operands[1:]):
            raise ValueError("places, starts and what is subtracted are int32")

    def expect_values(
        self, made: Contraction, plan: Plan, operands: Sequence[Array | None]
    ) -> None:
        weight, places, starts = operands[:3]
        if weight is None or places is None or starts is None:
            raise ValueError("weights, places and starts are constants of the graph")
        outside = ~np.isin(places, _places(made))
        if outside.any():
            first = int(outside.argmax())
            raise ValueError(
                f"places[{first}] is {places[first]}, where no group of the window lies"
            )
        steps = starts.astype("int64").reshape(-1)[:-1]
        pairs = steps[1::2] - steps[:-1:2]
        if steps[0] < 0 or steps[-1] > len(weight) or (np.diff(steps) < 0).any():
            listed = starts.tolist()
            raise ValueError(f"starts rise from 0 to the {len(weight)} groups, not {listed}")
        if (pairs % 2).any():
            raise ValueError(f"groups are summed two by two, which starts {starts.tolist()} split")

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        weight, places, starts = operands[:3]
        panel = weight.shape[1] * weight.shape[2]
        group_at = {place: number for number, place in enumerate(_places(made).tolist())}
        plain = np.zeros((made.outputs, made.products // GROUP, GROUP), np.int32)
        for number, (first, last) in enumerate(pairwise(starts[:, 0])):
            own = plain[number * panel : (number + 1) * panel]
            for step in range(first, last):
                own[:, group_at[int(places[step])]] += weight[step].reshape(panel, GROUP)
        return plain.reshape(made.outputs, *made.window, made.depth)

    def kernel(
        self, made: Contraction, plan: Plan, out: TensorType, packed: Sequence[Tensor]
    ) -> PairKernel:
        return PairKernel(made, packed[0], out.concrete_shape[:-1])


def cheapest_steps(weights: Array, lanes: int) -> Steps:
    """Weights (output channel, group, 4) in steps of register tiles of the best width.

    More groups fit together for fewer channels, and more bytes are loaded.
    """
    vectors = len(weights) // lanes
    width = next(n for n in ROWS if vectors % n == 0)
    made = {width: steps_of(weights, lanes * width)}
    if width > 1 and made[width].cost(lanes) > FEW * weights.shape[1] * vectors:
        made[1] = steps_of(weights, lanes)

    def cost(vectors: int) -> float:
        return made[vectors].cost(lanes) * (NARROW if vectors < width else 1.0)

    return made[choose("vectors of byte pairs", list(made), cost)]


def _places(made: Contraction) -> Array:
    """Where the groups of a window lie in the data with its border, from its first byte on."""
    (down, across), (rows, columns) = made.dilation, made.window
    width = made.image[1] + made.before[1] + made.after[1]
    return np.array([
        ((row * down) * width + column * across) * made.inputs + first
        for row in range(rows)
        for column in range(columns)
        for first in range(0, made.inputs, GROUP)
    ])


IMPLEMENTATION = BytePairs()
