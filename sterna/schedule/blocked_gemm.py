"""The schedule of products with packed weights whose data is larger than the second cache.

Every column of tiles reads all of the data. Many rows are therefore taken in blocks, and a long sum
as well: a block of the data stays in the cache while columns pass by, and what they add to their
sums is collected in memory, a few columns wide, until the whole sum has been there.
"""

from dataclasses import dataclass

from sterna.schedule.choose import choose
from sterna.schedule.cost import STREAMED
from sterna.schedule.default import schedule_as_written, vectorize_result
from sterna.schedule.gemm import (
    UNROLLED_STEPS,
    Plan,
    fetch_ahead,
    most_rows,
    only_sum,
    place_others,
    plan_of,
    row_axis,
    schedule_contraction,
    tile_sum,
)
from sterna.schedule.kernel import Kernel, Processor
from sterna.schedule.products import wide
from sterna.schedule.register_tile import TileSpace
from sterna.schedule.sum_of_products import SumOfProducts, description_of
from sterna.support.dtype import DataType
from sterna.te import ComputeOp, IterVar, Stage

# A block has at least so many tiles, one below the other.
LEAST_TILES = 4
# What a piece costs before its first column, in columns.
START = 0.05
# Lower blocks read the weights too often, shorter ones spend too much on collecting their sums.
LEAST_ROWS, MOST_ROWS, LEAST_DEPTH = 96, 256, 128


BLOCKED = "blocked_gemm"


@dataclass(frozen=True, slots=True)
class Blocks:
    """How a product is cut."""

    rows: int
    depth: int
    """Elements of the sum that are computed at once."""
    columns: int
    """Columns of tiles whose sums are collected together."""

    def __str__(self) -> str:
        """240 rows, 128 deep, 3 tiles wide"""
        return f"{self.rows} rows, {self.depth} deep, {self.columns} tiles wide"


@dataclass(frozen=True, slots=True)
class OfferedBlocks:
    """The rows, the depths and the numbers of pieces that suit a product."""

    rows: list[int]
    depths: list[int]
    pieces: list[int]
    """Into how many pieces columns of tiles are cut."""


def schedule_product(kernel: Kernel) -> None:
    """A register tile with its epilogue; large data in blocks that stay in the second cache."""
    if not isinstance(kernel.anchor[0].op, ComputeOp):
        schedule_as_written(kernel)
        return
    total = only_sum(kernel)
    made = None if total is None else description_of(total)
    blocks = None
    if total is not None and made is not None and made.implementation == BLOCKED:
        blocks = _blocks_of(kernel, made)
        kernel.choices["blocks"] = str(blocks or "none, its data fits into this cache")
    if total is None or made is None or blocks is None:
        schedule_contraction(kernel)
    else:
        _schedule_blocks(kernel, total, made, blocks)


def _schedule_blocks(
    kernel: Kernel, total: ComputeOp, made: SumOfProducts, blocks: Blocks
) -> None:
    plan = plan_of(kernel, made, blocks.rows)
    kernel.choices["tile"] = f"{plan.tile.rows} x {plan.tile.columns}"
    schedule, out = kernel.schedule, kernel.outputs[0]
    place_others(kernel, total)
    is_result = schedule[out].op is total
    sums = schedule.cache_write(out, "global") if is_result else total.output(0)
    outer, _ = schedule[sums].split(schedule[sums].op.reduce_axis[0], factor=blocks.depth)
    partial = schedule.rfactor(sums, outer)
    place = _tile_result(schedule[out], plan, blocks)
    schedule[sums].compute_at(schedule[out], place)
    columns, rows = _collect(schedule[sums], plan)
    schedule[partial].set_scope("local")
    schedule[partial].compute_at(schedule[sums], rows)
    step = tile_sum(schedule, partial, made, Plan(plan.row + 1, plan.tile))
    fetch_ahead(schedule[partial], made, plan.row, columns, step)


def offered_blocks(
    rows: int, depth: int, units: int, width: int, dtype: DataType, processor: Processor
) -> OfferedBlocks | None:
    """The blocks of a product with tiles of some columns; None if its data fits into the cache."""
    cache, item, columns = processor.l2_bytes, wide(dtype).bytes, units // width
    if columns < 4 or units % width or rows * depth * item <= cache // 2:
        return None
    heights = [n for n in range(LEAST_ROWS, MOST_ROWS + 1) if rows % n == 0] or [rows]
    highest = max(heights)
    depths = [
        block
        for block in range(LEAST_DEPTH, depth + 1)
        if depth % block == block % UNROLLED_STEPS == 0
        and block * (highest + 2 * width) * item <= cache // 2
    ]
    pieces = [
        n
        for n in range(processor.threads, columns + 1)
        if columns % n == 0 and columns // n * highest * width * item <= cache // 8
    ]
    together = processor.steps_together(wide(dtype), depth)
    tile = TileSpace(
        rows, units, processor.lanes(wide(dtype)), processor.registers_for(together), width,
        most_rows(depth * item), together=together, throughput=processor.smt_throughput,
    ).cheapest()
    tall = highest >= LEAST_TILES * tile.rows
    return OfferedBlocks(heights, depths, pieces) if depths and pieces and tall else None


def _blocks_of(kernel: Kernel, made: SumOfProducts) -> Blocks | None:
    """The highest and deepest blocks that fit, in as few pieces as keep all threads busy.

    None on another processor than weights were packed for, where all of the data fits.
    """
    rows, units, depth = made.sizes[row_axis(made)], made.sizes[-1], made.depths[0]
    processor, width = kernel.processor, made.block or 1
    offered = offered_blocks(rows, depth, units, width, made.dtype, processor)
    if offered is None:
        return None
    lanes, threads = processor.lanes(made.dtype), processor.threads
    weights = depth * units * made.dtype.bytes / STREAMED
    high = choose("block rows", offered.rows, lambda n: rows // n * weights / threads)
    sums = 2 * rows * units / lanes / threads
    deep = choose("block depth", offered.depths, lambda n: depth // n * sums)
    columns = units // width

    def end(pieces: int) -> float:
        """When the last thread is done, in columns of tiles."""
        return -(-pieces // threads) * (columns // pieces + START)

    return Blocks(high, deep, columns // choose("block columns", offered.pieces, end))


def _tile_result(stage: Stage, plan: Plan, blocks: Blocks) -> IterVar:
    """The loops of the epilogue; gives the one in which sums are collected."""
    *others, last = list(stage.op.axis)
    high, row = stage.split(others.pop(plan.row), factor=blocks.rows)
    wide, inside = stage.split(last, factor=blocks.columns * plan.tile.columns)
    tile, vector = stage.split(inside, factor=plan.tile.columns)
    stage.reorder(*others, high, wide, row, tile, vector)
    vectorize_result(stage, vector, plan.tile.columns)
    place = stage.fuse(*others, high, wide)
    stage.parallel(place)
    return place


def _collect(stage: Stage, plan: Plan) -> tuple[IterVar, IterVar]:
    """The loops that add a block's sums; gives those over columns and over rows of tiles."""
    *others, last = list(stage.op.axis)
    row = others.pop(plan.row)
    columns, vector = stage.split(last, factor=plan.tile.columns)
    rows, row_inside = stage.split(row, factor=plan.tile.rows)
    stage.reorder(*others, *stage.op.reduce_axis, columns, rows, row_inside, vector)
    stage.unroll(row_inside)
    stage.vectorize(vector)
    return columns, rows
