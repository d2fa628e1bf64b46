"""Winograd F(m, r) for small windows of stride 1, with weights transformed before or by the run.

Strides over few channels, as in the stems of networks, become such by space-to-depth; dilated
windows see images that are interleaved, each of them without dilation.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from sterna.ir import build
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array, from_numpy
from sterna.relay.expr import Constant, RelayExpr
from sterna.relay.op import call as call_of
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import KERNEL, MOVED, STREAMED, products_per_cycle, regions
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
    WinogradPlan,
    all_tiles,
    as_array,
    matrices,
    restore_weights,
    transform_weights,
    winograd_plans,
)
from sterna.te import Tensor

# It pays only if it is this much cheaper: weights grow.
PAYS = 0.9
# Bytes of transformed weights that go beyond the second cache in a cycle: in many rows at once.
STORED = 2


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
        block = block_of(seen, processor)
        if not self.suits(seen) or seen.outputs // seen.groups % block:
            return []
        arranging = 0 if blocks is None else prod(blocks.shape) / ARRANGED / processor.threads
        found = []
        for way in winograd_plans(seen, block, processor):
            plan = self._plan(way, seen, made.products, processor)

            def pack(m: int = way.m) -> tuple[Array, ...]:
                plain = weights if blocks is None else blocks.weight(weights)
                return (transform_weights(plain, m, block),)

            arranged = None if blocks is None else Arranged(seen, blocks.data)
            cycles = (way.cycles + arranging) / PAYS
            found.append(Candidate(plan, cycles, pack, arranged, _growth(way, seen, made.products)))
        return found

    def of_free_weights(self, made: Contraction, processor: Processor) -> Sequence[Candidate]:
        """The plans whose weights the run transforms, with what that costs."""
        block = block_of(made, processor)
        if not self.suits(made) or made.outputs // made.groups % block:
            return []
        return [
            Candidate(
                self._plan(way, made, made.products, processor),
                way.cycles / PAYS + _transforming(made, way.m, processor),
                growth=_growth(way, made, made.products),
            )
            for way in winograd_plans(made, block, processor)
        ]

    def _plan(
        self, way: WinogradPlan, seen: Contraction, products: int, processor: Processor
    ) -> Plan:
        together = processor.steps_together(FLOAT32, seen.depth)
        return Plan.of(
            self.name, m=way.m, tiles=way.tiles, split=way.split, lanes=way.lanes,
            registers=processor.registers_for(together), together=together, products=products,
        )

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


def transformed_in_graph(
    made: Contraction, plan: Plan, weight: RelayExpr, layout: str, processor: Processor
) -> RelayExpr:
    """Weights in a layout as transform_weights makes them, by a product with a known matrix.

    G g G' is (G x G) times the window as one column, of all pairs of channels at once.
    """
    block, m, window = block_of(made, processor), plan.integer("m"), made.window[0]
    by_tap = call_of("layout_transform", weight, src_layout=layout, dst_layout=f"HWOI{block}o")
    g = as_array(matrices(m, window).window)
    both = Constant(from_numpy(np.kron(g, g).astype("float32")))
    columns = call_of("reshape", by_tap, newshape=(window**2, made.outputs * made.depth))
    product = call_of("nn.matmul", both, columns)
    return call_of("reshape", product, newshape=(
        (m + window - 1) ** 2, made.outputs // block, made.depth, block))


def _transforming(made: Contraction, m: int, processor: Processor) -> float:
    """Cycles in which weights are laid out by taps, multiplied and stored."""
    positions, pairs = (m + made.window[0] - 1) ** 2, made.outputs * made.depth
    size = positions * pairs * made.weight.bytes
    cycles = MOVED * made.taps * pairs + size / STREAMED
    cycles += max(0, size - processor.l2_bytes) / STORED
    cycles += positions * made.taps * pairs / products_per_cycle(processor)
    return cycles / processor.threads + 2 * KERNEL + regions(2, processor)


def _growth(way: WinogradPlan, seen: Contraction, products: int) -> float:
    """How many times larger weights become."""
    return (way.m + seen.window[0] - 1) ** 2 * seen.depth / products


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


def block_of(made: Contraction, processor: Processor) -> int:
    """Output channels that lie together."""
    width = made.result[-1]
    return tile_of_rows(processor, width, made.outputs // made.groups, FLOAT32, made.depth).columns


IMPLEMENTATION = Winograd()
