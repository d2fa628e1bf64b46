"""Contractions of bytes by SMLAD: two products of 16-bit halves added to a word.

Pixels are widened once into a panel (im2col) that all output channels read; weights stay bytes in
memory, and four of them are widened as they come into registers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.choose import choose
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import GROUP, INT32
from sterna.schedule.halves_kernel import HalvesKernel, groups_of, reads_bytes
from sterna.schedule.halves_steps import panel_loads
from sterna.schedule.implementation import Candidate, PackedImplementation, Plan, expect_shape
from sterna.schedule.kernel import Processor
from sterna.te import Tensor

# Pixels, or channels of one pixel, whose sums fit into registers beside addresses and operands.
MOST_PIXELS, MOST_CHANNELS = 6, 4
# Instructions of a call with its loop's turns, of a sum that is rounded and stored, of four bytes
# that are widened into the panel.
CALLED, FINISHED, WIDENED = 24, 11, 6
# What it costs that the last panel is not full: results cannot lie over what they read, and
# their sums are stored in a loop, from memory, by so many instructions more.
UNEVEN, LOOPED = 1.1, 10


@dataclass(frozen=True, slots=True)
class Tile:
    """Pixels of one output channel, or output channels of one pixel, in registers together."""

    pixels: int
    channels: int

    def __str__(self) -> str:
        """4 x 1"""
        return f"{self.pixels} x {self.channels}"

    @property
    def instructions(self) -> int:
        """Of one step: four products of each sum, the words of two channels by one load."""
        loads = panel_loads(self.pixels) + -(-self.channels // 2)
        return loads + self.channels * (2 + 2 * self.pixels)


class Halves(PackedImplementation):
    """Channels last, one group of channels, bytes with a sign."""

    name = "halves"
    wants = "a contraction of int8 with its channels last, in one group"

    def suits(self, made: Contraction) -> bool:
        kinds = {str(made.data), str(made.weight)} == {"int8"} and made.out == INT32
        return kinds and made.is_plain_image and not made.transposed

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        if not processor.has_dot_halves or not self.suits(made):
            return []
        found = tiles(made)
        tile = choose("tile", list(found), found.__getitem__)
        plan = Plan.of(self.name, pixels=tile.pixels, channels=tile.channels)
        return [Candidate(plan, found[tile], lambda: (packed(weights, tile.channels),),
                          label=self.name)]

    def expect_types(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        pixels, channels = plan.integer("pixels"), plan.integer("channels")
        if min(pixels, channels) != 1 or not (pixels <= made.pixels and channels <= made.outputs):
            raise ValueError("a tile is some pixels of a channel, or some channels of a pixel")
        if max(pixels, channels) > MOST_PIXELS:
            raise ValueError(f"a tile has at most {MOST_PIXELS} sums")
        if made.outputs % channels:
            raise ValueError(f"tiles of {channels} channels do not hold {made.outputs}")
        expect_shape(operands, (made.outputs // channels, groups_of(made), channels, GROUP))

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        plain = operands[0].transpose(0, 2, 1, 3).reshape(made.outputs, -1)[:, : made.products]
        return plain.reshape(made.outputs, *made.window, made.depth)

    def kernel(
        self, made: Contraction, plan: Plan, out: TensorType, packed: Sequence[Tensor]
    ) -> HalvesKernel:
        return HalvesKernel(
            made, plan.integer("pixels"), plan.integer("channels"), out.concrete_shape[:-1]
        )


def packed(weights: Array, channels: int) -> Array:
    """Weights (O, window, I) as words of four: (block of O, group, O in the block, 4)."""
    plain = weights.reshape(len(weights), -1)
    whole = np.pad(plain, [(0, 0), (0, -plain.shape[1] % GROUP)])
    blocks = whole.reshape(len(weights) // channels, channels, -1, GROUP).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(blocks)


def tiles(made: Contraction) -> dict[Tile, float]:
    """Register tiles, with the instructions of the whole contraction."""
    wide = range(2, min(MOST_CHANNELS, made.outputs) + 1)
    offered = [Tile(pixels, 1) for pixels in range(1, min(MOST_PIXELS, made.pixels) + 1)]
    offered += [Tile(1, channels) for channels in wide if made.outputs % channels == 0]
    return {tile: layer_instructions(made, tile) for tile in offered}


def layer_instructions(made: Contraction, tile: Tile) -> float:
    """All panels, of which the last may be filled in part, and all blocks of channels."""
    groups = groups_of(made)

    each, widened = tile.instructions + 1, WIDENED * groups * tile.pixels
    if reads_bytes(made, tile.pixels, tile.channels):
        each, widened = each + 2, 0
    even, finished = (1.0, FINISHED) if made.pixels % tile.pixels == 0 else (
        UNEVEN, FINISHED + LOOPED)
    block = each * groups + CALLED + finished * tile.pixels * tile.channels
    panel = made.outputs // tile.channels * block + widened
    return -(-made.pixels // tile.pixels) * panel * even


IMPLEMENTATION = Halves()
