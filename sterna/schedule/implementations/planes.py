"""Depthwise convolutions of bytes by SMLAD, on planes of one channel."""

from collections.abc import Sequence

import numpy as np

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.choose import choose
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import INT32
from sterna.schedule.implementation import Candidate, PackedImplementation, Plan, expect_shape
from sterna.schedule.implementations.halves import CALLED, FINISHED
from sterna.schedule.kernel import Processor
from sterna.schedule.plane_kernel import (
    PlaneKernel,
    band_rows,
    odd_columns,
    plane_rows,
    plane_words,
)
from sterna.te import Tensor

# Results of a row whose sums fit into registers beside addresses and operands.
MOST_OUTPUTS = 6
# Instructions in which two pixels come into a plane; weights of a word, which overlap in one.
COPIED, WORD = 5, 4


class Planes(PackedImplementation):
    """Channels last, any window of neighbours of a row, steps along one of one or two."""

    name = "planes"
    wants = "a depthwise convolution of int8 with its channels last"

    def suits(self, made: Contraction) -> bool:
        kinds = {str(made.data), str(made.weight)} == {"int8"} and made.out == INT32
        near = made.rank == 2 and 1 in (made.window[1], made.dilation[1])
        steps = near and made.strides[1] <= 2
        places = made.multiplier > 0 and made.channels_last and not made.transposed
        return kinds and steps and places and made.macs > 0

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        if not processor.has_dot_halves or not self.suits(made):
            return []
        most = min(MOST_OUTPUTS, made.result[1])
        found = {
            outputs: layer_instructions(made, outputs)
            for outputs in range(1, most + 1)
            if _begins_whole(made, outputs)
        }
        outputs = choose("tile", list(found), found.__getitem__)
        plan = Plan.of(self.name, outputs=outputs)
        return [Candidate(plan, found[outputs], lambda: (packed(made, weights),), label=self.name)]

    def expect_types(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        outputs = plan.integer("outputs")
        if not 1 <= outputs <= min(MOST_OUTPUTS, made.result[1]):
            raise ValueError(f"a tile has at most {MOST_OUTPUTS} results of a row, not {outputs}")
        if not _begins_whole(made, outputs):
            raise ValueError(f"tiles of {outputs} results begin inside of words")
        expect_shape(operands, packed_shape(made))

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        return unpacked(made, operands[0])[..., None]

    def kernel(
        self, made: Contraction, plan: Plan, out: TensorType, packed: Sequence[Tensor]
    ) -> PlaneKernel:
        return PlaneKernel(made, plan.integer("outputs"))


def packed_shape(made: Contraction) -> tuple[int, int, int, int]:
    """Channel, row of the window, pair of columns, weights of a word."""
    return made.outputs, made.window[0], odd_columns(made) // 2, WORD


def packed(made: Contraction, weights: Array) -> Array:
    """Weights w0 w1 w2 w3 w4 of each row as words w0 w1 w1 w2 and w2 w3 w3 w4."""
    more = odd_columns(made) - made.window[1]
    plain = np.pad(weights[..., 0], [(0, 0), (0, 0), (0, more)])
    words = [plain[:, :, first : first + 3][:, :, [0, 1, 1, 2]]
             for first in range(0, plain.shape[2] - 1, 2)]
    return np.ascontiguousarray(np.stack(words, axis=2))


def unpacked(made: Contraction, words: Array) -> Array:
    """The weights (channel, row, column) of such words."""
    columns = [words[:, :, tap // 2, tap % 2] for tap in range(2 * words.shape[2])]
    whole = np.stack([*columns, words[:, :, -1, 3]], axis=2)
    return whole[:, :, : made.window[1]]


def _begins_whole(made: Contraction, outputs: int) -> bool:
    """Whether the windows of all tiles of a row begin with a word."""
    return outputs * made.strides[1] % 2 == 0 or outputs == made.result[1]


def layer_instructions(made: Contraction, outputs: int) -> float:
    """The instructions of the whole contraction."""
    words = plane_words(made, outputs)
    band = band_rows(made, words)
    rows = made.result[0] // band * plane_rows(made, band)
    tiles = -(-made.result[1] // outputs)
    own = words - (tiles - 1) * outputs * made.strides[1] // 2
    row = odd_columns(made) // 2 * 3 + own + odd_columns(made) // 2 * 2 * outputs + 1
    tile = CALLED + FINISHED * outputs + row * made.window[0]
    return made.batch * made.outputs * (COPIED * rows * words + made.result[0] * tiles * tile)


IMPLEMENTATION = Planes()
