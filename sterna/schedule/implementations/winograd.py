"""Winograd F(m, r) with weights transformed before, for small windows of stride 1.

Strides over few channels, as in the stems of networks, become such by space-to-depth; dilated
windows see images that are interleaved, each of them without dilation.
"""

from collections.abc import Sequence
from math import prod

from sterna.ir import build
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementation import Arranged, Candidate, PackedImplementation, Plan
from sterna.schedule.kernel import Processor
from sterna.schedule.pixel_blocks import ARRANGED, PixelBlocks
from sterna.schedule.products import FLOAT32
from sterna.schedule.register_tile import tile_of_rows
from sterna.schedule.winograd_kernel import WinogradKernel, chunk_of
from sterna.schedule.winograd_plan import (
    MOST_SIZE,
    SPLITS,
    WINDOWS,
    all_tiles,
    restore_weights,
    transform_weights,
    winograd_plans,
)
from sterna.te import Tensor

# It pays only if it is this much cheaper: weights grow.
PAYS = 0.9


class Winograd(PackedImplementation):
    """Channels last, float32, in groups of some vectors or in one."""

    name = "winograd"
    wants = (
        "a convolution of float32 with channels last, stride 1, borders of 0 and a "
        f"square window of {WINDOWS[0]} to {WINDOWS[-1]} rows"
    )

    def suits(self, made: Contraction) -> bool:
        floats = {*made.dtypes} == {FLOAT32} and made.border == 0
        square = {*made.strides} == {1} and made.window[0] == made.window[-1]
        image = made.rank == 2 and made.channels_last and not made.transposed and made.macs > 0
        return floats and image and square and made.window[0] in WINDOWS

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        blocks = None
        if {*made.strides} != {1}:
            plain = made.rank == 2 and {*made.dilation} == {1} and made.groups == 1
            blocks = PixelBlocks.of(made, processor.lanes(FLOAT32)) if plain else None
            if blocks is None:
                return []
        seen = made if blocks is None else blocks.contraction(made)
        block = _block(seen, processor)
        if not self.suits(seen) or seen.outputs // seen.groups % block:
            return []
        arranging = 0 if blocks is None else prod(blocks.shape) / ARRANGED / processor.threads
        together = processor.steps_together(FLOAT32, seen.depth)
        found = []
        for way in winograd_plans(seen, block, processor):
            plan = Plan.of(
                self.name, m=way.m, tiles=way.tiles, split=way.split, lanes=way.lanes,
                registers=processor.registers_for(together), together=together,
                products=made.products,
            )

            def pack(m: int = way.m) -> tuple[Array, ...]:
                plain = weights if blocks is None else blocks.weight(weights)
                return (transform_weights(plain, m, block),)

            arranged = None if blocks is None else Arranged(seen, blocks.data)
            growth = (way.m + seen.window[0] - 1) ** 2 * seen.depth / made.products
            cycles = (way.cycles + arranging) / PAYS
            found.append(Candidate(plan, cycles, pack, arranged, growth))
        return found

    def expect_types(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        m, most = plan.integer("m"), MOST_SIZE - made.window[0] + 1
        if not 2 <= m <= most:
            raise ValueError(f"m should be 2 to {most}")
        shape = operands[0].concrete_shape if len(operands) == 1 else ()
        size = (m + made.window[0] - 1) ** 2
        wanted = len(shape) == 4 and (shape[0], shape[2]) == (size, made.depth)
        if not wanted or shape[1] * shape[3] != made.outputs or shape[1] % made.groups:
            raise ValueError(
                f"weight {shape} should have {size} positions, {made.depth} input channels and "
                f"{made.outputs} output channels in blocks of a group"
            )
        _expect_loops(made, plan, shape[3])

    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        return restore_weights(operands[0], plan.integer("m"), made.window[0])

    def transformed_work(self, made: Contraction, plan: Plan) -> tuple[str, int]:
        """Products of transformed tiles alone, without the sums of the transforms."""
        m, window = plan.integer("m"), made.window[0]
        positions = (m + window - 1) ** 2
        products = made.batch * all_tiles(made, m) * positions * made.depth * made.outputs
        return f"Winograd F({m}, {window})", products

    def kernel(
        self, made: Contraction, plan: Plan, out: TensorType, packed: Sequence[Tensor]
    ) -> WinogradKernel:
        """What follows is computed while a tile of results is in registers."""
        return WinogradKernel(made, plan, build.int_value(packed[0].shape[-1]) or 1)


def _expect_loops(made: Contraction, plan: Plan, block: int) -> None:
    """Raise ValueError unless the loops of a plan fit to channels in such blocks."""
    if plan.text("split") not in SPLITS:
        raise ValueError(f"split should be one of {', '.join(SPLITS)}")
    for name in ("tiles", "lanes", "registers", "together", "products"):
        if plan.integer(name) < 1:
            raise ValueError(f"{name} should be at least 1")
    lanes, together = plan.integer("lanes"), plan.integer("together")
    chunk = chunk_of(made, lanes)
    if block % lanes or made.depth % chunk or chunk % lanes or chunk % together:
        raise ValueError(
            f"lanes should divide blocks of {block} channels, and lanes and together the "
            f"{made.depth} input channels"
        )


def _block(made: Contraction, processor: Processor) -> int:
    """Output channels that lie together."""
    width = made.result[-1]
    return tile_of_rows(processor, width, made.outputs // made.groups, FLOAT32, made.depth).columns


IMPLEMENTATION = Winograd()
